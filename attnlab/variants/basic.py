"""Basic attention, without parameters.

Bloem 2019, "Transformers from scratch", https://peterbloem.nl/blog/transformers, "basic self-attention".

    y = softmax(x s^T) s

No projections, no heads, no scale: each token averages the tokens that resemble it, most of all itself.

Departures from the paper: none.
Cost: time O(t s dim); no parameters.
Glossary: ``x`` x; ``s`` the context, x itself by default.
"""

from torch import Tensor

from attnlab.variants.base import Variant


class Basic(Variant):
    """Attention of the input over itself. It has no heads, so the plan sets ``model.heads`` to 1."""

    supports_memory = True
    supports_cache = True
    backends = ("reference", "blocked", "sdpa", "xformers")
    residual_projections = ()
    has_heads = False
    paper = "Bloem 2019"

    @classmethod
    def head_dim(cls, dim: int, heads: int) -> int:
        return dim

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q = x.unsqueeze(1)  # (b, 1, t, dim)
        s = q if context is None else context.unsqueeze(1)  # (b, 1, s, dim)
        return self.attend(q, s, s, mask, scale=1.0).squeeze(1)
