"""Gated linear attention.

Yang et al. 2024, arXiv:2312.06635, "Gated Linear Attention Transformers with Hardware-Efficient Training".

    alpha_t = sigmoid(x_t W_alpha1 W_alpha2 + b_alpha)^(1/tau)
    S_t     = Diag(alpha_t) S_(t-1) + k_t^T v_t
    o_t     = q_t S_t / sqrt(d_k)
    r_t     = swish(x_t W_r + b_r)
    y_t     = (r_t * Norm(o_t)) W_O

Each channel of the keys decays at a rate that depends on the input. Norm is applied to each head separately. Queries and keys
have half of the model width, d_k = dim / (2 h) in a head, rounded up, and values have all of it.

With ``short_conv`` c, q, k and v pass through a causal convolution of each feature by itself and silu first, as in the later
members of the family: silu(sum_(j < c) w_j * z_(t-j)). The paper has neither; ``short_conv: 0`` is its layer.

Departures from the paper: the convolutions, so that the members of the family differ in their recurrences alone; Norm is
RMSNorm, with one gain for all heads, as in the authors' later code; r_t has a bias where ``model.attention_bias`` adds one to
every projection. Weights are drawn as in all other variants.
Cost: time O(t (C + d) dim) in chunks of C = 64 positions, log C of them elementwise; a state of d^2 / 2 numbers a head;
4 dim^2 + 3/2 ``rank`` dim parameters; 2 c dim more with convolutions.
Glossary: ``query``, ``key``, ``value`` W_q, W_k, W_v; ``convolutions`` w; ``decay`` W_alpha1, then W_alpha2 and b_alpha;
``rank`` their inner width; ``temperature`` tau; ``gate`` W_r; ``out`` W_O.
"""

from math import sqrt

from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.errors import UserError
from attnlab.nn.layers import merge_heads
from attnlab.nn.linear_attention import linear_attention
from attnlab.variants.base import AttentionConfig
from attnlab.variants.linear_recurrence import EPS, LinearRecurrence, widen


class GatedLinear(LinearRecurrence):
    """Linear attention with a decay of each channel that depends on the input.

    Args:
        temperature: tau; the larger, the slower the decay.
        rank: inner width of the projection that computes the decays.
        short_conv: c, the number of positions of the convolutions; 0: none, and no silu, as in the paper.

    Raises:
        UserError: ``temperature`` is not positive, ``rank`` is less than 1, or ``short_conv`` is negative.
    """

    supports_cache = True
    supports_attention_bias = True
    paper = "Yang et al. 2024"

    def __init__(self, config: AttentionConfig, *, temperature: float = 16.0, rank: int = 16, short_conv: int = 4) -> None:
        super().__init__(config)
        if temperature <= 0 or rank < 1:
            expected = "expected a positive temperature and a rank of at least 1"
            raise UserError(f"gated_linear: {expected}, got {temperature:g} and {rank}")
        self.temperature = temperature
        dim, bias = config.dim, config.bias
        self.key_width = self.head_dim(dim, config.heads)
        width = config.heads * self.key_width
        self.query = nn.Linear(dim, width, bias=bias)
        self.key = nn.Linear(dim, width, bias=bias)
        self.value = nn.Linear(dim, dim, bias=bias)
        self.decay = nn.Sequential(nn.Linear(dim, rank, bias=False), nn.Linear(rank, width))
        self.gate = nn.Linear(dim, dim, bias=bias)
        self.norm = nn.RMSNorm(self.head_width, eps=EPS)
        self.out = nn.Linear(dim, dim, bias=bias)
        self.activation = nn.SiLU() if short_conv else nn.Identity()
        self.add_short_convolutions(short_conv)

    @classmethod
    def head_dim(cls, dim: int, heads: int) -> int:
        return (dim // heads + 1) // 2

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        source = x if context is None else context
        q = self.activation(self.head_features("query", x, source, mask)) / sqrt(self.key_width)
        k, v = (self.activation(self.head_features(name, source, source, mask)) for name in ("key", "value"))
        log_alpha = F.logsigmoid(widen(self.project_heads(self.decay, source))) / self.temperature
        y = self.recur(linear_attention, q, k, v, log_alpha, mask=mask)
        return self.out(F.silu(self.gate(x)) * merge_heads(self.norm(y)))
