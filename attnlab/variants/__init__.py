"""Attention variants: modules ``(b, t, dim) -> (b, t, dim)`` that mix along ``t``. The contract is ``Variant``."""

from attnlab.variants.base import BACKENDS, ROLES, AttentionConfig, Projections, Variant, merge_heads, split_heads

__all__ = ["BACKENDS", "ROLES", "Projections", "AttentionConfig", "Variant", "merge_heads", "split_heads"]
