"""Narrow attention: one small projection shared by all heads.

Bloem 2019, "Transformers from scratch", https://peterbloem.nl/blog/transformers, "narrow self-attention".

The input is cut into h pieces of d = dim / h features, and each head sees only its own piece x_i, s_i:

    head_i = softmax(x_i W_Q (s_i W_K)^T / sqrt(d)) s_i W_V,       W_Q, W_K, W_V of d x d, the same for every head
    y      = Concat(head_1, ..., head_h) W_O

Departures from the paper: W_O has a bias only with ``model.attention_bias``.
Cost: time O(t s dim) as ``dense``; 3 d^2 + dim^2 parameters: the projections are smaller by a factor of h^2.
Glossary: ``query`` W_Q; ``key`` W_K; ``value`` W_V; ``out`` W_O.
"""

from torch import Tensor, nn

from attnlab.variants.base import BACKENDS, AttentionConfig, Variant, merge_heads, split_heads


class Narrow(Variant):
    """Heads that each attend within a slice of the features, through the same small projections."""

    supports_memory = True
    supports_cache = True
    supports_attention_bias = True
    residual_projections = ("out",)
    backends = BACKENDS
    paper = "Bloem 2019"

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        d = config.dim // config.heads
        self.query = nn.Linear(d, d, bias=config.bias)
        self.key = nn.Linear(d, d, bias=config.bias)
        self.value = nn.Linear(d, d, bias=config.bias)
        self.out = nn.Linear(config.dim, config.dim, bias=config.bias)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        x_i = split_heads(x, self.heads)  # (b, h, t, d)
        s_i = x_i if context is None else split_heads(context, self.heads)  # (b, h, s, d)
        y = self.attend(self.query(x_i), self.key(s_i), self.value(s_i), mask)
        return self.out(merge_heads(y))
