"""Logits that are bounded by a hyperbolic tangent.

Gemma Team 2024, arXiv:2408.00118, "Gemma 2": "logit soft-capping".

    s_ij <- c tanh(s_ij / c)

Departures from the paper: none.
Cost: O(h t s); no parameters.
Glossary: ``cap`` c.
"""

from torch import Tensor

from attnlab.components.base import Component, ComponentConfig, Setting


class Softcap(Component):
    """Logits between -cap and cap."""

    paper = "Gemma Team 2024"

    def __init__(self, config: ComponentConfig, *, cap: float = 50.0) -> None:
        super().__init__(config)
        self.cap = cap

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        if (cap := setting.options["cap"]) <= 0:
            return f"expected a positive cap, got {cap}"
        return super().unsupported(setting)

    def score(self, s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.cap * (s / self.cap).tanh()
