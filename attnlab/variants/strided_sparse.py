"""Strided sparse attention: Sparse Transformers (Child et al. 2019, section 4.2), by exact decomposition.

With stride l, query i attends in half of the heads to a local window and in the other half to its column:

    A1_i = {max(0, i - l), ..., i}                A2_i = {j <= i : (i - j) mod l = 0}

Neither builds a t x t matrix. The window is computed in blocks of l, each with the block before it; the columns by folding
the sequence (n l) -> l n and attending causally within each residue class. Position schemes that act by bias are asked for
the bias of these pieces. The pattern is the paper's; splitting it over heads is its "multi-head" form, and the projections are
those of ``dense``.

Any length: the sequence is filled up to a multiple of l with positions that come after every real one, which causality hides.
Cost: time and saved memory O(t (l + t/l) dim), least at l near sqrt(t). The paper found this pattern suited to images, not to
text (enwik8 bits per byte: dense 1.00, fixed 0.99, strided 1.13).

Code to paper: ``stride`` l; ``local`` attends over A1, ``column`` over A2.
"""

from math import isqrt, sqrt
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.errors import UserError
from attnlab.nn.attention import BACKENDS, attend
from attnlab.nn.grouping import by_block, by_column, from_block, from_column, from_grid, grid
from attnlab.variants import AttentionConfig, Projections, Variant


class StridedSparse(Variant):
    """A local window in half of the heads, every l-th position in the others.

    Args:
        stride: l, the window's reach and the columns' distance.
    """

    roles = frozenset({"causal"})
    blockwise_bias = True
    backends = BACKENDS
    permutation_equivariant = False
    cost_exponent = 1.5
    paper = "Child et al. 2019"

    def __init__(self, config: AttentionConfig, *, stride: int = 16) -> None:
        super().__init__(config)
        if stride < 1:
            raise UserError(f"strided_sparse: expected a stride of at least 1, got {stride}")
        self.stride = stride
        half = config.heads // 2
        self.local_heads, self.column_heads = slice(half), slice(half, None)
        self.project = Projections(config.dim, config.dim, heads=config.heads)
        self.out = nn.Linear(config.dim, config.dim, bias=False)

    @classmethod
    def recommended_options(cls, length: int) -> dict[str, Any]:
        return {"stride": max(2, isqrt(length))}

    @classmethod
    def unsupported(cls, *, heads: int, **config: Any) -> str | None:
        if heads < 2:
            return "requires at least two heads: half of them local, half strided"
        return super().unsupported(heads=heads, **config)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        q, k = self.rotated(q, k)
        sizes = [self.heads // 2, self.heads - self.heads // 2]
        (q1, q2), (k1, k2), (v1, v2) = (z.split(sizes, dim=1) for z in (q, k, v))  # the heads of A1 and those of A2
        y = [self.local(q1, k1, v1, mask), self.column(q2, k2, v2, mask)]
        return self.out(from_grid(torch.cat(y, dim=3), x.shape[1]))

    def local(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """(b, n, l, h, d): attention over A1, block by block, each with the block before it."""
        l = self.stride  # noqa: E741
        biased = self.position is not None and self.position.hook == "bias"
        if self.backend == "xformers" and mask is None and not biased:  # it has kernels for just this
            dropout = self.dropout if self.training else 0.0
            return grid(attend(q, k, v, backend=self.backend, causal=True, window=l + 1, dropout=dropout), l)
        q, k, v = (by_block(z, l) for z in (q, k, v))  # (b, n, h, l, d)
        seen = None if mask is None else by_block(mask[:, None, :, None], l)[..., 0]  # (b, n, 1, l)
        seen_first = None if seen is None else seen[:, :1]
        first = self._attend(q[:, :1], k[:, :1], v[:, :1], seen_first, causal=True, heads=self.local_heads)
        if q.shape[1] == 1:
            return from_block(first)
        k, v = (torch.cat([z[:, :-1], z[:, 1:]], dim=3) for z in (k, v))  # (b, n-1, h, 2l, d): a block and the one before
        within = self._within(q.device)
        if seen is not None:
            within = within & torch.cat([seen[:, :-1], seen[:, 1:]], dim=3).unsqueeze(-2)
        rest = self._attend(q[:, 1:], k, v, within, causal=False, heads=self.local_heads)
        return from_block(torch.cat([first, rest], dim=1))

    def _within(self, device: torch.device) -> Tensor:
        """(l, 2l): column c of two blocks lies l + p - c behind query p of the second: within reach while p <= c <= p + l."""
        l = self.stride  # noqa: E741
        p, c = torch.arange(l, device=device)[:, None], torch.arange(2 * l, device=device)
        return (p <= c) & (c <= p + l)

    def column(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """(b, n, l, h, d): attention over A2, residue class by residue class."""
        l = self.stride  # noqa: E741
        seen = None if mask is None else by_column(mask[:, None, :, None], l)[..., 0]  # (b, l, 1, n)
        q, k, v = (by_column(z, l) for z in (q, k, v))  # (b, l, h, n, d)
        return from_column(self._attend(q, k, v, seen, causal=True, heads=self.column_heads, step=l))

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, *, causal: bool, heads: slice, step: int = 1
    ) -> Tensor:
        """Attention in each of n groups: q (b, n, h, t, d) and so on; allowed (t, s) or (b, n, 1, [t,] s)."""
        b, n, _, t, d = q.shape
        scale = 1 / sqrt(d)
        q, k, v = (z.flatten(0, 1) for z in (q, k, v))
        if attn_mask is not None and attn_mask.dim() == 4:
            attn_mask = attn_mask.unsqueeze(-2)
        y = attend(
            q,
            k,
            v,
            backend=self.backend,
            causal=causal,
            attn_mask=attn_mask if attn_mask is None or attn_mask.dim() == 2 else attn_mask.flatten(0, 1),
            bias=self.logit_bias(q, k, scale=scale, heads=heads, step=step),
            dropout=self.dropout if self.training else 0.0,
            scale=scale,
            total_length=n * t,
        )
        return y.unflatten(0, (b, n))
