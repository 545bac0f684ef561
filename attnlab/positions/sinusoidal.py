"""Sinusoidal absolute positions.

Vaswani et al. 2017, arXiv:1706.03762, "Attention Is All You Need", section 3.5.

    PE(p, 2i)     = sin(p / 10000^(2i/dim))
    PE(p, 2i + 1) = cos(p / 10000^(2i/dim))

Departures from the paper: none.
Cost: time O(t dim), once for the model; no parameters.
Glossary: ``waves`` PE of the positions 0 .. length - 1.
"""

import torch
from torch import Tensor

from attnlab.nn.layers import sinusoids
from attnlab.positions.base import Position, PositionConfig


class Sinusoidal(Position):
    """Fixed sines and cosines of the position. It has no parameters and supports any length."""

    hook = "embed"
    paper = "Vaswani et al. 2017"

    def __init__(self, config: PositionConfig) -> None:
        super().__init__(config)
        waves = sinusoids(torch.arange(config.length), config.dim).to(torch.get_default_dtype())
        self.register_buffer("waves", waves, persistent=False)
        self.waves: Tensor

    def embed(self, t: int) -> Tensor:
        if t > len(self.waves):
            return sinusoids(torch.arange(t, device=self.waves.device), self.config.dim).to(self.waves.dtype)
        return self.waves[:t]
