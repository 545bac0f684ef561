"""Narrow projections: the variant ``narrow`` as a component.

Bloem 2019, "Transformers from scratch", https://peterbloem.nl/blog/transformers, "narrow self-attention".

The input is cut into h pieces of d = dim / h features, and each head projects only its piece x_i, s_i:

    q_i, k_i, v_i = x_i W_Q, s_i W_K, s_i W_V,    W_Q, W_K, W_V of d by d, the same for every head

Departures from the paper: none.
Cost: 3 d^2 parameters, smaller by the factor h^2.
Glossary: ``NarrowProjections.query`` W_Q; ``key`` W_K; ``value`` W_V.
"""

from torch import nn

from attnlab.components.base import Component, Setting
from attnlab.nn.layers import NarrowProjections


class Narrow(Component):
    """Projections within each head's slice of the features, the same for all heads."""

    paper = "Bloem 2019"

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        if setting.heads * setting.head_dim != setting.dim:
            got = f"{setting.heads} heads of width {setting.head_dim} for {setting.dim} features"
            return f"expected heads that divide the features among them, got {got}"
        return super().unsupported(setting)

    def projections(self) -> nn.Module:
        return NarrowProjections(self.config.head_dim, heads=self.config.heads, bias=self.config.bias)
