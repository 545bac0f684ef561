"""Multi-head attention without the output projection W_O.

    head_i = softmax(x W_Q,i (s W_K,i)^T / sqrt(d)) s W_V,i
    y      = Concat(head_1, ..., head_h)

Everything else is ``dense``: heads, projections of every head, scale. Without W_O head i writes to its own d features of the
output and no other; with a single head, W_V W_O is one matrix, and W_O is redundant. dim^2 parameters fewer a block.
"""

from torch import Tensor

from attnlab.variants import BACKENDS, AttentionConfig, Projections, Variant, merge_heads


class NoWo(Variant):
    """``dense`` with the concatenated heads as its output."""

    memory = True
    backends = BACKENDS
    paper = "Bloem 2019 asks the question"

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.project = Projections(config.dim, config.dim, heads=config.heads)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        return merge_heads(self.attend(q, k, v, mask))
