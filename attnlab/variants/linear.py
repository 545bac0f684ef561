"""Linear attention: a kernel of feature maps instead of the softmax.

Katharopoulos et al. 2020, arXiv:2006.16236, "Transformers are RNNs".

    V'_i = phi(Q_i)^T sum_j phi(K_j) V_j^T / (phi(Q_i)^T sum_j phi(K_j))
    phi(x) = elu(x) + 1

The sums run over j <= i in a causal role: a recurrence of the state S_i = S_(i-1) + phi(K_i) V_i^T. In the other roles they run
over all keys. ``feature_map: taylor`` is the second-order approximation of exp (Arora et al. 2024,
arXiv:2402.18668, "Based"):

    phi(q)^T phi(k) = 1 + q^T k / sqrt(d) + (q^T k)^2 / (2 d)

Departures from the paper: ``taylor`` has the d (d + 1) / 2 distinct products of features, once each; its head width is the
model's, where Based has 16. Nothing is added to the denominator, where the authors' code adds 1e-6; a query without keys
yields zeros.
Cost: time O(t (C + f) dim) in chunks of C = 64 positions with f features of a head, f = d for elu and (d + 1)(d + 2) / 2 for
taylor; a state of f (d + 1) numbers a head; 4 dim^2 parameters.
Glossary: ``project`` W_Q, W_K, W_V stacked; ``features`` phi; ``out`` W_O.
"""

from math import sqrt
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.nn.layers import Projections, merge_heads
from attnlab.nn.linear_attention import linear_attention, sum_over_keys
from attnlab.variants.base import AttentionConfig
from attnlab.variants.linear_recurrence import LinearRecurrence, widen


class Linear(LinearRecurrence):
    """Attention with weights that are products of features of queries and keys.

    Args:
        feature_map: ``elu`` or ``taylor``.
    """

    roles = frozenset({"causal", "bidirectional", "cross"})
    supports_cache = True
    supports_attention_bias = True
    default_position = "learned"
    permutation_equivariant = True
    paper = "Katharopoulos et al. 2020"

    def __init__(self, config: AttentionConfig, *, feature_map: Literal["elu", "taylor"] = "elu") -> None:
        super().__init__(config)
        self.feature_map = feature_map
        self.project = Projections(config.dim, config.dim, heads=config.heads, bias=config.bias)
        self.out = nn.Linear(config.dim, config.dim, bias=config.bias)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        rule = linear_attention if self.causal else sum_over_keys
        values = torch.cat([widen(v), torch.ones_like(v[..., :1])], dim=-1)  # the last column sums up the weights
        sums = self.recur(rule, self.features(widen(q)), self.features(widen(k)), values, mask=mask)
        total = sums[..., -1:]
        y = sums[..., :-1] / (total + (total == 0))
        return self.out(merge_heads(y.to(v.dtype)))

    def features(self, x: Tensor) -> Tensor:
        """Return phi of queries or keys (b, h, n, d): (b, h, n, f)."""
        if self.feature_map == "elu":
            return F.elu(x) + 1
        x = x * self.head_width**-0.25
        i, j = torch.triu_indices(self.head_width, self.head_width, offset=1, device=x.device)
        return torch.cat([torch.ones_like(x[..., :1]), x, x.square() / sqrt(2), x[..., i] * x[..., j]], dim=-1)
