"""Fixed sparse attention: the own block in half of the heads, the summary positions of all blocks in the others.

Child et al. 2019, arXiv:1904.10509, "Generating Long Sequences with Sparse Transformers", section 4.2.

When the last c positions of each block of length l are summaries, query i attends in half of the heads to its own block and in
the other half to every summary so far:

    A1_i = {j <= i : floor(j / l) = floor(i / l)}         A2_i = {j <= i : j mod l >= l - c}

``FixedSparse.visible`` states this mask; ``forward`` computes it without a (t, t) matrix (``attnlab.nn.sparse``). A query
before the first summary has an empty A2: those heads yield zeros there. Position schemes that act by bias compute it for parts
of the logits: for a block; and for each place p of a query in its block and e of a summary in its own, at the distances
(a - m) l + p - e of blocks a and m.

Departures from the paper: none in the pattern; its heads are split between A1 and A2, which is the paper's "multi-head" form,
and the projections are as in ``dense``. All heads of A2 see the same c positions; the paper prefers a part of the block for
each head. The paper adds embeddings of a position's block and place; here ``position`` is an axis. The sequence may have any
length, as in ``strided_sparse``.
Cost: time and saved memory O(t (l + c t / l) dim).
Glossary: ``stride`` l; ``summary`` c; ``block_heads`` attend over A1, ``summary_heads`` over A2.
"""

from math import isqrt
from typing import Any

import torch
from torch import Tensor

from attnlab.errors import UserError
from attnlab.nn.sparse import block_attention, merge_grid, summary_attention
from attnlab.variants.base import AttentionConfig, Setting
from attnlab.variants.dense import Dense


class FixedSparse(Dense):
    """The own block in half of the heads, the summary positions of all blocks in the others.

    Args:
        stride: l, the length of a block.
        summary: c, the number of positions at the end of each block that later queries may attend to, at most ``stride``.

    Raises:
        UserError: ``summary`` is not within 1 .. ``stride``.
    """

    roles = frozenset({"causal"})
    backends = ("reference", "blocked", "sdpa", "xformers")
    blockwise_bias = True
    supports_attention_bias = True
    supports_memory = False
    permutation_equivariant = False
    cost_exponent = 1.5
    paper = "Child et al. 2019"

    def __init__(self, config: AttentionConfig, *, stride: int = 16, summary: int = 4) -> None:
        super().__init__(config)
        if not 1 <= summary <= stride:
            raise UserError(f"fixed_sparse: expected 1 <= summary <= stride, got summary {summary} and stride {stride}")
        self.stride, self.summary = stride, summary
        half = config.heads // 2
        self.block_heads, self.summary_heads = slice(half), slice(half, None)

    def visible(self, head: int, i: int, j: int) -> bool:
        """Return True where query i of ``head`` may attend to key j."""
        in_block = j <= i and j // self.stride == i // self.stride  # A1
        in_summary = j <= i and j % self.stride >= self.stride - self.summary  # A2
        return in_block if head < self.heads // 2 else in_summary

    @classmethod
    def recommended_options(cls, length: int) -> dict[str, Any]:
        return {"stride": max(2, isqrt(length)), "summary": 1}

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        if setting.heads < 2:
            return "requires at least two heads: half of them for the block, half for the summaries"
        return super().unsupported(setting)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        scale = q.shape[-1] ** -0.5
        q, k = self.rotate(q, k)
        sizes = [self.heads // 2, self.heads - self.heads // 2]
        (q1, q2), (k1, k2), (v1, v2) = (z.split(sizes, dim=1) for z in (q, k, v))  # heads of A1, heads of A2
        l, c = self.stride, self.summary  # noqa: E741 the paper's letters
        block = block_attention(q1, k1, v1, mask, block_size=l, options=self.group_options(self.block_heads, scale=scale))
        summary = summary_attention(
            q2, k2, v2, mask, block_size=l, summary=c, options=self.group_options(self.summary_heads, scale=scale)
        )
        return self.out(merge_grid(torch.cat([block, summary], dim=3), x.shape[1]))
