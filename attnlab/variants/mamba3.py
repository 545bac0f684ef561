"""The sequence mixing of Mamba-3: a decaying state with two-point input and data-dependent rotations.

Lahoti et al. 2026, arXiv:2603.15569, "Mamba-3: Improved Sequence Modeling using State Space Principles"; with one input and one
output a head (SISO).

    Delta_t  = softplus(W_Delta x_t + b_Delta)          A_t      = max(softplus(W_A x_t), 0.0001)
    lambda_t = sigmoid(W_lambda x_t)                    theta_t  = pi tanh(W_theta x_t)
    B_t      = RMSNorm(W_B x_t) + b_B                   C_t      = RMSNorm(W_C x_t) + b_C
    phi_t    = Delta_1 theta_1 + ... + Delta_t theta_t  B'_t, C'_t = R(phi_t) B_t, R(phi_t) C_t
    alpha_t  = exp(-Delta_t A_t)
    H_t      = alpha_t H_(t-1) + (1 - lambda_t) Delta_t alpha_t B'_(t-1) X_(t-1)^T + lambda_t Delta_t B'_t X_t^T
    Y_t      = H_t^T C'_t + D X_t
    y_t      = W_O (Y_t * silu(z_t))

X and z are linear in x_t. In the terms of attention, C is the query, B the key and X the value. The input of a step is a
mixture of the inputs at its two ends, with the weights 1 - lambda_t and lambda_t (the trapezoidal rule); ``ssd`` has
lambda_t = 1. Mamba-3 has no short convolution. R(phi) rotates pairs of features by the angles phi, which multiplies the state
by complex numbers: it can alternate although its decay is positive. Delta_t, A_t, lambda_t and D are one number for each head;
b_B and b_C are vectors of each head; W_B, W_C and W_theta serve all heads.

Departures from the paper: there is no multi-input, multi-output form. Heads are ``model.heads``, and N is 64; in the authors'
code a head has 64 features and N is 128. The input of padding is zero at both ends of a step.
Cost: time O(t (h C N + m dim (C + N))) in chunks of C = 64 positions, with ``expand`` m and ``state_dim`` N; a state of m N dim
numbers, and for the next step m dim + h N + h r N / 2 of the last position, where r is ``rotary_fraction``; 3 m dim^2
parameters, and (2 N + 3 h + r N / 2) dim + 2 h N more.
Glossary: ``query`` W_C, ``key`` W_B, ``value`` X; ``query_norm``, ``key_norm``; ``query_bias`` b_C, ``key_bias`` b_B; ``step``
W_Delta and ``step_bias`` b_Delta; ``rate`` W_A; ``mix`` W_lambda; ``angle`` W_theta; ``gate`` z; ``skip`` D; ``out`` W_O.
"""

from math import pi

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.errors import UserError
from attnlab.nn.cache import Cache, State
from attnlab.nn.layers import merge_heads, rotate_pairs
from attnlab.nn.linear_attention import linear_attention
from attnlab.variants.base import AttentionConfig
from attnlab.variants.linear_recurrence import EPS, LinearRecurrence, widen
from attnlab.variants.ssd import initial_step_bias

SLOWEST = 1e-4  # the smallest A


