"""Sinusoidal absolute positions (Vaswani et al. 2017, section 3.5): fixed waves, no parameters, any length."""

import torch
from torch import Tensor

from attnlab.nn.layers import sinusoids
from attnlab.positions import Position, PositionConfig


class Sinusoidal(Position):
    """PE(p, 2i) = sin(p / 10000^(2i/dim)), PE(p, 2i+1) = cos of the same angle."""

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
