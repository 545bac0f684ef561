"""Multi-head attention.

Vaswani et al. 2017, arXiv:1706.03762, "Attention Is All You Need", section 3.2.

    Attention(Q, K, V) = softmax(Q K^T / sqrt(d)) V                                 (1)
    head_i             = Attention(x W_Q,i, s W_K,i, s W_V,i)
    y                  = Concat(head_1, ..., head_h) W_O

x is the input; keys and values run over s, which is x itself, [memory; x], or another sequence.

Departures from the paper: none. ``model.attention_bias`` adds a bias to each of the four projections, as in GPT-2 and BERT.
Cost: time O(t s dim); O(h t s) memory for the logits where a backend materializes them; 4 dim^2 parameters.
Glossary: ``project`` W_Q, W_K, W_V stacked; ``out`` W_O.

``reference`` is equation 1 in four lines. Every backend computes the same function (``attnlab.nn.attention``), and the tests
compare each of them with it.
"""

from math import sqrt

import torch
from torch import Tensor, nn

from attnlab.variants.base import ATTEND_PLACES, BACKENDS, AttentionConfig, Projections, Variant, merge_heads


def reference(q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
    """Compute equation 1 for every head, without position scheme and dropout.

    Args:
        q: (b, h, t, d).
        k: (b, h, s, d).
        v: (b, h, s, e).
        visible: boolean, broadcastable to (b, h, t, s), True = may be attended to.

    Returns:
        (b, h, t, e); zeros for a query that may attend to no key.
    """
    logits = q @ k.mT / sqrt(q.shape[-1])
    logits = logits.masked_fill(~visible, torch.finfo(q.dtype).min)
    weights = logits.softmax(-1) * visible
    return weights @ v


class Dense(Variant):
    """Every query attends to every key that its role allows."""

    supports_memory = True
    supports_cache = True
    supports_attention_bias = True
    residual_projections = ("out",)
    places = ATTEND_PLACES | {"projections", "output_projection"}
    backends = BACKENDS
    paper = "Vaswani et al. 2017"

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        width = self.total_width(config.dim, config.heads)
        projections = Projections(config.dim, width, heads=config.heads, bias=config.bias)
        self.project = self.replaced("projections", projections)
        self.out = self.replaced("output_projection", nn.Linear(width, config.dim, bias=config.bias))

    @classmethod
    def total_width(cls, dim: int, heads: int) -> int:
        """Return the sum of the widths of the heads."""
        return dim

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        y = self.attend(q, k, v, mask)  # (b, h, t, d)
        return self.out(merge_heads(y))
