"""Building blocks that say nothing about attention, and the conventions that all of attnlab keeps.

Letters: ``b`` batch, ``h`` heads, ``t`` query positions, ``s`` key positions, ``d`` head width, ``dim`` model width.
Masks are boolean, True = may be attended. A window counts the token itself. Ignored targets are -100. Where keys run
over more positions than queries (memory before a segment), both end at the same position: query ``i`` stands at
position ``i + s - t``.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

IGNORED = -100


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(b, t, h*d) -> (b, h, t, d)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(b, h, t, d) -> (b, t, h*d)."""
    return x.transpose(1, 2).flatten(2)


def causal_mask(t: int, s: int, *, device: torch.device | None = None) -> Tensor:
    """(t, s), True where query ``i`` may see key ``j``: ``j <= i + s - t``."""
    return torch.ones(t, s, dtype=torch.bool, device=device).tril(s - t)


def relative_distance(t: int, s: int, *, device: torch.device | None = None) -> Tensor:
    """(t, s) of how far key ``j`` lies behind query ``i``: ``i + (s - t) - j``; negative for keys ahead."""
    i = torch.arange(s - t, s, device=device)
    return i[:, None] - torch.arange(s, device=device)


def shift(x: Tensor, s: int) -> Tensor:
    """From columns by distance to columns by key.

    Column ``c`` of ``x`` (..., t, n) holds the distance ``s - 1 - c``. Key ``j`` of query ``i`` lies at the distance
    ``i + s - t - j``, hence in column ``j + t - 1 - i``: one place further left on every row, which is the same memory read
    with rows of ``n - 1``.

    Returns:
        (..., t, s), a view where the rows of ``x`` follow each other in memory. Needs ``n > s``. Entries whose distance ``x``
        does not hold come from a neighbouring row: keys that a causal mask hides.
    """
    t, n = x.shape[-2:]
    rows = x.flatten(-2)[..., t - 1 : t * n - 1]
    return rows.unflatten(-1, (t, n - 1))[..., :s]


def sinusoids(positions: Tensor, dim: int) -> Tensor:
    """Sines and cosines of geometrically spaced frequencies (Vaswani et al. 2017, section 3.5).

    Args:
        positions: (n,) real positions; they may be negative.
        dim: the width, even or odd.

    Returns:
        (n, dim) in float64: column 2i holds sin(p / 10000^(2i/dim)), column 2i + 1 the cosine of the same angle.
    """
    angle = angles(positions, dim)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :dim]


def angles(positions: Tensor, dim: int, *, base: float = 10_000.0) -> Tensor:
    """(n,) positions -> (n, ceil(dim / 2)) of p / base^(2i/dim).

    In float64 whatever the model computes in: at position 10,000 a float32 angle is already wrong in its fourth digit.
    """
    i = torch.arange((dim + 1) // 2, device=positions.device, dtype=torch.float64)
    return positions.double()[:, None] * torch.exp(i * (-2 * math.log(base) / dim))


class FeedForward(nn.Module):
    """Position-wise feed-forward network: widen by ``multiple``, apply the activation, come back.

    Args:
        multiple: inner width over ``dim``; the inner width is rounded to a whole number.
        activation: ``"relu"`` or ``"gelu"``.
    """

    def __init__(self, dim: int, multiple: float, *, activation: str, dropout: float) -> None:
        super().__init__()
        inner = max(1, round(dim * multiple))
        self.widen = nn.Linear(dim, inner)
        self.narrow = nn.Linear(inner, dim)
        self.activation = {"relu": F.relu, "gelu": F.gelu}[activation]
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(b, t, dim) -> (b, t, dim)."""
        return self.narrow(self.dropout(self.activation(self.widen(x))))


def pool_mean(x: Tensor, mask: Tensor | None) -> Tensor:
    """(b, t, dim) -> (b, dim): the mean over real tokens; zero for a row that has none."""
    if mask is None:
        return x.mean(1)
    weight = mask.unsqueeze(-1).to(x.dtype)
    return (x * weight).sum(1) / weight.sum(1).clamp(min=1)


def pool_max(x: Tensor, mask: Tensor | None) -> Tensor:
    """(b, t, dim) -> (b, dim): the largest value over real tokens; zero for a row that has none."""
    if mask is None:
        return x.amax(1)
    largest = x.masked_fill(~mask.unsqueeze(-1), float("-inf")).amax(1)
    return largest.masked_fill(~mask.any(1, keepdim=True), 0.0)
