"""DeltaNet: linear attention with the delta rule.

Schlag et al. 2021, arXiv:2102.11174, "Linear Transformers Are Secretly Fast Weight Programmers"; the layer is from Yang et
al. 2024, arXiv:2406.06484, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length".

    q_t, k_t = silu(conv(W_Q x)_t), silu(conv(W_K x)_t), each divided by its length          v_t = silu(conv(W_V x)_t)
    beta_t   = sigmoid(W_beta x_t)
    S_t      = S_(t-1) - beta_t (S_(t-1) k_t - v_t) k_t^T = S_(t-1) (I - beta_t k_t k_t^T) + beta_t v_t k_t^T
    y_t      = W_O RMSNorm(S_t q_t)

conv(z)_t = sum_(j < c) w_j * z_(t-j) is a causal convolution of each feature by itself, with ``short_conv`` c; with c = 0,
conv(z) = z. The state is an associative memory: the value that it returns for the key k_t is moved towards v_t, by the share
beta_t. RMSNorm is applied to each head separately. Along k_t the transition has the eigenvalue 1 - beta_t; with
``negative_eigenvalues`` (Grazzi et al. 2025, arXiv:2411.12537), beta_t = 2 sigmoid(W_beta x_t), it lies between -1 and 1, and
states can alternate.

Departures from the paper: the authors' code multiplies q_t by 1 / sqrt(d) before the norm; here the norm sees S_t q_t itself,
so that its epsilon weighs less, by the factor d. Weights are drawn as in all other variants.
Cost: time O(t (C + d) dim) in chunks of C = 64 positions; a state of d^2 numbers a head; 4 dim^2 + h dim parameters;
3 c dim more with convolutions.
Glossary: ``query``, ``key``, ``value`` W_Q, W_K, W_V; ``convolutions`` w; ``beta`` W_beta; ``out`` W_O. States are transposed,
(d_k, d_v).
"""

from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.nn.layers import merge_heads
from attnlab.nn.linear_attention import delta_rule
from attnlab.variants.base import AttentionConfig
from attnlab.variants.linear_recurrence import EPS, LinearRecurrence, widen


class Delta(LinearRecurrence):
    """A recurrence that replaces the value under a key.

    Args:
        negative_eigenvalues: beta between 0 and 2 instead of 0 and 1.
        short_conv: c, the number of positions of the convolutions; 0: none.

    Raises:
        UserError: ``short_conv`` is negative.
    """

    supports_cache = True
    supports_attention_bias = True
    paper = "Yang et al. 2024"

    def __init__(self, config: AttentionConfig, *, negative_eigenvalues: bool = False, short_conv: int = 4) -> None:
        super().__init__(config)
        self.largest_beta = 2.0 if negative_eigenvalues else 1.0
        dim, bias = config.dim, config.bias
        self.query = nn.Linear(dim, dim, bias=bias)
        self.key = nn.Linear(dim, dim, bias=bias)
        self.value = nn.Linear(dim, dim, bias=bias)
        self.beta = nn.Linear(dim, config.heads, bias=bias)
        self.norm = nn.RMSNorm(self.head_width, eps=EPS)
        self.out = nn.Linear(dim, dim, bias=bias)
        self.add_short_convolutions(short_conv)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        source = x if context is None else context
        q, k, v = associations(self, x, source, mask)
        beta = self.largest_beta * self.project_heads(self.beta, source).sigmoid()  # (b, h, s, 1)
        y = self.recur(delta_rule, q, k, v, beta, mask=mask)
        return self.out(merge_heads(self.norm(y)))


def associations(layer: LinearRecurrence, x: Tensor, source: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries and keys of length 1 and values, after silu: (b, h, t, d), (b, h, s, d) and (b, h, s, d).

    Args:
        layer: has projections ``query``, ``key`` and ``value``.
        x: (b, t, dim).
        source: (b, s, dim), which ends with the positions of x.
        mask: the mask that ``forward`` received.
    """
    q = unit_length(F.silu(layer.head_features("query", x, source, mask)))
    k = unit_length(F.silu(layer.head_features("key", source, source, mask)))
    return q, k, F.silu(layer.head_features("value", source, source, mask))


def unit_length(x: Tensor) -> Tensor:
    """Divide the features of each head by their Euclidean length.

    In float32 at least: a key that is longer than 1 by the rounding of bf16 lets states of beta = 2 grow exponentially.
    """
    return F.normalize(widen(x), dim=-1, eps=1e-6)
