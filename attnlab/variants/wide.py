"""Wide attention: every head at the full model width (Bloem 2019, "wide self-attention").

    head_i = softmax(x W_Q,i (s W_K,i)^T / sqrt(dim)) s W_V,i,     W_Q,i, W_K,i, W_V,i of dim x dim
    y      = Concat(head_1, ..., head_h) W_O,                      W_O of (h dim) x dim

4 h dim^2 parameters a block, h times those of ``dense``.
"""

from torch import Tensor, nn

from attnlab.variants import BACKENDS, Projections, Setting, Variant, merge_heads


class Wide(Variant):
    """Heads that do not share the width among them."""

    memory = True
    backends = BACKENDS
    paper = "Bloem 2019"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        width = setting.heads * setting.dim
        self.project = Projections(setting.dim, width, heads=setting.heads)
        self.out = nn.Linear(width, setting.dim, bias=False)

    @classmethod
    def head_dim(cls, dim: int, heads: int) -> int:
        return dim

    @classmethod
    def refuses(cls, *, heads: int, **asked: object) -> str | None:
        return super().refuses(heads=1, **asked)  # type: ignore[arg-type] no width is divided among the heads

    def forward(self, x: Tensor, *, source: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, source)
        return self.out(merge_heads(self.attend(q, k, v, mask)))
