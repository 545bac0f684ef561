"""Multi-head attention: Vaswani et al. 2017, section 3.2.

    head_i = softmax(x W_Q,i (s W_K,i)^T / sqrt(d)) s W_V,i          (1)
    y      = Concat(head_1, ..., head_h) W_O

x is the input, s what keys and values run over: x itself, [memory; x], or another sequence. Departures: no biases in the
projections (nor has the paper any). Cost: time O(t s dim), O(h t s) for the logits where a backend materialises them.

Code to paper: ``project`` W_Q, W_K, W_V stacked; ``out`` W_O.
"""

from torch import Tensor, nn

from attnlab.variants import BACKENDS, AttentionConfig, Projections, Variant, merge_heads


class Dense(Variant):
    """Every query attends to every key that its role allows."""

    memory = True
    backends = BACKENDS
    paper = "Vaswani et al. 2017"

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.project = Projections(config.dim, config.dim, heads=config.heads)
        self.out = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        y = self.attend(q, k, v, mask)  # (b, h, t, d)
        return self.out(merge_heads(y))
