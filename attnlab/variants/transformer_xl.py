"""Transformer-XL attention: segment recurrence with relative positions (Dai et al. 2019, sections 3.2 and 3.3).

    h~     = [SG(memory); h]                                       keys and values run over h~, queries over h
    q_i    = W_q h_i,   k_j = W_kE h~_j,   v_j = W_v h~_j
    A_ij   = q_i . k_j + q_i . r_(i-j) + u . k_j + v . r_(i-j)     the last three by the position scheme ``relative``
    y      = Concat(softmax(A / sqrt(d)) v) W_O

The model keeps the memory (``model.mem_len`` positions of each block's input, gradient stopped) and hands [memory; h] in as
``context``; the position scheme is an axis of its own, ``relative`` by default. So this is ``dense`` with that default; without
memory it ablates the encoding alone.

Code to paper: ``project`` W_q, W_kE, W_v stacked; ``out`` W_O; see ``positions/relative.py`` for r, u and v.
Cost: time O(t (t + memory) dim), memory x dim state a block.
"""

from torch import Tensor, nn

from attnlab.variants import BACKENDS, AttentionConfig, Projections, Variant, merge_heads


class TransformerXL(Variant):
    """Attention over [memory; segment]."""

    roles = frozenset({"causal", "bidirectional"})
    memory = True
    backends = BACKENDS
    default_position = "relative"
    paper = "Dai et al. 2019"

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.project = Projections(config.dim, config.dim, heads=config.heads)
        self.out = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        return self.out(merge_heads(self.attend(q, k, v, mask)))
