"""Strided sparse attention: a local window in half of the heads, every l-th position in the others.

Child et al. 2019, arXiv:1904.10509, "Generating Long Sequences with Sparse Transformers", section 4.2.

With stride l, query i attends in half of the heads to a window and in the other half to its column:

    A1_i = {max(0, i - l), ..., i}                A2_i = {j <= i : (i - j) mod l = 0}

``StridedSparse.visible`` states this mask; ``forward`` computes it without a (t, t) matrix (``attnlab.nn.sparse``): the window
in blocks of l, each with the block before it; the columns by folding the sequence (n l) -> l n and attending causally within
each residue class. Position schemes that act by bias compute it for each of these parts.

Departures from the paper: none in the pattern; its heads are split between A1 and A2, which is the paper's "multi-head" form,
and the projections are as in ``dense``. The paper adds embeddings of a position's row and column; here ``position`` is an
axis. The sequence may have any length: padding to a multiple of l follows every real
position, and the causal mask hides it.
Cost: time and saved memory O(t (l + t/l) dim), least at l near sqrt(t). The paper found this pattern suited to images, not to
text (enwik8 bits per byte: dense 1.00, fixed 0.99, strided 1.13).
Glossary: ``stride`` l; ``window_heads`` attend over A1, ``column_heads`` over A2.
"""

from math import isqrt
from typing import Any

import torch
from torch import Tensor

from attnlab.errors import UserError
from attnlab.nn.sparse import merge_grid, sliding_window_attention, strided_attention
from attnlab.variants.base import AttentionConfig, Setting
from attnlab.variants.dense import Dense


class StridedSparse(Dense):
    """A local window in half of the heads, every l-th position in the others.

    Args:
        stride: l, the reach of the window and the distance of the positions of a column.

    Raises:
        UserError: ``stride`` is less than 1.
    """

    roles = frozenset({"causal"})
    backends = ("reference", "blocked", "sdpa", "xformers")
    blockwise_bias = True
    supports_attention_bias = True
    supports_memory = False
    permutation_equivariant = False
    cost_exponent = 1.5
    paper = "Child et al. 2019"

    def __init__(self, config: AttentionConfig, *, stride: int = 16) -> None:
        super().__init__(config)
        if stride < 1:
            raise UserError(f"strided_sparse: expected a stride of at least 1, got {stride}")
        self.stride = stride
        half = config.heads // 2
        self.window_heads, self.column_heads = slice(half), slice(half, None)

    def visible(self, head: int, i: int, j: int) -> bool:
        """Return True where query i of ``head`` may attend to key j."""
        in_window = 0 <= i - j <= self.stride  # A1
        in_column = j <= i and (i - j) % self.stride == 0  # A2
        return in_window if head < self.heads // 2 else in_column

    @classmethod
    def recommended_options(cls, length: int) -> dict[str, Any]:
        return {"stride": max(2, isqrt(length))}

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        if setting.heads < 2:
            return "requires at least two heads: half of them local, half strided"
        return super().unsupported(setting)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        scale = q.shape[-1] ** -0.5
        q, k = self.rotate(q, k)
        sizes = [self.heads // 2, self.heads - self.heads // 2]
        (q1, q2), (k1, k2), (v1, v2) = (z.split(sizes, dim=1) for z in (q, k, v))  # heads of A1, heads of A2
        window = sliding_window_attention(
            q1, k1, v1, mask, reach=self.stride, options=self.group_options(self.window_heads, scale=scale)
        )
        column = strided_attention(
            q2, k2, v2, mask, stride=self.stride, options=self.group_options(self.column_heads, scale=scale)
        )
        return self.out(merge_grid(torch.cat([window, column], dim=3), x.shape[1]))
