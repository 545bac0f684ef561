"""A gate on the results of the heads.

Qiu et al. 2025, arXiv:2505.06708, "Gated Attention for Large Language Models", after the sum over the values (G1).

    y_i <- y_i * sigmoid(x_i W_g)

with a gate for every feature of a head (``per: element``) or one for each head (``per: head``).

Departures from the paper: none.
Cost: O(t dim^2) and dim^2 parameters per element; O(t dim h) and dim h parameters per head.
Glossary: ``project`` W_g.
"""

from typing import Literal

from torch import Tensor, nn

from attnlab.components.base import Component, ComponentConfig
from attnlab.nn.layers import split_heads


class Gate(Component):
    """Results of the heads, multiplied with a sigmoid of the input of their query."""

    paper = "Qiu et al. 2025"

    def __init__(self, config: ComponentConfig, *, per: Literal["element", "head"] = "element") -> None:
        super().__init__(config)
        width = config.head_dim if per == "element" else 1
        self.project = nn.Linear(config.dim, config.heads * width, bias=config.bias)

    def head_outputs(self, y: Tensor, *, x: Tensor, v: Tensor) -> Tensor:
        return y * split_heads(self.project(x), self.config.heads).sigmoid()
