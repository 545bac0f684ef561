"""Relative positions of T5: a learned bias for each bucket of distances.

Raffel et al. 2020, arXiv:1910.10683, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer"; the
buckets are as in the authors' code.

    bias_ij = B_h[bucket(i - j)]

with a table B of one number for each head h and bucket. With N buckets for keys at or behind the query, and e = N / 2,

    bucket(n) = n                                                      n < e
    bucket(n) = min(N - 1, e + floor((N - e) log(n / e) / log(m / e)))  n >= e

so that the first half of the buckets hold one distance each, the others grow in proportion to the distance, and the last one
holds every distance from about the maximum m on. In a causal role N is ``buckets``. In a bidirectional role N is half of it,
and keys ahead have N separate buckets, N + bucket(j - i).

Departures from the paper: the logits are scaled by 1 / sqrt(d) (T5 moves this factor into the initialization of W_Q), and each
block has a separate table (in T5, the blocks of a stack share one).
Cost: one (h, t, s) tensor in addition to the logits; h buckets parameters for each block.
Glossary: ``table`` B; ``buckets`` N, or 2 N; ``max_distance`` m; ``starts`` the smallest distance of bucket 1, 2, ...
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.nn.layers import relative_distance
from attnlab.positions.base import Position, PositionConfig


class T5(Position):
    """A learned bias for each head and bucket of distances. It supports any length: distant keys share the last bucket.

    Args:
        buckets: number of buckets, including the buckets of keys ahead.
        max_distance: distance from which on all keys are in the last bucket.
    """

    hook = "bias"
    relative = True
    paper = "Raffel et al. 2020"

    def __init__(self, config: PositionConfig, *, buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__(config)
        self.behind = buckets if config.role == "causal" else buckets // 2
        self.table = nn.Parameter(torch.randn(buckets, config.heads) * config.dim**-0.5)  # T5's standard deviation
        self.register_buffer("starts", torch.tensor(bucket_starts(self.behind, max_distance)), persistent=False)
        self.starts: Tensor

    @classmethod
    def unsupported(cls, config: PositionConfig, *, options: Mapping[str, Any] = MappingProxyType({})) -> str | None:
        buckets, max_distance = options.get("buckets", 32), options.get("max_distance", 128)
        if config.role == "causal" and buckets < 2:
            return f"expected at least 2 buckets, got {buckets}"
        if config.role != "causal" and (buckets < 4 or buckets % 2):
            return f"expected an even number of at least 4 buckets, half of them for keys ahead, got {buckets}"
        exact = buckets // (2 if config.role == "causal" else 4)
        if max_distance <= exact:
            return f"expected a max_distance above {exact}, the number of buckets of one distance each, got {max_distance}"
        return super().unsupported(config, options=options)

    def bias(
        self, q: Tensor, k: Tensor, *, scale: float, heads: slice = slice(None), step: int = 1, offset: Tensor | int = 0
    ) -> Tensor:
        distance = relative_distance(q.shape[-2], k.shape[-2], device=q.device) * step + offset
        bucket = torch.bucketize(distance.abs(), self.starts, right=True)
        if self.config.role != "causal":
            bucket = bucket + self.behind * (distance < 0)
        bias = F.embedding(bucket, self.table[:, heads])  # ([..., 1,] t, s, h)
        return bias.movedim(-1, 0) if bias.dim() == 3 else bias.movedim(-1, -4).squeeze(-3)


def bucket_starts(buckets: int, max_distance: int) -> list[int]:
    """Return the smallest distance of each bucket but the first, in exact arithmetic.

    Distance n reaches the bucket e + i, of N buckets of which e hold one distance each, if

        (N - e) log(n / e) / log(m / e) >= i,  that is  n^(N-e) >= m^i e^(N-e-i)

    Examples:
        >>> bucket_starts(8, 16)
        [1, 2, 3, 4, 6, 8, 12]
    """
    exact = buckets // 2
    wide = buckets - exact
    starts = list(range(1, exact + 1))
    for i in range(1, wide):
        smallest = starts[-1]
        while smallest**wide < max_distance**i * exact ** (wide - i):
            smallest += 1
        starts.append(smallest)
    return starts
