"""Multi-head attention with one Einstein summation per step: the mathematics of ``dense``, index by index.

Vaswani et al. 2017, arXiv:1706.03762, "Attention Is All You Need", section 3.2.

    head_i = softmax(x W_Q,i (s W_K,i)^T / sqrt(d)) s W_V,i                         (1)
    y      = Concat(head_1, ..., head_h) W_O

The heads are an index of the weights, so no tensor is reshaped. The variant exchanges state_dicts with ``dense`` and must
agree with it; it exists because its code shows the formulas.

Departures from the paper: none.
Cost: as ``dense`` with backend ``reference``: time O(t s dim), and O(h t s) memory for the logits.
Glossary: ``project`` W_Q, W_K, W_V stacked; ``out`` W_O. Indices: b batch, t query position, s key position, m model feature,
h head, d head feature, c one of (query, key, value).
"""

import torch
from einops import rearrange
from torch import Tensor, einsum
from torch.nn import functional as F

from attnlab.nn.attention import AttentionMask
from attnlab.variants.dense import Dense


class Einsum(Dense):
    """``dense`` by einsum alone."""

    supports_attention_bias = True
    backends = ("reference",)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        context = x if context is None else context
        w_q, w_k, w_v = rearrange(self.project.weight, "(c h d) m -> c h d m", c=3, h=self.heads)
        w_o = rearrange(self.out.weight, "m (h d) -> m h d", h=self.heads)

        q = einsum("btm,hdm->bhtd", x, w_q)
        k = einsum("bsm,hdm->bhsd", context, w_k)
        v = einsum("bsm,hdm->bhsd", context, w_v)
        if self.project.bias is not None:
            b_q, b_k, b_v = rearrange(self.project.bias, "(c h d) -> c h 1 d", c=3, h=self.heads)
            q, k, v = q + b_q, k + b_k, v + b_v
        scale = q.shape[-1] ** -0.5
        q, k = self.rotate(q, k)

        logits = einsum("bhtd,bhsd->bhts", q, k) * scale
        attn_mask = None if mask is None else rearrange(mask, "b s -> b 1 1 s")
        visible = AttentionMask(self.causal, attn_mask=attn_mask).dense(*logits.shape[-2:], device=logits.device)
        bias = self.position_bias(q, k, scale=scale, visible=visible)
        if bias is not None:
            logits = logits + bias
        if visible is None:
            weights = logits.softmax(-1)
        else:
            weights = logits.masked_fill(~visible, torch.finfo(logits.dtype).min).softmax(-1)
            weights = weights * visible.any(-1, keepdim=True)  # a query that may attend to no key yields zeros
        weights = F.dropout(weights, self.dropout, self.training)
        y = einsum("bhts,bhsd,mhd->btm", weights.to(v.dtype), v, w_o)
        return y if self.out.bias is None else y + self.out.bias
