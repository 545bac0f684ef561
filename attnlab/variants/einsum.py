"""Multi-head attention written as one Einstein summation a step: the mathematics of ``dense``, index by index.

Vaswani et al. 2017, equation 1, without reshaping: the heads are an index of the weights. It exchanges state_dicts with
``dense`` and must agree with it; what it adds is that the formulas can be read off the code.

Indices: b batch, t query position, s key position, m model feature, h head, d head feature, c one of (query, key, value).
"""

import torch
from einops import rearrange
from torch import Tensor, einsum, nn
from torch.nn import functional as F

from attnlab.nn.layers import causal_mask
from attnlab.variants import AttentionConfig, Projections, Variant


class Einsum(Variant):
    """``dense`` by einsum alone."""

    memory = True
    backends = ("reference",)
    paper = "Vaswani et al. 2017"

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.project = Projections(config.dim, config.dim, heads=config.heads)
        self.out = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        context = x if context is None else context
        w_q, w_k, w_v = rearrange(self.project.weight, "(c h d) m -> c h d m", c=3, h=self.heads)
        w_o = rearrange(self.out.weight, "m (h d) -> m h d", h=self.heads)

        q = einsum("btm,hdm->bhtd", x, w_q)
        k = einsum("bsm,hdm->bhsd", context, w_k)
        v = einsum("bsm,hdm->bhsd", context, w_v)
        scale = q.shape[-1] ** -0.5
        q, k = self.rotated(q, k)

        logits = einsum("bhtd,bhsd->bhts", q, k) * scale
        bias = self.logit_bias(q, k, scale=scale)
        if bias is not None:
            logits = logits + bias
        visible = self._visible(logits, mask)
        weights = logits.masked_fill(~visible, torch.finfo(logits.dtype).min).softmax(-1)
        weights = weights * visible.any(-1, keepdim=True)  # a query that sees nothing yields zeros
        weights = F.dropout(weights, self.dropout, self.training)
        return einsum("bhts,bhsd,mhd->btm", weights.to(v.dtype), v, w_o)

    def _visible(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """(1 or b, 1, t, s), True where query t may see key s."""
        t, s = logits.shape[-2:]
        visible = torch.ones(1, 1, t, s, dtype=torch.bool, device=logits.device)
        if self.causal:
            visible = visible & causal_mask(t, s, device=logits.device)
        return visible if mask is None else visible & rearrange(mask, "b s -> b 1 1 s")
