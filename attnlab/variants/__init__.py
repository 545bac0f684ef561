"""Attention variants: modules ``(b, t, dim) -> (b, t, dim)`` that mix along ``t``. ``Variant`` is the contract.

One variant per file; ``attnlab list variants`` prints them all.

Examples:
    >>> import torch
    >>> from attnlab.registry import VARIANTS
    >>> variant = VARIANTS.get("dense")(AttentionConfig(dim=12, heads=3, role="causal"))
    >>> variant(torch.zeros(2, 7, 12)).shape
    torch.Size([2, 7, 12])
"""

from attnlab.variants.base import BACKENDS, ROLES, AttentionConfig, Projections, Setting, Variant, merge_heads, split_heads

__all__ = ["BACKENDS", "ROLES", "AttentionConfig", "Projections", "Setting", "Variant", "merge_heads", "split_heads"]
