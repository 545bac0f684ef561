"""Correct variants with methods for mutants to override."""

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.nn.attention import AttentionMask, attend
from attnlab.nn.layers import merge_heads
from attnlab.positions import Position
from attnlab.variants.dense import Dense


class Plain(Dense):
    """Dense attention without memory, the base of most mutants."""

    supports_memory = False


class Bare(Plain):
    """Dense attention without memory and without position schemes on queries and keys."""

    hooks = frozenset({"embed"})


class Causal(Plain):
    """Dense attention without memory, in the causal role only."""

    roles = frozenset({"causal"})


class ByHand(Plain):
    """Dense attention in single steps, each of which a mutant can override."""

    roles = frozenset({"causal", "bidirectional"})
    hooks = frozenset({"embed"})
    backends = ("reference",)
    hidden = "lowest"
    diagonal = 1

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        t, s = q.shape[2], k.shape[2]
        seen = self.seen(t, s) if self.causal else torch.ones(t, s, dtype=torch.bool)
        if mask is not None:
            seen = seen & mask[:, None, None, :]
        lowest = torch.finfo(q.dtype).min if self.hidden == "lowest" else float("-inf")
        logits = (q @ k.mT / q.shape[-1] ** 0.5 + self.own_bias(q, k)).masked_fill(~seen, lowest)
        return self.out(merge_heads(self.drop(logits.softmax(-1)) @ v))

    def seen(self, t: int, s: int) -> Tensor:
        return ~torch.ones(t, s, dtype=torch.bool).triu(self.diagonal + s - t)

    def own_bias(self, q: Tensor, k: Tensor) -> Tensor | float:
        return 0.0

    def drop(self, weights: Tensor) -> Tensor:
        return F.dropout(weights, self.dropout, self.training)


class Hooked(Plain):
    """Dense attention whose position hooks a mutant can override."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, scale: float | None = None) -> Tensor:
        scale = q.shape[-1] ** -0.5
        q, k = self.rotate(q, k)
        bias = self.position.bias(q, k, scale=scale) if _hook(self.position) == "bias" else None  # type: ignore[union-attr]
        return attend(
            q,
            k,
            v,
            AttentionMask(causal=self.causal, attn_mask=None if mask is None else mask[:, None, None, :]),
            None if bias is None else self.placed(bias),
            backend=self.backend,
            dropout=self.dropout if self.training else 0.0,
            scale=scale,
        )

    def placed(self, bias: Tensor) -> Tensor:
        return bias


def _hook(position: Position | None) -> str:
    return "none" if position is None else position.hook
