"""Gated DeltaNet 2: separate gates for what is erased and what is written, channel by channel.

Hatamizadeh et al. 2026, arXiv:2605.22791, "Gated DeltaNet-2: Decoupling Erase and Write in Linear Attention".

    q_t, k_t = silu(conv(W_q x)_t), silu(conv(W_k x)_t), each divided by its length          v_t = silu(conv(W_v x)_t)
    b_t, w_t = sigmoid(W_b x_t), sigmoid(W_w x_t)
    S_t      = (I - k_t (b_t * k_t)^T) Diag(alpha_t) S_(t-1) + k_t (w_t * v_t)^T
    o_t      = S_t^T q_t
    y_t      = W_o (sigmoid(G_up G_down x_t + b_g) * RMSNorm(o_t))

alpha_t, conv, RMSNorm and the output are as in ``kda``, and so is the recurrence when b_t and w_t are one number beta_t.
b_t (d,) is the share of each channel of the key by which the value under it is erased, w_t (d,) the share of each channel of
the new value that is written. With ``negative_eigenvalues``, b_t = 2 sigmoid(W_b x_t).

Departures from the paper: as in ``kda``. The formulas follow the reference implementation of flash-linear-attention.
Cost: time and state as in ``kda``; 6 dim^2 + (4 d + 2) dim parameters; 3 c dim more with convolutions.
Glossary: ``query``, ``key``, ``value`` W_q, W_k, W_v; ``convolutions`` w of conv; ``beta`` W_b; ``write`` W_w; ``decay``,
``step_bias`` and ``A_log`` alpha; ``gate`` G_down, then G_up and b_g; ``out`` W_o.
"""

from functools import partial

from torch import Tensor, nn

from attnlab.nn.linear_attention import delta_rule
from attnlab.variants.base import AttentionConfig
from attnlab.variants.kda import Kda
from attnlab.variants.linear_recurrence import Rule


class GatedDelta2(Kda):
    """A recurrence that decays, erases and writes each channel by itself.

    Args:
        negative_eigenvalues: b between 0 and 2 instead of 0 and 1.
        short_conv: c, the number of positions of the convolutions; 0: none.

    Raises:
        UserError: ``short_conv`` is negative.
    """

    supports_cache = True
    supports_attention_bias = True
    paper = "Hatamizadeh et al. 2026"

    def __init__(self, config: AttentionConfig, *, negative_eigenvalues: bool = False, short_conv: int = 4) -> None:
        super().__init__(config, negative_eigenvalues=negative_eigenvalues, short_conv=short_conv)
        self.beta = nn.Linear(config.dim, config.dim, bias=config.bias)  # b_t, one number a channel
        self.write = nn.Linear(config.dim, config.dim, bias=config.bias)

    def rule(self, source: Tensor) -> Rule:
        return partial(delta_rule, write=self.project_heads(self.write, source).sigmoid())  # (b, h, s, d)
