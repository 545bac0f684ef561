"""A sliding window: each query attends to its neighbors alone.

Beltagy et al. 2020, arXiv:2004.05150, "Longformer".

    M_i = {j : |i - j| < w}

With a causal role these are the last w keys, the query's included; otherwise w - 1 keys on either side.

Departures from the paper: w counts the keys of one side, not of both.
Cost: time O(t w dim) with backend ``blocked``, O(t s dim) with the others; no parameters.
Glossary: ``size`` w.
"""

from torch import Tensor

from attnlab.components.base import Component, ComponentConfig, Setting


class Window(Component):
    """Attention to keys at a distance below ``size``."""

    roles = frozenset({"causal", "bidirectional"})
    permutation_equivariant = False
    paper = "Beltagy et al. 2020"

    def __init__(self, config: ComponentConfig, *, size: int) -> None:
        super().__init__(config)
        self.window: int = size

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        if (size := setting.options["size"]) < 1:
            return f"expected a size of at least 1, got {size}"
        return super().unsupported(setting)

    def visible(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i - j).abs() < self.window
