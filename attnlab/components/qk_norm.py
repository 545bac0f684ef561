"""Queries and keys of unit scale, with a learned gain.

Henry et al. 2020, arXiv:2010.04245, "Query-Key Normalization for Transformers", with RMSNorm instead of the l2
norm, as in current models.

    q <- g_h RMSNorm(q),    k <- RMSNorm(k),    so that s_ij = g_h sqrt(d) cos(q_i, k_j)

No logit exceeds g_h sqrt(d), however large the queries and keys become.

Departures from the paper: one gain for each head, not for each layer; the gain is relative to sqrt(d), the largest logit of
normed vectors under the scale 1 / sqrt(d); it starts from ``gain``, not from the logarithm of the length.
Cost: O((t + s) dim); h parameters.
Glossary: ``gain`` g_h.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.components.base import Component, ComponentConfig


class QKNorm(Component):
    """RMSNorm of queries and keys."""

    paper = "Henry et al. 2020"

    def __init__(self, config: ComponentConfig, *, gain: float = 1.0) -> None:
        super().__init__(config)
        self.gain = nn.Parameter(torch.full((config.heads, 1, 1), float(gain)))

    def queries_keys(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.gain.to(q.dtype) * F.rms_norm(q, q.shape[-1:]), F.rms_norm(k, k.shape[-1:])
