"""A variant with two common mistakes, both found by `attnlab check examples/my_variant/broken.py:Broken`.

Multi-head attention without the helpers of `Variant`. The end of this file explains the mistakes.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.variants import AttentionConfig, Projections, Variant, merge_heads


class Broken(Variant):
    """Dense attention with two mistakes."""

    roles = frozenset({"causal", "bidirectional"})
    hooks = frozenset({"embed", "bias"})

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.project = Projections(config.dim, config.dim, heads=config.heads)
        self.out = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)  # (b, h, t, d)
        logits = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # (b, h, t, t)
        hidden = torch.zeros(logits.shape[-2:], dtype=torch.bool, device=x.device)
        if self.causal:
            hidden = torch.ones_like(hidden).triu(diagonal=2)
        if mask is not None:
            hidden = hidden | ~mask[:, None, None, :]
        weights = logits.masked_fill(hidden, torch.finfo(logits.dtype).min).softmax(-1)
        weights = F.dropout(weights, self.dropout, self.training)
        return self.out(merge_heads(weights @ v))


# 1. triu(diagonal=2) leaves the next token visible. It must be diagonal=1.
# 2. `hooks` declares "bias", but self.position.bias(q, k, scale=...) is never added to the logits.
