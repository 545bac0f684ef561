"""Softmax with 1 added to its denominator, so that a query may attend to nothing.

Miller 2023, "Attention Is Off By One", https://www.evanmiller.org/attention-is-off-by-one.html.

    w_ij = exp(s_ij) / (1 + sum_j' exp(s_ij'))

This is ``sink`` with b_h = 0, without a parameter.

Departures from the paper: none.
Cost: O(h t); no parameters.
"""

import torch
from torch import Tensor

from attnlab.components.base import Component


class Softmax1(Component):
    """Softmax over the keys and one logit 0, which has no value."""

    paper = "Miller 2023"

    def weights(self, logits: Tensor, visible: Tensor) -> Tensor:
        zero = logits.new_zeros(()).expand(*logits.shape[:-1], 1)
        return torch.cat([zero, logits], dim=-1).softmax(-1)[..., 1:]
