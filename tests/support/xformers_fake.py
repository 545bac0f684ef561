"""xformers' attention for machines without its kernels: the biases are its own, their effect is computed by the formula."""

from typing import Any

import torch
from torch import Tensor


def memory_efficient_attention(q: Tensor, k: Tensor, v: Tensor, *, attn_bias: Any, p: float, scale: float) -> Tensor:
    """Return attention: q (b, t, h, d), k (b, s, h, d), v (b, s, h, e) -> (b, t, h, e)."""
    assert p == 0, "the fake drops nothing"
    assert q.dtype == k.dtype == v.dtype, "the kernels take one type"
    logits = scale * torch.einsum("bthd,bshd->bhts", q, k)
    if attn_bias is not None:
        logits = logits + (attn_bias if isinstance(attn_bias, Tensor) else attn_bias.materialize(logits.shape, logits.dtype))
    return torch.einsum("bhts,bshe->bthe", logits.softmax(-1), v)
