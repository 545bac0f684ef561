"""DeltaProduct: several steps of the delta rule at each position.

Siems et al. 2025, arXiv:2502.10297, "DeltaProduct: Improving State-Tracking in Linear RNNs via Householder Products".

    q_t      = silu(conv(W_Q x)_t), divided by its length
    k_(t,j)  = silu(conv(W_K,j x)_t), divided by its length      v_(t,j) = silu(conv(W_V,j x)_t)         j = 1 ... n
    beta_(t,j) = 2 sigmoid(W_beta,j x_t)
    S_(t,0)  = alpha_t S_(t-1)                                   S_t     = S_(t,n)
    S_(t,j)  = (I - beta_(t,j) k_(t,j) k_(t,j)^T) S_(t,j-1) + beta_(t,j) k_(t,j) v_(t,j)^T
    y_t      = W_O RMSNorm(S_t^T q_t)

The transition of a position is a product of n generalized Householder matrices, n being ``reflections``; with beta = 2, each is
a reflection. A swap of two elements is one reflection, which ``delta`` with ``negative_eigenvalues``, n = 1, reaches as well; a
rotation needs two, and so do the cycles of three elements in the group S_3. alpha_t = 1, or, with ``gated``, the decay of
``gated_delta``, which also multiplies RMSNorm(S_t^T q_t) by silu(W_G x_t) (Gated DeltaProduct). conv is the convolution of
``delta``, with ``short_conv`` c. Without ``negative_eigenvalues``, beta = sigmoid(W_beta,j x_t).

Departures from the paper: as in ``delta``, S_t^T q_t is not multiplied by 1 / sqrt(d) before the norm. Keys and values have the
same width. With ``gated``, A starts as in ``gated_delta``. Weights are drawn as in all other variants.
Cost: time O(n t (C + d) dim) in chunks of C = 64 steps; a state of d^2 numbers a head; (2 + 2 n) dim^2 + n h dim parameters,
dim^2 + h dim more with ``gated`` and (1 + 2 n) c dim more with convolutions.
Glossary: ``query`` W_Q; ``key``, ``value``, ``beta`` W_K,j, W_V,j, W_beta,j, with j = 1 first; ``convolutions`` w; ``step``
and ``step_bias`` of alpha; ``gate`` W_G; ``out`` W_O. A step of the delta rule counts as a position of ``delta_rule``.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.errors import UserError
from attnlab.nn.layers import merge_heads
from attnlab.nn.linear_attention import delta_rule
from attnlab.variants.base import AttentionConfig
from attnlab.variants.delta import unit_length
from attnlab.variants.linear_recurrence import EPS, LinearRecurrence
from attnlab.variants.ssd import RATES, initial_step_bias, step_and_log_decay


class DeltaProduct(LinearRecurrence):
    """A recurrence with several steps of the delta rule at each position.

    Args:
        reflections: n, the number of steps.
        negative_eigenvalues: beta between 0 and 2; False: between 0 and 1.
        gated: decay the state and gate the output, as ``gated_delta``.
        short_conv: c, the number of positions of the convolutions; 0: none.

    Raises:
        UserError: ``reflections`` is less than 1, or ``short_conv`` is negative.
    """

    supports_cache = True
    supports_attention_bias = True
    paper = "Siems et al. 2025"

    def __init__(
        self,
        config: AttentionConfig,
        *,
        reflections: int = 2,
        negative_eigenvalues: bool = True,
        gated: bool = False,
        short_conv: int = 4,
    ) -> None:
        super().__init__(config)
        if reflections < 1:
            raise UserError(f"delta_product: expected at least 1 of reflections, got {reflections}")
        self.reflections = reflections
        self.largest_beta = 2.0 if negative_eigenvalues else 1.0
        dim, heads, bias = config.dim, config.heads, config.bias
        self.query = nn.Linear(dim, dim, bias=bias)
        self.key = nn.Linear(dim, reflections * dim, bias=bias)
        self.value = nn.Linear(dim, reflections * dim, bias=bias)
        self.beta = nn.Linear(dim, reflections * heads, bias=bias)
        self.gated = gated
        if gated:
            self.step = nn.Linear(dim, heads, bias=False)
            self.step_bias = nn.Parameter(initial_step_bias(heads))
            self.A_log = nn.Parameter(torch.empty(heads).uniform_(*RATES).log())
            self.gate = nn.Linear(dim, dim, bias=bias)
        self.norm = nn.RMSNorm(self.head_width, eps=EPS)
        self.out = nn.Linear(dim, dim, bias=bias)
        self.add_short_convolutions(short_conv)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        source = x if context is None else context
        n = self.reflections
        q = unit_length(F.silu(self.head_features("query", x, source, mask)))
        k = unit_length(F.silu(self.steps(self.features("key", source, source, mask))))
        v = F.silu(self.steps(self.features("value", source, source, mask)))
        beta = self.largest_beta * self.steps(self.beta(source)).sigmoid()  # (b, h, s n, 1)
        mask = None if mask is None else mask.repeat_interleave(n, dim=1)
        # Only the state after the last step of a position is read.
        q = q.repeat_interleave(n, dim=2)
        y = self.recur(delta_rule, q, k, v, beta, *self.log_alpha(source), mask=mask)[:, :, n - 1 :: n]
        y = merge_heads(self.norm(y))
        return self.out(y * F.silu(self.gate(x)) if self.gated else y)

    def steps(self, z: Tensor) -> Tensor:
        """Return features of positions (b, s, n h d) as features of steps, head by head: (b, h, s n, d)."""
        return z.unflatten(-1, (self.reflections, self.heads, -1)).flatten(1, 2).transpose(1, 2)

    def log_alpha(self, source: Tensor) -> tuple[Tensor, ...]:
        """Return the log decay of each step, (b, h, s n, 1), which the first one of a position has; () without ``gated``."""
        if not self.gated:
            return ()
        _, log_alpha = step_and_log_decay(self, source)
        return (F.pad(log_alpha, (0, self.reflections - 1)).flatten(2)[..., None],)
