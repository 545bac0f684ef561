"""Attention variants: modules ``(b, t, dim) -> (b, t, dim)`` that mix along ``t``. The contract is ``Variant``."""

from attnlab.variants.base import BACKENDS, ROLES, Projections, Setting, Variant, merge_heads, split_heads

__all__ = ["BACKENDS", "ROLES", "Projections", "Setting", "Variant", "merge_heads", "split_heads"]
