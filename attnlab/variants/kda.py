"""Kimi delta attention: the delta rule with a decay of each channel.

Kimi Team 2025, arXiv:2510.26692, "Kimi Linear: An Expressive, Efficient Attention Architecture", equation 1 and the
parameterization of its section on the model.

    q_t, k_t = silu(conv(W_q x)_t), silu(conv(W_k x)_t), each divided by its length          v_t = silu(conv(W_v x)_t)
    beta_t   = sigmoid(W_beta x_t)
    alpha_t  = exp(-A softplus(W_up W_down x_t + b_alpha))          A = exp(A_log)
    S_t      = (I - beta_t k_t k_t^T) Diag(alpha_t) S_(t-1) + beta_t k_t v_t^T
    o_t      = S_t^T q_t
    y_t      = W_o (sigmoid(G_up G_down x_t + b_g) * RMSNorm(o_t))

Where ``gated_delta`` has one decay for a head, alpha_t (d,) has one for each channel of the keys, as in ``gated_linear``. conv
is the convolution of ``delta``, with ``short_conv`` c. RMSNorm normalizes each head by itself. With ``negative_eigenvalues``
(Grazzi et al. 2025, arXiv:2411.12537), beta_t = 2 sigmoid(W_beta x_t).

Departures from the paper: as in ``delta``, S_t^T q_t is not multiplied by 1 / sqrt(d) before the norm. A and b_alpha start as
in ``gated_delta``, b_alpha with a value for each channel; versions of the authors' code differ in the latter. The paper has
three of these layers to one of attention without positions, which is the pattern
``model.layers: [kda, kda, kda, {name: latent, position: none}]``.
Cost: time O(t (C + d) dim) in chunks of C = 64 positions, log C of them elementwise; a state of d^2 numbers a head;
4 dim^2 + (4 d + h + 2) dim parameters; 3 c dim more with convolutions.
Glossary: ``query``, ``key``, ``value`` W_q, W_k, W_v; ``convolutions`` w; ``beta`` W_beta; ``decay`` W_down, then W_up;
``step_bias`` b_alpha; ``gate`` G_down, then G_up and b_g; ``out`` W_o.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.nn.layers import merge_heads, split_heads
from attnlab.nn.linear_attention import delta_rule
from attnlab.variants.base import AttentionConfig
from attnlab.variants.delta import associations
from attnlab.variants.linear_recurrence import EPS, LinearRecurrence, Rule, widen
from attnlab.variants.ssd import RATES, initial_step_bias


class Kda(LinearRecurrence):
    """A recurrence that replaces the value under a key, with a decay of each channel.

    Args:
        negative_eigenvalues: beta between 0 and 2 instead of 0 and 1.
        short_conv: c, the number of positions of the convolutions; 0: none.

    Raises:
        UserError: ``short_conv`` is negative.
    """

    supports_cache = True
    supports_attention_bias = True
    paper = "Kimi Team 2025"

    def __init__(self, config: AttentionConfig, *, negative_eigenvalues: bool = False, short_conv: int = 4) -> None:
        super().__init__(config)
        self.largest_beta = 2.0 if negative_eigenvalues else 1.0
        dim, width, bias = config.dim, self.head_width, config.bias
        self.query = nn.Linear(dim, dim, bias=bias)
        self.key = nn.Linear(dim, dim, bias=bias)
        self.value = nn.Linear(dim, dim, bias=bias)
        self.beta = nn.Linear(dim, config.heads, bias=bias)
        self.decay = nn.Sequential(nn.Linear(dim, width, bias=False), nn.Linear(width, dim, bias=False))
        self.step_bias = nn.Parameter(initial_step_bias(dim))
        self.A_log = nn.Parameter(torch.empty(config.heads).uniform_(*RATES).log())
        self.gate = nn.Sequential(nn.Linear(dim, width, bias=False), nn.Linear(width, dim))
        self.norm = nn.RMSNorm(width, eps=EPS)
        self.out = nn.Linear(dim, dim, bias=bias)
        self.add_short_convolutions(short_conv)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        source = x if context is None else context
        q, k, v = associations(self, x, source, mask)
        beta = self.largest_beta * self.project_heads(self.beta, source).sigmoid()  # (b, h, s, 1)
        y = self.recur(self.rule(source), q, k, v, beta, self.log_alpha(source), mask=mask)
        return self.out(self.gate(x).sigmoid() * merge_heads(self.norm(y)))

    def rule(self, source: Tensor) -> Rule:
        """Return the recurrence, which ``recur`` computes, at the positions of source (b, s, dim)."""
        return delta_rule

    def log_alpha(self, source: Tensor) -> Tensor:
        """Return log alpha of each channel at the positions of source (b, s, dim): (b, h, s, d)."""
        step = F.softplus(widen(self.decay(source)) + widen(self.step_bias))
        return -split_heads(step, self.heads) * widen(self.A_log).exp()[:, None, None]
