"""Rotary positions: RoFormer (Su et al. 2021), equations 14 and 15.

Each pair of neighbouring features (x_1, x_2) of a query or key at position m is turned by the angle m theta_i,
theta_i = base^(-2(i-1)/d), so that q_m . k_n depends on m and n through m - n only.

Departure: positions count from the first key, memory included; only differences matter, so nothing else changes.
"""

import torch
from torch import Tensor

from attnlab.nn.layers import angles
from attnlab.positions import Position, PositionConfig


class Rotary(Position):
    """Turns queries and keys. No parameters, any length.

    Args:
        base: the wavelength scale, 10000 in the paper.
    """

    hook = "rotate"
    relative = True
    paper = "Su et al. 2021"

    def __init__(self, config: PositionConfig, *, base: float = 10_000.0) -> None:
        super().__init__(config)
        self.base = base
        # A table: what compiles this would take sines and cosines in float64 anew for every feature of every head and sequence.
        cos, sin = self._waves(config.length)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.cos: Tensor
        self.sin: Tensor

    @classmethod
    def unsupported(cls, config: PositionConfig) -> str | None:
        if config.head_dim % 2:
            return f"requires an even head width, got {config.head_dim}: it rotates pairs of features"
        return super().unsupported(config)

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        t, s = q.shape[-2], k.shape[-2]
        cos, sin = self.cos[:s], self.sin[:s]
        if len(cos) < s or cos.device != k.device:
            cos, sin = self._waves(s, device=k.device)
        return _turn(q, cos[s - t :], sin[s - t :]), _turn(k, cos, sin)

    def _waves(self, s: int, *, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
        """(s, d/2) each, in float64: the cosines and sines of the angles of positions 0 .. s-1."""
        angle = angles(torch.arange(s, device=device), self.config.head_dim, base=self.base)
        return angle.cos(), angle.sin()


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the feature pairs of x (b, h, n, d) by the angles of cos and sin (n, d/2)."""
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    x1, x2 = x[..., 0::2], x[..., 1::2]
    return torch.stack([x1 * cos - x2 * sin, x1 * sin + x2 * cos], dim=-1).flatten(-2)
