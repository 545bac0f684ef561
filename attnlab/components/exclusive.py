"""Exclusive self-attention (XSA): results without their part along the query's value.

arXiv:2603.09078, "Exclusive Self Attention".

    z_i = y_i - (y_i . u_i) u_i,    u_i = v_i / |v_i|

The residual connection already carries x_i; what a head adds is then about the other positions. The first position of a causal
role has no other: its output is 0.

Departures from the paper: none known; the formula comes from an abstract and from independent implementations.
Cost: O(t dim); no parameters.
Glossary: ``own`` v_i; ``u`` u_i.
"""

from torch import Tensor
from torch.nn import functional as F

from attnlab.components.base import Component


class Exclusive(Component):
    """Results of the heads, orthogonal to the value of their position."""

    roles = frozenset({"causal", "bidirectional"})
    constant_first_output = True
    paper = "arXiv:2603.09078"

    def head_outputs(self, y: Tensor, *, x: Tensor, v: Tensor) -> Tensor:
        own = v[:, :, v.shape[2] - y.shape[2] :]
        u = F.normalize(own, dim=-1)
        return y - (y * u).sum(-1, keepdim=True) * u
