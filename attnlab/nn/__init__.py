"""Building blocks of variants and models: attention backends, masks, heads and feed-forward layers.

Letters: ``b`` batch, ``h`` heads, ``t`` query positions, ``s`` key positions, ``d`` head width, ``dim`` model width.

Examples:
    >>> import torch
    >>> q = torch.zeros(1, 1, 2, 4)  # all visible keys get the same weight
    >>> v = torch.tensor([2.0, 4.0]).view(1, 1, 2, 1)
    >>> attend(q, q, v, AttentionMask(causal=True), backend="sdpa").flatten()
    tensor([2., 3.])
"""

from attnlab.nn.attention import BACKENDS, AttentionMask, LogitBias, RelativeLogits, attend, record_attention_weights
from attnlab.nn.feed_forward import FeedForward
from attnlab.nn.layers import (
    Projections,
    causal_mask,
    expand_heads,
    merge_heads,
    relative_distance,
    relative_shift,
    sinusoids,
    split_heads,
)

__all__ = [
    "BACKENDS",
    "AttentionMask",
    "FeedForward",
    "LogitBias",
    "Projections",
    "RelativeLogits",
    "attend",
    "causal_mask",
    "expand_heads",
    "merge_heads",
    "record_attention_weights",
    "relative_distance",
    "relative_shift",
    "sinusoids",
    "split_heads",
]
