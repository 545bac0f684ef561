"""Token shift before the projections: a short causal convolution of the input.

Allen-Zhu 2025, arXiv:2512.17351, "Physics of Language Models: Part 4.1", Canon layers, place A (before attention).

    x_t <- x_t + sum_{k < 4} w_k * x_{t-k}

with one weight for each feature and distance k. It acts on the input, so every variant supports it.

Departures from the paper: the weights are 0 at first.
Cost: O(s dim); 4 dim parameters.
Glossary: ``shift.weight`` w_k.
"""

from torch import Tensor

from attnlab.components.base import Component, ComponentConfig
from attnlab.nn.shift import CausalShift


class TokenShift(Component):
    """A mixture of the last ``width`` inputs, added to each input."""

    roles = frozenset({"causal", "bidirectional"})
    permutation_equivariant = False
    paper = "Allen-Zhu 2025"

    def __init__(self, config: ComponentConfig, *, width: int = 4) -> None:
        super().__init__(config)
        self.shift = CausalShift(config.dim, width=width)

    def input(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.shift(x, mask)
