"""Basic attention, without parameters (Bloem 2019, "basic self-attention").

    y = softmax(x s^T) s

No projections, no heads, no scale: a token mixes in the tokens that it resembles, itself first of all.
"""

from torch import Tensor

from attnlab.backends import attend
from attnlab.variants import Setting, Variant


class Basic(Variant):
    """Attention of the input over itself. It has no heads, so ``model.heads`` is set to 1."""

    hooks = frozenset({"embed"})  # with queries equal to keys there is nothing that could learn to use the others
    memory = True
    backends = ("reference", "sdpa", "xformers")
    has_heads = False
    paper = "Bloem 2019"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)

    def forward(self, x: Tensor, *, source: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        s = (x if source is None else source).unsqueeze(1)  # (b, 1, s, dim)
        allowed = None if mask is None else mask[:, None, None, :]
        dropout = self.dropout if self.training else 0.0
        y = attend(
            x.unsqueeze(1), s, s, backend=self.backend, causal=self.causal, allowed=allowed, dropout=dropout, scale=1.0
        )
        return y.squeeze(1)
