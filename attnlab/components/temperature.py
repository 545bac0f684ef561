"""A temperature of the softmax.

Hinton et al. 2015, arXiv:1503.02531, "Distilling the Knowledge in a Neural Network", for the logits of attention.

    w_ij = softmax_j(scale q_i . k_j / tau_h + bias_ij)

Above 1, the weights are more even than with the scale 1 / sqrt(d) (Vaswani et al. 2017, section 3.2.1); below, sharper. With
``scaled: false`` the scale is 1: logits are q_i . k_j / tau_h, for any width of the heads.

Departures from the paper: tau_h is learned for each head, unless ``learned: false``; the bias of a position scheme is not
divided by it.
Cost: O(t dim); h parameters.
Glossary: ``log`` log tau_h.
"""

from math import log, sqrt

import torch
from torch import Tensor, nn

from attnlab.components.base import Component, ComponentConfig, Setting


class Temperature(Component):
    """Logits divided by a temperature, ``value`` at first.

    Args:
        value: the temperature before training.
        learned: False for a temperature that stays at ``value``.
        scaled: False for products q . k without the scale 1 / sqrt(d), where d is the width of a head.
    """

    paper = "Hinton et al. 2015"

    def __init__(self, config: ComponentConfig, *, value: float = 1.0, learned: bool = True, scaled: bool = True) -> None:
        super().__init__(config)
        self.factor = 1.0 if scaled else sqrt(config.head_dim)
        self.log = nn.Parameter(torch.full((config.heads, 1, 1), log(value)), requires_grad=learned)

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        if (value := setting.options["value"]) <= 0:
            return f"expected a positive value, got {value}"
        return super().unsupported(setting)

    def scale(self) -> Tensor:
        return self.factor * (-self.log).exp()