class Mamba3(LinearRecurrence):
    """Linear attention with decay, whose state rotates and whose steps have the inputs at both of their ends.

    Args:
        expand: width of the values, as a multiple of the model width.
        state_dim: N, the width of the queries and keys.
        rotary_fraction: share of the features of queries and keys that rotate; 0: no rotations.

    Raises:
        UserError: ``expand`` or ``state_dim`` is less than 1, or ``rotary_fraction`` is not between 0 and 1.
    """

    supports_cache = True
    supports_attention_bias = True
    paper = "Lahoti et al. 2026"

    def __init__(self, config: AttentionConfig, *, expand: int = 2, state_dim: int = 64, rotary_fraction: float = 0.5) -> None:
        super().__init__(config)
        if expand < 1 or state_dim < 1:
            raise UserError(f"mamba3: expected an expand and a state_dim of at least 1, got {expand} and {state_dim}")
        if not 0 <= rotary_fraction <= 1:
            raise UserError(f"mamba3: expected a rotary_fraction between 0 and 1, got {rotary_fraction:g}")
        dim, heads, width, bias = config.dim, config.heads, expand * config.dim, config.bias
        self.query = nn.Linear(dim, state_dim, bias=bias)
        self.key = nn.Linear(dim, state_dim, bias=bias)
        self.query_norm, self.key_norm = nn.RMSNorm(state_dim, eps=EPS), nn.RMSNorm(state_dim, eps=EPS)
        self.query_bias = nn.Parameter(torch.ones(heads, 1, state_dim))
        self.key_bias = nn.Parameter(torch.ones(heads, 1, state_dim))
        self.value = nn.Linear(dim, width, bias=bias)
        self.gate = nn.Linear(dim, width, bias=bias)
        self.step = nn.Linear(dim, heads, bias=False)
        self.step_bias = nn.Parameter(initial_step_bias(heads))
        self.rate = nn.Linear(dim, heads, bias=False)
        self.mix = nn.Linear(dim, heads, bias=False)
        pairs = int(rotary_fraction * state_dim) // 2
        self.angle = nn.Linear(dim, pairs, bias=False) if pairs else None
        self.skip = nn.Parameter(torch.ones(heads))
        self.out = nn.Linear(width, dim, bias=bias)

    def new_cache(self) -> Cache:
        return _LastPosition()

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        source = x if context is None else context
        t, last = x.shape[1], self.cache if isinstance(self.cache, _LastPosition) else None
        real = None if mask is None else mask[:, None, mask.shape[1] - source.shape[1] :, None]
        delta = F.softplus(widen(self.step(source)) + widen(self.step_bias)).mT[..., None]  # (b, h, s, 1)
        delta = delta if real is None else delta * real
        rate = F.softplus(widen(self.rate(source))).clamp(min=SLOWEST).mT[..., None]
        mix = widen(self.mix(source)).sigmoid().mT[..., None]
        q = self.query_norm(self.query(x))[:, None] + self.query_bias  # (b, h, t, N)
        k = self.key_norm(self.key(source))[:, None] + self.key_bias  # (b, h, s, N)
        v = self.project_heads(self.value, source)
        if self.angle is not None:
            phi = self._cumulated(delta * pi * widen(self.angle(source))[:, None].tanh(), last)  # (b, h, s, pairs)
            q, k = _rotated(q, phi[:, :, phi.shape[2] - t :]), _rotated(k, phi)
        k = k if real is None else k * real
        previous_k, previous_v = _previous(k, last and last.key), _previous(v, last and last.value)
        if last is not None:
            last.key, last.value = k[:, :, -1:], v[:, :, -1:]
        log_alpha = -delta * rate
        before = (1 - mix) * delta * log_alpha.exp() * previous_k
        y = self.recur(_two_points, q, mix * delta * k, v, before, previous_v, log_alpha, mask=mask)
        y = y + self.skip[:, None, None] * v[:, :, v.shape[2] - t :]
        return self.out(merge_heads(y) * F.silu(self.gate(x)))

    def _cumulated(self, turns: Tensor, last: "_LastPosition | None") -> Tensor:
        """Return the angles after each position (b, h, s, pairs), which continue from the cached one."""
        phi = turns.cumsum(2)
        if last is not None:
            phi = phi if last.angle is None else last.angle + phi
            last.angle = phi[:, :, -1:].remainder(2 * pi)
        return phi


class _LastPosition(State):
    """The state, and what the next step needs of the last position.

    Attributes:
        angle: (b, h, 1, pairs); None before the first call, and without rotations.
        key: (b, h, 1, N); None before the first call.
        value: (b, h, 1, e); None before the first call.
    """

    def __init__(self) -> None:
        super().__init__()
        self.angle: Tensor | None = None
        self.key: Tensor | None = None
        self.value: Tensor | None = None


def _two_points(
    q: Tensor, k: Tensor, v: Tensor, previous_k: Tensor, previous_v: Tensor, log_alpha: Tensor, *, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the sum of two recurrences with one decay: of the inputs at the end of each step, and at its start.

    The sum is rounded to the dtype of v, and not its two terms, which may nearly cancel.
    """
    y, after = linear_attention(q, k, widen(v), log_alpha, state=state)
    more, added = linear_attention(q, previous_k, widen(previous_v), log_alpha)
    return (y + more).to(v.dtype), after + added


def _previous(z: Tensor, last: Tensor | None) -> Tensor:
    """Return z (b, h, s, d) one position later, with ``last`` (b, h, 1, d), or zeros, at the first one."""
    first = torch.zeros_like(z[:, :, :1]) if last is None else last
    return torch.cat([first, z[:, :, :-1]], dim=2)


def _rotated(z: Tensor, phi: Tensor) -> Tensor:
    """Rotate the first pairs of features of z (b, h, n, N) by the angles phi (b, h, n, pairs)."""
    turned, rest = z.split([2 * phi.shape[-1], z.shape[-1] - 2 * phi.shape[-1]], dim=-1)
    turned = rotate_pairs(turned, phi.cos(), phi.sin())
    return torch.cat([turned, rest.to(turned.dtype)], dim=-1)
