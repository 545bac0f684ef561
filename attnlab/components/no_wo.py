"""No output projection: the variant ``no_wo`` as a component.

Bloem 2019, "Transformers from scratch", https://peterbloem.nl/blog/transformers, raises the question.

    y = Concat(head_1, ..., head_h)

Departures from the paper: no W_O.
Cost: dim^2 parameters and the time O(t dim^2) of their product less.
"""

from torch import nn

from attnlab.components.base import Component


class NoOutputProjection(Component):
    """The concatenated heads as the output."""

    paper = "Bloem 2019 asks the question"

    def output_projection(self) -> nn.Module:
        return nn.Identity()
