"""Attention by cosine similarity with a learned gain: Henry et al. 2020, "Query-Key Normalization for Transformers".

    y = softmax(g * q̂ k̂^T) v,    q̂ = q / |q|,  k̂ = k / |k|        (section 3, in place of q k^T / sqrt(d))
    g starts at g0 = log2(L^2 - L)                                   (section 3.1)

Logits of dense attention grow with the norms of queries and keys, and large ones saturate the softmax. Cosines lie in [-1, 1]
for any norms; the learned gain sets how sharp the softmax is.

Departures: one gain per head; the paper has one per layer. Cost: as dense attention.
Code to paper: ``gain`` g; ``length`` L, the length of a long sequence of the data (its 97.5th percentile).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab import register_variant
from attnlab.variants import BACKENDS, AttentionConfig, Projections, Variant, merge_heads


@register_variant("cosine")
class Cosine(Variant):
    """Dense attention whose logits are gain * cosine.

    Args:
        length: L of the initial gain, the length of a long sequence of the data.
    """

    supports_memory = True
    backends = BACKENDS
    paper = "Henry et al. 2020"

    def __init__(self, config: AttentionConfig, *, length: int = 128) -> None:
        super().__init__(config)
        self.project = Projections(config.dim, config.dim, heads=config.heads)
        self.out = nn.Linear(config.dim, config.dim, bias=False)
        self.gain = nn.Parameter(torch.full((config.heads,), math.log2(length**2 - length)))

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)  # (b, h, t, d), (b, h, s, d), (b, h, s, d)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        g = self.gain.view(-1, 1, 1) * math.sqrt(q.shape[-1])  # attend() divides by sqrt(d)
        y = self.attend(q * g, k, v, mask)  # applies role, position scheme, backend and dropout of the study
        return self.out(merge_heads(y))
