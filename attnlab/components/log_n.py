"""A temperature that follows the number of keys: logits multiplied by log n.

Nakanishi 2025, arXiv:2501.19399, "Scalable-Softmax Is Superior for Attention".

    w_ij = softmax_j(g_h log(n_i) s_ij),        n_i the number of keys that query i may attend to

With more keys, the largest weight of a softmax shrinks; logits that grow as log n keep it, also beyond the trained length.

Departures from the paper: at first, g_h = 1 / log N with N the longest sequence in training, so that its last query has the
usual logits. s_ij includes the bias of a position scheme, and a window does not reduce n_i.
Cost: O(h t s); h parameters.
Glossary: ``gain`` g_h.
"""

from math import log

import torch
from torch import Tensor, nn

from attnlab.components.base import Component, ComponentConfig
from attnlab.nn.functions import ScoreFunction


class LogN(Component):
    """Logits multiplied by the logarithm of the number of keys, and by a learned gain for each head."""

    roles = frozenset({"causal", "bidirectional"})  # of cross-attention, a decoder has keys in its first call alone
    paper = "Nakanishi 2025"

    def __init__(self, config: ComponentConfig) -> None:
        super().__init__(config)
        self.gain = nn.Parameter(torch.full((config.heads,), 1 / log(max(config.length, 2))))

    def score_function(self, context: Tensor, mask: Tensor | None) -> ScoreFunction:
        causal, length = self.config.role == "causal", context.shape[1]
        keys = None if mask is None else mask.cumsum(1) if causal else mask.sum(1, keepdim=True).expand(mask.shape)

        def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            n = keys[b, i] if keys is not None else i + 1 if causal else torch.full_like(i, length)
            return s * (self.gain[h] * n.clamp(min=1).to(self.gain.dtype).log()).to(s.dtype)

        return score
