"""Gated DeltaNet: the delta rule with decay.

Yang et al. 2025, arXiv:2412.06464, "Gated Delta Networks: Improving Mamba2 with Delta Rule".

    q_t, k_t = silu(conv(W_Q x)_t), silu(conv(W_K x)_t), each divided by its length          v_t = silu(conv(W_V x)_t)
    beta_t   = sigmoid(W_beta x_t)
    alpha_t  = exp(-A softplus(W_alpha x_t + b_alpha))          A = exp(A_log)
    S_t      = S_(t-1) (alpha_t (I - beta_t k_t k_t^T)) + beta_t v_t k_t^T
    y_t      = W_O (RMSNorm(S_t q_t) * silu(W_G x_t))

conv is the convolution of ``delta``, with ``short_conv`` c. The decay alpha_t, as in Mamba-2, clears the state; the delta
rule replaces the value under one key (``delta``). With ``negative_eigenvalues`` (Grazzi et al. 2025, arXiv:2411.12537),
beta_t = 2 sigmoid(W_beta x_t): along k_t the transition has an eigenvalue between -1 and 1. RMSNorm normalizes each head
by itself.

Departures from the paper: keys and values have the same width, the model width over the number of heads; the paper's values
are twice as wide as its keys. As in ``delta``, S_t q_t is not multiplied by 1 / sqrt(d) before the norm. A starts uniformly in
(1, 16), as in Mamba-2; the authors' code draws it from (0, 16).
Cost: time O(t (C + d) dim) in chunks of C = 64 positions; a state of d^2 numbers a head; 5 dim^2 + 2 h dim parameters; 3 c dim
more with convolutions.
Glossary: ``query``, ``key``, ``value`` W_Q, W_K, W_V; ``convolutions`` w; ``beta`` W_beta; ``step`` W_alpha, ``step_bias``
b_alpha; ``gate`` W_G; ``out`` W_O. States are transposed, (d_k, d_v).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.nn.layers import merge_heads
from attnlab.nn.linear_attention import delta_rule
from attnlab.variants.base import AttentionConfig
from attnlab.variants.delta import associations
from attnlab.variants.linear_recurrence import EPS, LinearRecurrence
from attnlab.variants.ssd import RATES, initial_step_bias, step_and_log_decay


class GatedDelta(LinearRecurrence):
    """A recurrence that decays, and replaces the value under a key.

    Args:
        negative_eigenvalues: beta between 0 and 2 instead of 0 and 1.
        short_conv: c, the number of positions of the convolutions; 0: none.

    Raises:
        UserError: ``short_conv`` is negative.
    """

    supports_cache = True
    supports_attention_bias = True
    paper = "Yang et al. 2025"

    def __init__(self, config: AttentionConfig, *, negative_eigenvalues: bool = False, short_conv: int = 4) -> None:
        super().__init__(config)
        self.largest_beta = 2.0 if negative_eigenvalues else 1.0
        dim, bias = config.dim, config.bias
        self.query = nn.Linear(dim, dim, bias=bias)
        self.key = nn.Linear(dim, dim, bias=bias)
        self.value = nn.Linear(dim, dim, bias=bias)
        self.beta = nn.Linear(dim, config.heads, bias=bias)
        self.step = nn.Linear(dim, config.heads, bias=False)
        self.step_bias = nn.Parameter(initial_step_bias(config.heads))
        self.A_log = nn.Parameter(torch.empty(config.heads).uniform_(*RATES).log())
        self.gate = nn.Linear(dim, dim, bias=bias)
        self.norm = nn.RMSNorm(self.head_width, eps=EPS)
        self.out = nn.Linear(dim, dim, bias=bias)
        self.add_short_convolutions(short_conv)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        source = x if context is None else context
        q, k, v = associations(self, x, source, mask)
        beta = self.largest_beta * self.project_heads(self.beta, source).sigmoid()  # (b, h, s, 1)
        _, log_alpha = step_and_log_decay(self, source)
        y = self.recur(delta_rule, q, k, v, beta, log_alpha, mask=mask)
        return self.out(merge_heads(self.norm(y)) * F.silu(self.gate(x)))
