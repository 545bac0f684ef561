"""Grouped-query attention: several heads of queries share one head of keys and values.

Ainslie et al. 2023, arXiv:2305.13245, "GQA". With one head it is multi-query attention (Shazeer 2019,
arXiv:1911.02150).

    head_i = softmax(x W_Q,i (s W_K,g)^T / sqrt(d)) s W_V,g,    g = floor(i G / h)

Departures from the paper: the groups are trained from the start, not averaged from a model with more heads.
Cost: time O(t s dim) as without it; (2 + 2 G / h) dim^2 parameters with W_O, and a cache smaller by the factor G / h.
Glossary: ``count`` G.
"""

from torch import nn

from attnlab.components.base import Component, ComponentConfig, Setting
from attnlab.nn.layers import Projections


class KeyValueHeads(Component):
    """``count`` heads of keys and values."""

    paper = "Ainslie et al. 2023"

    def __init__(self, config: ComponentConfig, *, count: int) -> None:
        super().__init__(config)
        self.count = count

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        count = setting.options["count"]
        if count < 1 or setting.heads % count:
            return f"expected a count of heads of keys and values that divides {setting.heads} heads, got {count}"
        return super().unsupported(setting)

    def projections(self) -> nn.Module:
        config = self.config
        width = config.heads * config.head_dim
        return Projections(config.dim, width, heads=config.heads, kv_heads=self.count, bias=config.bias)
