"""Fixed sparse attention: Sparse Transformers (Child et al. 2019, section 4.2), by exact decomposition.

With blocks of length l whose last c positions are summaries, query i attends in half of the heads to its own block and in the
other half to every summary so far:

    A1_i = {j <= i : floor(j / l) = floor(i / l)}         A2_i = {j <= i : j mod l >= l - c}

A query before the first summary has an empty A2: those heads give zeros there. Neither part builds a t x t matrix. Position
schemes that act by bias are asked for it in pieces: the block; and for each place p of a query in its block and e of a summary
in its own, the distances (a - m) l + p - e of blocks a and m. The pattern is the paper's; splitting it over heads is its
"multi-head" form, and the projections are those of ``dense``.

Any length, as in ``strided_sparse``. Cost: time and saved memory O(t (l + c t / l) dim).

Code to paper: ``stride`` l; ``summary`` c; ``block`` attends over A1, ``summaries`` over A2.
"""

from math import isqrt, sqrt
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from attnlab.errors import UserError
from attnlab.nn.attention import BACKENDS, attend
from attnlab.nn.grouping import by_block, by_column, from_block, from_grid, grid
from attnlab.variants import AttentionConfig, Projections, Variant


class FixedSparse(Variant):
    """The own block in half of the heads, the summary positions of all blocks in the others.

    Args:
        stride: l, the length of a block.
        summary: c, how many positions at the end of a block everyone may look at, at most ``stride``.
    """

    roles = frozenset({"causal"})
    blockwise_bias = True
    backends = BACKENDS
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
        self.project = Projections(config.dim, config.dim, heads=config.heads)
        self.out = nn.Linear(config.dim, config.dim, bias=False)

    @classmethod
    def recommended_options(cls, length: int) -> dict[str, Any]:
        return {"stride": max(2, isqrt(length)), "summary": 1}

    @classmethod
    def unsupported(cls, *, heads: int, **config: Any) -> str | None:
        if heads < 2:
            return "requires at least two heads: half of them for the block, half for the summaries"
        return super().unsupported(heads=heads, **config)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        q, k = self.rotated(q, k)
        sizes = [self.heads // 2, self.heads - self.heads // 2]
        (q1, q2), (k1, k2), (v1, v2) = (z.split(sizes, dim=1) for z in (q, k, v))  # the heads of A1 and those of A2
        y = [self.block(q1, k1, v1, mask), self.summaries(q2, k2, v2, mask)]
        return self.out(from_grid(torch.cat(y, dim=3), x.shape[1]))

    def block(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """(b, n, l, h, d): attention over A1, block by block."""
        b, t = q.shape[0], q.shape[2]
        q, k, v = (by_block(z, self.stride).flatten(0, 1) for z in (q, k, v))  # (b n, h, l, d)
        seen = None
        if mask is not None:
            seen = by_block(mask[:, None, :, None], self.stride).flatten(0, 1).transpose(-2, -1)  # (b n, 1, 1, l)
        bias = self.logit_bias(q, k, scale=1 / sqrt(q.shape[-1]), heads=self.block_heads)
        return from_block(self._attend(q, k, v, seen, bias, causal=True, total_length=t).unflatten(0, (b, -1)))

    def summaries(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """(b, n, l, h, d): attention over A2."""
        t, l, c = q.shape[2], self.stride, self.summary  # noqa: E741 the paper's letters
        n = t // l * c + max(0, t % l - (l - c))  # how many there are, those of an incomplete last block included
        if n == 0:
            return grid(torch.zeros_like(q), l)
        ends = torch.arange(l - c, l, device=q.device)
        j = (torch.arange(0, t, l, device=q.device)[:, None] + ends).flatten()[:n]  # where they stand
        attn_mask = j <= torch.arange(t, device=q.device)[:, None]  # (t, c n)
        if mask is not None:
            attn_mask = attn_mask & mask[:, None, None, j]
        bias = self._summary_bias(q, k, n)
        return grid(self._attend(q, k[:, :, j], v[:, :, j], attn_mask, bias, causal=False, total_length=t), l)

    def _summary_bias(self, q: Tensor, k: Tensor, n: int) -> Tensor | None:
        """([b,] h, t, n), from a piece for every place p of a query and e of a summary, in which blocks stand l apart."""
        if self.position is None or self.position.hook != "bias":
            return None  # before anything is laid out anew
        t, l, c = q.shape[2], self.stride, self.summary  # noqa: E741
        q, k = by_column(q, l).unsqueeze(2), by_column(k, l)[:, l - c :].unsqueeze(1)  # (b, p, 1, h, a, d), (b, 1, e, h, m, d)
        p, e = torch.arange(l, device=q.device)[:, None], torch.arange(l - c, l, device=q.device)
        offset = (p - e)[..., None, None, None]
        bias = self.position.bias(q, k, scale=1 / sqrt(q.shape[-1]), heads=self.summary_heads, step=l, offset=offset)
        bias = bias.expand(*bias.shape[:-5], l, c, *q.shape[-3:-1], k.shape[-2])  # where it was only broadcastable to this
        return rearrange(bias, "... p e h a m -> ... h (a p) (m e)")[..., :t, :n]

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, bias: Tensor | None, *, causal: bool, total_length: int
    ) -> Tensor:
        return attend(
            q,
            k,
            v,
            backend=self.backend,
            causal=causal,
            attn_mask=attn_mask,
            bias=bias,
            dropout=self.dropout if self.training else 0.0,
            total_length=total_length,
        )
