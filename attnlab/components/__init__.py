"""Components: changes to one place of softmax attention, which combine with each other. ``Component`` is the contract.

One component per file; ``attnlab list components`` prints them all.

Examples:
    >>> import torch
    >>> from attnlab.registry import COMPONENTS, VARIANTS
    >>> from attnlab.variants import AttentionConfig
    >>> gate = COMPONENTS.get("gate")(ComponentConfig(dim=12, heads=3, head_dim=4, role="causal", length=7))
    >>> variant = VARIANTS.get("dense")(AttentionConfig(dim=12, heads=3, role="causal", components={"gate": gate}))
    >>> variant(torch.zeros(2, 7, 12)).shape
    torch.Size([2, 7, 12])
"""

from attnlab.components.base import ATTEND_PLACES, PLACES, REPLACED, Component, ComponentConfig, Components, Setting
from attnlab.components.functions import function_component

__all__ = ["ATTEND_PLACES", "PLACES", "REPLACED", "Component", "ComponentConfig", "Components", "Setting", "function_component"]
