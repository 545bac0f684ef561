"""Token shift after the projections: short causal convolutions of queries, keys and values.

Allen-Zhu 2025, arXiv:2512.17351, "Physics of Language Models: Part 4.1", Canon layers, place B (inside attention).

    q_t <- q_t + sum_{k < 4} w_k * q_{t-k},    and k, v likewise

with one weight for each feature and distance k.

Departures from the paper: the weights are 0 at first.
Cost: O(t dim); 12 dim parameters.
Glossary: ``shift_q.weight``, ``shift_k.weight``, ``shift_v.weight`` w_k.
"""

from torch import Tensor, nn

from attnlab.components.base import Component, ComponentConfig
from attnlab.nn.layers import Projections, merge_heads, split_heads
from attnlab.nn.shift import CausalShift, ShortConvolution


class ShiftedProjections(Projections):
    """Projections that mix queries, keys and values with earlier ones by a layer of the class ``kind``."""

    def __init__(self, config: ComponentConfig, *, width: int, kind: type[ShortConvolution]) -> None:
        total = config.heads * config.head_dim
        super().__init__(config.dim, total, heads=config.heads, bias=config.bias)
        self.shift_q, self.shift_k, self.shift_v = (kind(total, width=width) for _ in range(3))
        self.mask: Tensor | None = None  # of the current input

    def forward(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (merge_heads(z) for z in super().forward(x, context))
        q, k, v = self.shift_q(q, self.mask), self.shift_k(k, self.mask), self.shift_v(v, self.mask)
        return split_heads(q, self.heads), split_heads(k, self.heads), split_heads(v, self.heads)


class TokenShiftQKV(Component):
    """A mixture of the last ``width`` queries, keys and values, added to each."""

    roles = frozenset({"causal", "bidirectional"})
    supports_memory = False  # the queries of the memory's positions, which the first ones would mix with, are not computed
    permutation_equivariant = False
    kind: type[ShortConvolution] = CausalShift
    paper = "Allen-Zhu 2025"

    def __init__(self, config: ComponentConfig, *, width: int = 4) -> None:
        super().__init__(config)
        self._projections = (
            ShiftedProjections(config, width=width, kind=self.kind),
        )  # a tuple: a submodule of the variant alone

    def projections(self) -> nn.Module:
        return self._projections[0]

    def input(self, x: Tensor, mask: Tensor | None) -> Tensor:
        self._projections[0].mask = mask
        return x
