"""Wide attention: every head has the full model width.

Bloem 2019, "Transformers from scratch", https://peterbloem.nl/blog/transformers, "wide self-attention".

    head_i = softmax(x W_Q,i (s W_K,i)^T / sqrt(dim)) s W_V,i,     W_Q,i, W_K,i, W_V,i of dim by dim
    y      = Concat(head_1, ..., head_h) W_O,                      W_O of (h dim) by dim

Departures from the paper: W_O has a bias only with ``model.attention_bias``.
Cost: h times as much as ``dense``: time O(h t s dim), and 4 h dim^2 parameters.
Glossary: ``project`` W_Q, W_K, W_V stacked; ``out`` W_O.
"""

from dataclasses import replace

from attnlab.variants.base import Setting
from attnlab.variants.dense import Dense


class Wide(Dense):
    """``dense`` with heads that do not divide the width among them."""

    paper = "Bloem 2019"

    @classmethod
    def head_dim(cls, dim: int, heads: int) -> int:
        return dim

    @classmethod
    def total_width(cls, dim: int, heads: int) -> int:
        return heads * dim

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        return super().unsupported(replace(setting, heads=1))  # the heads need not divide the width
