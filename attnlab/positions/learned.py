"""Learned absolute positions: one trained vector for every position (Gehring et al. 2017; Vaswani et al. 2017, 3.5)."""

import torch
from torch import Tensor, nn

from attnlab.positions import Position, PositionConfig


class Learned(Position):
    """A table of ``length`` vectors. Positions beyond it have no vector, so longer sequences are an error.

    Args:
        std: standard deviation of the initial vectors; token embeddings start with 1.
    """

    hook = "embed"
    extrapolates = False
    paper = "Gehring et al. 2017"

    def __init__(self, config: PositionConfig, *, std: float = 0.1) -> None:
        super().__init__(config)
        self.table = nn.Parameter(torch.randn(config.length, config.dim) * std)

    def embed(self, t: int) -> Tensor:
        if t > len(self.table):
            raise ValueError(f"learned positions were trained for length {len(self.table)}, asked for {t}")
        return self.table[:t]
