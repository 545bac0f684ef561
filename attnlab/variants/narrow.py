"""Narrow attention: one small projection shared by all heads.

Bloem 2019, "Transformers from scratch", https://peterbloem.nl/blog/transformers, "narrow self-attention".

The input is cut into h pieces of d = dim / h features, and each head sees only its piece x_i, s_i:

    head_i = softmax(x_i W_Q (s_i W_K)^T / sqrt(d)) s_i W_V,       W_Q, W_K, W_V of d by d, the same for every head
    y      = Concat(head_1, ..., head_h) W_O

Departures from the paper: W_O has a bias only with ``model.attention_bias``.
Cost: time O(t s dim) as ``dense``; 3 d^2 + dim^2 parameters: the projections are smaller by a factor of h^2.
Glossary: ``project.query`` W_Q; ``project.key`` W_K; ``project.value`` W_V; ``out`` W_O.
"""

from attnlab.nn.layers import NarrowProjections
from attnlab.variants.base import AttentionConfig
from attnlab.variants.dense import Dense


class Narrow(Dense):
    """Heads that each attend within a slice of the features, through the same small projections."""

    places = Dense.places - {"projections"}
    paper = "Bloem 2019"

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.project = NarrowProjections(config.dim // config.heads, heads=config.heads, bias=config.bias)
