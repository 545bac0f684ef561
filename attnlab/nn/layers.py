"""Building blocks that are independent of the attention backend, and the conventions that all of attnlab follows.

Letters: ``b`` batch, ``h`` heads, ``t`` query positions, ``s`` key positions, ``d`` head width, ``dim`` model width.
Masks are boolean, True = may be attended to. A window includes the token itself. Ignored targets are -100. Where keys cover
more positions than queries (memory before a segment), both end at the same position: query ``i`` is at position
``i + s - t``.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

IGNORED = -100


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Split the last dimension of x (b, t, h d) into ``heads``: (b, h, t, d)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Concatenate the heads of x (b, h, t, d): (b, t, h d)."""
    return x.transpose(1, 2).flatten(2)


def causal_mask(t: int, s: int, *, device: torch.device | None = None) -> Tensor:
    """Return the causal mask (t, s): True where query ``i`` may attend to key ``j``, that is ``j <= i + s - t``.

    Example:
        >>> causal_mask(2, 3).int()
        tensor([[1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
    """
    return torch.ones(t, s, dtype=torch.bool, device=device).tril(s - t)


def relative_distance(t: int, s: int, *, device: torch.device | None = None) -> Tensor:
    """Return the distance (t, s) of key ``j`` behind query ``i``: ``i + (s - t) - j``; negative for keys ahead.

    Example:
        >>> relative_distance(2, 3)
        tensor([[ 1,  0, -1],
                [ 2,  1,  0]])
    """
    i = torch.arange(s - t, s, device=device)
    return i[:, None] - torch.arange(s, device=device)


def relative_shift(x: Tensor, s: int) -> Tensor:
    """Turn columns by distance into columns by key: the shift of Transformer-XL (Dai et al. 2019, appendix B).

    Column ``c`` of ``x`` (..., t, n) holds the distance ``s - 1 - c``. Key ``j`` of query ``i`` is at the distance
    ``i + s - t - j``, which is column ``j + t - 1 - i``: each row starts one place further left than the row above, which is
    the same memory read with rows of length ``n - 1``.

    Args:
        x: (..., t, n) with ``n > s``.
        s: number of keys.

    Returns:
        (..., t, s), a view where the rows of ``x`` are contiguous. Entries whose distance ``x`` does not hold come from a
        neighboring row: these are keys that a causal mask hides.

    Example:
        >>> relative_shift(torch.tensor([[2, 1, 0, -1], [2, 1, 0, -1]]), 3)  # t = 2, s = 3
        tensor([[ 1,  0, -1],
                [ 2,  1,  0]])
    """
    t, n = x.shape[-2:]
    rows = x.flatten(-2)[..., t - 1 : t * n - 1]
    return rows.unflatten(-1, (t, n - 1))[..., :s]


def sinusoids(positions: Tensor, dim: int) -> Tensor:
    """Compute sines and cosines of geometrically spaced frequencies (Vaswani et al. 2017, section 3.5).

    Args:
        positions: (n,) real positions, which may be negative.
        dim: width, even or odd.

    Returns:
        (n, dim) in float64: column 2i holds sin(p / 10000^(2i/dim)), column 2i + 1 the cosine of the same angle.
    """
    angle = angles(positions, dim)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :dim]


def angles(positions: Tensor, dim: int, *, base: float = 10_000.0) -> Tensor:
    """Compute the angles p / base^(2i/dim) of positions p (n,): (n, ceil(dim / 2)).

    Always in float64: at position 10,000, a float32 angle is already wrong in its fourth digit.
    """
    i = torch.arange((dim + 1) // 2, device=positions.device, dtype=torch.float64)
    return positions.double()[:, None] * torch.exp(i * (-2 * math.log(base) / dim))


class FeedForward(nn.Module):
    """Position-wise feed-forward network (Vaswani et al. 2017, section 3.3): two linear layers around an activation.

    Args:
        dim: width of the input and of the output.
        multiple: ratio of the inner width to ``dim``; the inner width is rounded to a whole number.
        activation: ``"relu"`` or ``"gelu"``.
        dropout: probability of dropping an inner feature.
    """

    def __init__(self, dim: int, multiple: float, *, activation: str, dropout: float) -> None:
        super().__init__()
        inner = max(1, round(dim * multiple))
        self.widen = nn.Linear(dim, inner)
        self.narrow = nn.Linear(inner, dim)
        self.activation = {"relu": F.relu, "gelu": F.gelu}[activation]
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position of x (b, t, dim) by itself: (b, t, dim)."""
        return self.narrow(self.dropout(self.activation(self.widen(x))))


def pool_mean(x: Tensor, mask: Tensor | None) -> Tensor:
    """Average x (b, t, dim) over the tokens where ``mask`` (b, t) is True: (b, dim); zero for a row without any."""
    if mask is None:
        return x.mean(1)
    weight = mask.unsqueeze(-1).to(x.dtype)
    return (x * weight).sum(1) / weight.sum(1).clamp(min=1)


def pool_max(x: Tensor, mask: Tensor | None) -> Tensor:
    """Take the maximum of x (b, t, dim) over the tokens where ``mask`` (b, t) is True: (b, dim); zero for a row without any."""
    if mask is None:
        return x.amax(1)
    largest = x.masked_fill(~mask.unsqueeze(-1), float("-inf")).amax(1)
    return largest.masked_fill(~mask.any(1, keepdim=True), 0.0)
