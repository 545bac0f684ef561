"""Building blocks that are independent of the attention backend, and the conventions that all of attnlab follows.

Letters: ``b`` batch, ``h`` heads, ``t`` query positions, ``s`` key positions, ``d`` head width, ``dim`` model width.
Masks are boolean, True = may be attended to. A window includes the token itself. Ignored targets are -100. Where keys cover
more positions than queries (memory before a segment), both end at the same position: query ``i`` is at position
``i + s - t``.

Dropout (Srivastava et al. 2014) takes few random bits on a CPU. PyTorch draws 53 bits for each factor on a CPU that is not
Intel's, which takes longer than a layer norm. Here each factor takes 16: probabilities are rounded to multiples of 2^-16, and
factors scaled by the rounded ones, so that expectations are exact.
"""

import math
from types import MappingProxyType

import torch
from torch import Tensor, nn

LEVELS = 1 << 16  # that an int16 has
FACTORS_PER_DRAW = 4  # int16 in an int64

IGNORED = -100


def dropout_factors(x: Tensor, p: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Return a factor for each element of x, of its shape and dtype: 0 with probability p, else 1 / (1 - p).

    Args:
        x: on a CPU.
        p: less than 1; rounded to a multiple of 2^-16.
        generator: draws the numbers; default: the global one.
    """
    dropped = min(round(p * LEVELS), LEVELS - 1)
    draws = torch.empty(-(-x.numel() // FACTORS_PER_DRAW), dtype=torch.int64)
    draws.random_(-(1 << 63), None, generator=generator)  # all 64 bits; without bounds, the sign would be 0
    levels = draws.view(torch.int16)[: x.numel()].view(x.shape)
    kept = levels.ge_(dropped - LEVELS // 2)  # in place as int16: a comparison to bool is several times slower
    scale = torch.tensor(LEVELS / (LEVELS - dropped), dtype=x.dtype)
    if x.dtype.itemsize == kept.dtype.itemsize:
        return kept.mul_(int(scale.view(torch.int16))).view(x.dtype)  # 1 -> the bits of scale, 0 -> those of 0
    return kept.to(x.dtype).mul_(scale)


class Dropout(nn.Dropout):
    """``nn.Dropout`` that is faster on a CPU. On other devices, and when it is compiled, it is ``nn.Dropout``."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x with features set to zero in training, and the others scaled, with the shape and dtype of x."""
        if not self.training or not 0 < self.p < 1 or x.device.type != "cpu" or torch.compiler.is_compiling():
            return super().forward(x)
        return x * dropout_factors(x, self.p)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Split the last dimension of x (b, t, h d) into ``heads``: (b, h, t, d)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Concatenate the heads of x (b, h, t, d): (b, t, h d)."""
    return x.transpose(1, 2).flatten(2)


def expand_heads(x: Tensor, heads: int) -> Tensor:
    """Repeat each head of x (b, g, s, d) for ``heads`` / g consecutive heads: (b, heads, s, d).

    Raises:
        ValueError: g does not divide ``heads``.
    """
    if x.shape[1] == heads:
        return x
    if heads % x.shape[1]:
        raise ValueError(f"expected a number of heads of keys and values that divides {heads}, got {x.shape[1]}")
    return x.unsqueeze(2).expand(-1, -1, heads // x.shape[1], -1, -1).flatten(1, 2)


def causal_mask(t: int, s: int, *, device: torch.device | None = None) -> Tensor:
    """Return the causal mask (t, s): True where query ``i`` may attend to key ``j``, that is ``j <= i + s - t``.

    Examples:
        >>> causal_mask(2, 3).int()
        tensor([[1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
    """
    return torch.ones(t, s, dtype=torch.bool, device=device).tril(s - t)


def relative_distance(t: int, s: int, *, device: torch.device | None = None) -> Tensor:
    """Return the distance (t, s) of key ``j`` behind query ``i``: ``i + (s - t) - j``; negative for keys ahead.

    Examples:
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
        (..., t, s), a view when the rows of ``x`` are contiguous. Entries for distances that ``x`` does not hold come from a
        neighboring row: these are keys that a causal mask hides.

    Examples:
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


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate neighboring pairs of features of x (..., d) by the angles with these cosines and sines (..., d/2)."""
    x1, x2 = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([x1 * cos - x2 * sin, x1 * sin + x2 * cos], dim=-1).flatten(-2)


class Projections(nn.Module):
    """Project to queries, keys and values of every head, in one matrix product if all come from the same sequence.

    When there are fewer heads of keys and values than of queries, each of them serves several consecutive heads of queries:
    grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245), or multi-query attention when there is only one.
    ``Variant.attend`` accepts the result.

    Args:
        dim: model width.
        width: total width of the heads of queries.
        heads: number of heads of queries.
        kv_heads: number of heads of keys and values, a divisor of ``heads``; None: ``heads``.
        bias: True for a bias in each projection (``AttentionConfig.bias``).

    Raises:
        ValueError: ``heads`` does not divide ``width``, or ``kv_heads`` does not divide ``heads``.

    Examples:
        >>> import torch
        >>> from attnlab.variants import Projections
        >>> q, k, v = Projections(12, 12, heads=6, kv_heads=2)(torch.zeros(3, 5, 12), None)
        >>> q.shape, k.shape, v.shape
        (torch.Size([3, 6, 5, 2]), torch.Size([3, 2, 5, 2]), torch.Size([3, 2, 5, 2]))
    """

    parameter_roles = MappingProxyType({"weight": "matrix"})

    def __init__(self, dim: int, width: int, *, heads: int, kv_heads: int | None = None, bias: bool = False) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        if heads < 1 or width % heads:
            raise ValueError(f"Projections: expected a width that {heads} heads divide, got {width}")
        if kv_heads < 1 or heads % kv_heads:
            raise ValueError(f"Projections: expected kv_heads that divide {heads} heads, got {kv_heads}")
        self.heads, self.kv_heads = heads, kv_heads
        kv_width = width // heads * kv_heads
        self.widths = (width, kv_width, kv_width)
        # (widths, dim): W_Q, W_K, W_V. Each is drawn by itself, so that models of other widths start each from the same values.
        layers = [nn.Linear(dim, rows, bias=bias) for rows in self.widths]
        self.weight = nn.Parameter(torch.empty(sum(self.widths), dim))
        self.bias = nn.Parameter(torch.empty(sum(self.widths))) if bias else None
        for name, joined in self.named_parameters():  # torch.cat imports the compiler on the meta device: 2 s of each plan
            for part, layer in zip(joined.data.split(self.widths), layers, strict=True):
                part.copy_(getattr(layer, name).data)

    def forward(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Project x to queries, and ``context`` to keys and values.

        Args:
            x: (b, t, dim).
            context: (b, s, dim), or None for x itself.

        Returns:
            q (b, h, t, d), k and v (b, kv_heads, s, d).
        """
        if context is None:
            q, k, v = nn.functional.linear(x, self.weight, self.bias).split(self.widths, dim=-1)
        else:
            w_q, w_kv = self.weight.tensor_split([self.widths[0]])
            b_q, b_kv = (None, None) if self.bias is None else self.bias.tensor_split([self.widths[0]])
            q = nn.functional.linear(x, w_q, b_q)
            k, v = nn.functional.linear(context, w_kv, b_kv).chunk(2, dim=-1)
        return split_heads(q, self.heads), split_heads(k, self.kv_heads), split_heads(v, self.kv_heads)


class NarrowProjections(nn.Module):
    """Project each head's slice of the features to its queries, keys and values, by matrices that all heads share.

    Args:
        head_dim: width of a head.
        heads: number of heads.
        bias: True for a bias in each projection.
    """

    def __init__(self, head_dim: int, *, heads: int, bias: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(head_dim, head_dim, bias=bias)
        self.key = nn.Linear(head_dim, head_dim, bias=bias)
        self.value = nn.Linear(head_dim, head_dim, bias=bias)

    def forward(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Project x (b, t, h d) to q (b, h, t, d), and context (b, s, h d), by default x, to k and v (b, h, s, d)."""
        x = split_heads(x, self.heads)
        s = x if context is None else split_heads(context, self.heads)
        return self.query(x), self.key(s), self.value(s)


class DynamicTanh(nn.Module):
    """DyT: gamma * tanh(alpha x) + beta for each feature, instead of a norm; alpha is one learned scalar, 0.5 at first.

    Zhu et al. 2025, "Transformers without Normalization", arXiv:2503.10622, section 4. Code to paper: ``weight`` gamma,
    ``bias`` beta, which ``bias=False`` removes.

    Args:
        dim: width of the input.
        bias: False for no beta.
    """

    def __init__(self, dim: int, *, bias: bool = True) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(0.5))
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Transform x (..., dim): (..., dim)."""
        y = self.weight * torch.tanh(self.alpha * x)
        return y if self.bias is None else y + self.bias


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


def pool_last(x: Tensor, mask: Tensor | None) -> Tensor:
    """Take the last position of x (b, t, dim) where ``mask`` (b, t) is True: (b, dim); the first one for a row without any."""
    if mask is None:
        return x[:, -1]
    last = (mask * torch.arange(mask.shape[1], device=mask.device)).amax(1)
    return x[torch.arange(len(x), device=x.device), last]


POOLS = {"max": pool_max, "mean": pool_mean, "last": pool_last}  # (b, t, dim) and a mask (b, t) -> (b, dim)
