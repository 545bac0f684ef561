"""Basic attention, without parameters (Bloem 2019, "basic self-attention").

    y = softmax(x s^T) s

No projections, no heads, no scale: a token mixes in the tokens that it resembles, itself first of all.
"""

from torch import Tensor

from attnlab.variants import BACKENDS, Variant


class Basic(Variant):
    """Attention of the input over itself. It has no heads, so ``model.heads`` is set to 1."""

    memory = True
    backends = BACKENDS
    has_heads = False
    paper = "Bloem 2019"

    @classmethod
    def head_dim(cls, dim: int, heads: int) -> int:
        return dim

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q = x.unsqueeze(1)  # (b, 1, t, dim)
        s = q if context is None else context.unsqueeze(1)  # (b, 1, s, dim)
        return self.attend(q, s, s, mask, scale=1.0).squeeze(1)
