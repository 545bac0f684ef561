"""Log-linear attention: a state for each of log t ranges of earlier positions, as in a Fenwick tree.

Guo et al. 2025, arXiv:2506.04761, "Log-Linear Attention"; applied to ``ssd``, as the paper's Log-Linear Mamba-2.

    H_t^(l)      = sum_(j in R_t^(l)) exp(-(Delta_(j+1) + ... + Delta_t) A) Delta_j B_j X_j^T
    lambda_t     = softplus(L * W_lambda x_t)                                 one number for each level l and head
    Y_t          = sum_l lambda_t^(l) (H_t^(l))^T C_t + D X_t

R_t^(0) = {t}. The set bits of t, which counts from 0, divide the positions before it: the highest bit 2^m stands for the first
2^m positions, at level m + 1, the next bit for those behind them, and so on. Near positions thus share a state with few others,
far ones with many. With lambda = 1 this is ``ssd``. Delta, A, B, C, X, D, gate, norm and convolution are as in ``ssd``.

Departures from the paper: the quadratic form, with all weights at once, instead of time O(t log t). All levels from
``levels`` - 1 on share one lambda. The paper's Log-Linear Gated DeltaNet is missing. Other departures are as in ``ssd``.
Cost: time O(t s (N + m dim)) and O(h t s) memory, with ``expand`` m and ``state_dim`` N; the parameters of ``ssd`` and
h (dim + 1) ``levels`` more. Decoding keeps a state of m N dim numbers for each bit of the number of positions.
Glossary: ``level`` W_lambda, ``level_scale`` L; the rest as in ``ssd``.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.errors import UserError
from attnlab.nn.cache import Cache
from attnlab.nn.linear_attention import decays, without_autocast
from attnlab.variants.base import AttentionConfig
from attnlab.variants.linear_recurrence import widen
from attnlab.variants.ssd import Ssd


class LogLinear(Ssd):
    """Linear attention with decay, and a learned weight for each distance, on a scale of powers of 2.

    Args:
        levels: number of levels; the default reaches 2,048 positions.
        expand: width of the values, as a multiple of the model width.
        state_dim: N, the width of the queries and keys, which all heads share.
        short_conv: c, the number of positions of the convolutions; 0: none.

    Raises:
        UserError: ``levels``, ``expand`` or ``state_dim`` is less than 1, or ``short_conv`` is negative.
    """

    supports_memory = False  # levels depend on the position, which a memory moves
    cost_exponent = 2.0
    paper = "Guo et al. 2025"

    def __init__(
        self, config: AttentionConfig, *, levels: int = 12, expand: int = 2, state_dim: int = 64, short_conv: int = 4
    ) -> None:
        super().__init__(config, expand=expand, state_dim=state_dim, short_conv=short_conv)
        if levels < 1:
            raise UserError(f"log_linear: expected at least 1 of levels, got {levels}")
        self.levels = levels
        self.level = nn.Linear(config.dim, config.heads * levels, bias=False)
        self.level_scale = nn.Parameter(torch.ones(config.heads, 1, levels))

    @classmethod
    def recommended_options(cls, length: int) -> dict[str, Any]:
        """Return the number of levels that the positions of a length have."""
        return {"levels": max(0, length - 1).bit_length() + 1}

    def new_cache(self) -> Cache:
        return _Buckets()

    def mix(self, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, *, source: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None:
            real = mask[:, None, mask.shape[1] - k.shape[2] :, None]
            k, log_decay = k * real, log_decay * real
        lambdas = F.softplus(widen(self.level_scale) * widen(self.project_heads(self.level, source)))  # (b, h, t, levels)
        with without_autocast(v.device):
            dtype = torch.promote_types(v.dtype, torch.float32)
            q, k, values, g = q.to(dtype), k.to(dtype), v.to(dtype), log_decay.cumsum(2)
            cache = self.cache if isinstance(self.cache, _Buckets) else _Buckets()
            at = torch.arange(cache.length, cache.length + k.shape[2], device=v.device)
            y = (q @ k.mT * decays(g) * self._weights(lambdas, at, at)) @ values
            if cache.states is not None:
                starts = torch.tensor([start for start, _ in _ranges(cache.length)], device=v.device)
                weights = self._weights(lambdas, at, starts) * g.exp()  # (b, h, t, buckets)
                y = y + torch.einsum("bhtn,bhtd,bhnde->bhte", weights, q.expand(-1, g.shape[1], -1, -1), cache.states)
            if self.cache is not None:
                cache.append(k, values, g)
        return y.to(v.dtype)

    def _weights(self, lambdas: Tensor, at: Tensor, starts: Tensor) -> Tensor:
        """Return the lambda of each query and the range of a position: (b, h, t, n).

        Args:
            lambdas: (b, h, t, levels).
            at: (t,), positions of the queries.
            starts: (n,), the other positions; for those ahead the result has no meaning.
        """
        level = self._levels_of(at[:, None], starts)
        return lambdas.gather(-1, level.expand(*lambdas.shape[:2], -1, -1))

    def _levels_of(self, at: Tensor, starts: Tensor) -> Tensor:
        """Return the level of the range of a query that holds another position: the bits from their first difference on."""
        powers = 2 ** torch.arange(self.levels - 1, device=at.device)
        return ((at ^ starts)[..., None] >= powers).sum(-1)


class _Buckets(Cache):
    """The states of the ranges of earlier positions.

    Attributes:
        states: (b, h, n, d, e), one for each bit of ``length``, the highest first, zeros for one that is not set; None before
            the first call.
        length: the number of positions.
    """

    def __init__(self) -> None:
        self.states: Tensor | None = None
        self.length = 0

    def append(self, k: Tensor, v: Tensor, g: Tensor) -> None:
        """Add positions with keys (b, h or 1, n, d), values (b, h, n, e) and cumulated log decays (b, h, n, 1)."""
        before, old = self.length, _ranges(self.length)
        self.length += k.shape[2]
        decayed = k * (g[:, :, -1:] - g).exp()
        states = []
        for start, end in _ranges(self.length):
            new = slice(max(0, start - before), max(0, end - before))
            state = decayed[:, :, new].mT @ v[:, :, new]
            inside = [n for n, (first, _) in enumerate(old) if start <= first < end]
            if self.states is not None and inside:
                state = state + g[:, :, -1:].exp() * self.states[:, :, inside].sum(2)
            states.append(state)
        self.states = torch.stack(states, dim=2)


def _ranges(length: int) -> list[tuple[int, int]]:
    """Return the first position and the end of the range of each bit of a length, the highest bit first."""
    bits = reversed(range(length.bit_length()))
    return [(length >> m + 1 << m + 1, length >> m << m) for m in bits]
