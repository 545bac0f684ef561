"""Value residual: values mixed with the first block's.

Zhou et al. 2024, arXiv:2410.17897, "Value Residual Learning", with learned coefficients.

    v_l <- a_l v_l + b_l v_1

Departures from the paper: the first block mixes its values with themselves, (a_1 + b_1) v_1, which is v_1 at first.
Cost: O(s dim); 2 parameters for each block, 1/2 at first. The values of the first block are kept until the last block has read
    them.
Glossary: ``own`` a_l; ``first`` b_l.
"""

from typing import Any

import torch
from torch import Tensor, nn

from attnlab.components.base import Component, ComponentConfig


class ValueResidual(Component):
    """A learned mixture of each block's values with the values of the first block of its stack."""

    paper = "Zhou et al. 2024"

    def __init__(self, config: ComponentConfig) -> None:
        super().__init__(config)
        self.own = nn.Parameter(torch.tensor(0.5))
        self.first = nn.Parameter(torch.tensor(0.5))
        self._source: tuple[ValueResidual, ...] = ()  # that of the first block; a tuple, as it is no submodule
        self._values: Tensor | None = None  # of the last forward pass, for the other blocks

    def connect(self, first: Component) -> None:
        assert isinstance(first, ValueResidual)
        self._source = (first,)

    def values(self, v: Tensor) -> Tensor:
        if self._source:
            first = self._source[0]._values
            assert first is not None, "the first block computes its values first"
        else:
            first = self._values = v
        return self.own.to(v.dtype) * v + self.first.to(v.dtype) * first

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_values": None}  # a part of a graph, which cannot be copied
