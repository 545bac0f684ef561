"""State space duality, the sequence mixing of Mamba-2.

Dao & Gu 2024, arXiv:2405.21060, "Transformers are SSMs"; the head structure is "multi-value".

    Delta_t = softplus(x_t W_Delta + b_Delta)          A = exp(A_log)
    H_t     = exp(-Delta_t A) H_(t-1) + Delta_t B_t X_t^T
    Y_t     = H_t^T C_t + D X_t
    y_t     = Norm(Y_t * silu(z_t)) W_O

X, B, C are linear in x_t, followed by silu; z is linear in x_t. In the terms of attention, C is the query, B the key and X the
value; all heads share B and C. Delta_t, A and D are one number for each head. With ``short_conv`` c, a causal convolution of
each feature by itself precedes silu: conv(z)_t = b + sum_(j < c) w_j * z_(t-j).

Departures from the paper: B and C are one group. A study that compares with softmax attention keeps its feed-forward networks,
which the paper's blocks do not have. Heads are ``model.heads``, and N is 64; in the authors' code a head has 64 features and N
is 128.
Cost: time O(t (C N + m dim (C + N))) in chunks of C = 64 positions, with ``expand`` m and ``state_dim`` N; a state of m N dim
numbers; 3 m dim^2 + 2 N dim parameters, 6 dim^2 and more by default; (c + 1) (m dim + 2 N) more with convolutions.
Glossary: ``query`` C, ``key`` B, ``value`` X; ``convolutions`` w and b; ``gate`` z; ``step`` W_Delta and ``step_bias`` b_Delta;
``skip`` D; ``state_dim`` N; ``out`` W_O.
"""

from math import log
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.errors import UserError
from attnlab.nn.layers import merge_heads
from attnlab.nn.linear_attention import linear_attention
from attnlab.variants.base import AttentionConfig
from attnlab.variants.linear_recurrence import EPS, LinearRecurrence, widen

STEPS = (1e-3, 0.1)  # Delta at the start, drawn log-uniformly
RATES = (1.0, 16.0)  # A at the start, drawn uniformly


class Ssd(LinearRecurrence):
    """Linear attention with a decay of each head that depends on the input.

    Args:
        expand: width of the values, as a multiple of the model width.
        state_dim: N, the width of the queries and keys, which all heads share.
        short_conv: c, the number of positions of the convolutions; 0: none.

    Raises:
        UserError: ``expand`` or ``state_dim`` is less than 1, or ``short_conv`` is negative.
    """

    supports_cache = True
    supports_attention_bias = True
    paper = "Dao & Gu 2024"

    def __init__(self, config: AttentionConfig, *, expand: int = 2, state_dim: int = 64, short_conv: int = 4) -> None:
        super().__init__(config)
        if expand < 1 or state_dim < 1:
            raise UserError(f"ssd: expected an expand and a state_dim of at least 1, got {expand} and {state_dim}")
        dim, width, bias = config.dim, expand * config.dim, config.bias
        self.query = nn.Linear(dim, state_dim, bias=bias)
        self.key = nn.Linear(dim, state_dim, bias=bias)
        self.value = nn.Linear(dim, width, bias=bias)
        self.gate = nn.Linear(dim, width, bias=bias)
        self.step = nn.Linear(dim, config.heads, bias=False)
        self.step_bias = nn.Parameter(initial_step_bias(config.heads))
        self.A_log = nn.Parameter(torch.empty(config.heads).uniform_(*RATES).log())
        self.skip = nn.Parameter(torch.ones(config.heads))
        self.norm = nn.RMSNorm(width, eps=EPS)
        self.out = nn.Linear(width, dim, bias=bias)
        self.add_short_convolutions(short_conv, bias=True)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        source = x if context is None else context
        q = F.silu(self.features("query", x, source, mask))[:, None]  # (b, 1, t, N)
        k = F.silu(self.features("key", source, source, mask))[:, None]  # (b, 1, s, N)
        v = F.silu(self.head_features("value", source, source, mask))
        delta, log_decay = step_and_log_decay(self, source)
        y = self.mix(q, k, delta.to(v.dtype) * v, log_decay, source=source, mask=mask)
        y = y + self.skip[:, None, None] * v[:, :, -x.shape[1] :]
        return self.out(self.norm(merge_heads(y) * F.silu(self.gate(x))))

    def mix(self, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, *, source: Tensor, mask: Tensor | None) -> Tensor:
        """Return H_t^T C_t of each head, (b, h, t, e), from q (b, 1, t, N), k (b, 1, s, N), v (b, h, s, e) and log decays."""
        return self.recur(linear_attention, q, k, v, log_decay, mask=mask)


class _HasSteps(Protocol):
    step: nn.Linear
    step_bias: nn.Parameter
    A_log: nn.Parameter


def step_and_log_decay(layer: _HasSteps, source: Tensor) -> tuple[Tensor, Tensor]:
    """Return Delta and -Delta A of each head at the positions of source (b, s, dim): both (b, h, s, 1)."""
    delta = F.softplus(widen(layer.step(source)) + widen(layer.step_bias)).mT[..., None]
    return delta, -delta * widen(layer.A_log).exp()[:, None, None]


def initial_step_bias(heads: int) -> Tensor:
    """Draw b_Delta (h,) so that softplus(b_Delta) is log-uniform between ``STEPS``."""
    low, high = (log(step) for step in STEPS)
    step = torch.empty(heads).uniform_(low, high).exp()
    return step + torch.log(-torch.expm1(-step))  # the inverse of softplus
