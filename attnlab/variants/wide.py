"""Wide attention: every head at the full model width (Bloem 2019, "wide self-attention").

    head_i = softmax(x W_Q,i (s W_K,i)^T / sqrt(dim)) s W_V,i,     W_Q,i, W_K,i, W_V,i of dim x dim
    y      = Concat(head_1, ..., head_h) W_O,                      W_O of (h dim) x dim

4 h dim^2 parameters a block, h times those of ``dense``.
"""

from typing import Any

from torch import Tensor, nn

from attnlab.variants import BACKENDS, AttentionConfig, Projections, Variant, merge_heads


class Wide(Variant):
    """Heads that do not share the width among them."""

    memory = True
    backends = BACKENDS
    paper = "Bloem 2019"

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        width = config.heads * config.dim
        self.project = Projections(config.dim, width, heads=config.heads)
        self.out = nn.Linear(width, config.dim, bias=False)

    @classmethod
    def head_dim(cls, dim: int, heads: int) -> int:
        return dim

    @classmethod
    def unsupported(cls, *, heads: int, **config: Any) -> str | None:
        return super().unsupported(heads=1, **config)  # no width is divided among the heads

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        return self.out(merge_heads(self.attend(q, k, v, mask)))
