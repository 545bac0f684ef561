"""Multi-head attention without the output projection W_O.

Bloem 2019, "Transformers from scratch", https://peterbloem.nl/blog/transformers, raises the question; everything else as in
Vaswani et al. 2017, arXiv:1706.03762, section 3.2.

    head_i = softmax(x W_Q,i (s W_K,i)^T / sqrt(d)) s W_V,i
    y      = Concat(head_1, ..., head_h)

The heads, their projections and the scale are as in ``dense``. Without W_O, head i writes to its own d features of the
output only; with a single head, W_V W_O is one matrix, and W_O is redundant.

Departures from the paper: no W_O.
Cost: as ``dense``, less dim^2 parameters and the time O(t dim^2) of their product.
Glossary: ``project`` W_Q, W_K, W_V stacked.
"""

from torch import nn

from attnlab.variants.base import AttentionConfig
from attnlab.variants.dense import Dense


class NoWo(Dense):
    """``dense`` with the concatenated heads as its output."""

    residual_projections = ()
    places = Dense.places - {"output_projection"}
    paper = "Bloem 2019 asks the question"

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.out = nn.Identity()
