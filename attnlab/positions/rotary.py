"""Rotary positions.

Su et al. 2021, arXiv:2104.09864, "RoFormer", section 3.2, equations 14 and 15.

    (x_1, x_2) -> (x_1 cos m theta_i - x_2 sin m theta_i,  x_1 sin m theta_i + x_2 cos m theta_i)
    theta_i = base^(-2(i-1)/d)

Pair i of neighboring features (x_1, x_2) of a query or key at position m is rotated by the angle m theta_i, so that q_m . k_n
depends on m and n through m - n only.

Departures from the paper: positions count from the first key, memory included; only differences matter, so the logits are the
same.
Cost: time O((t + s) dim) for each block; no parameters.
Glossary: ``cos``, ``sin`` cosines and sines of m theta_i, for the positions 0 .. length - 1.
"""

from typing import Any

import torch
from torch import Tensor

from attnlab.nn.layers import angles
from attnlab.positions.base import Position, PositionConfig


class Rotary(Position):
    """A rotation of queries and keys. It has no parameters and supports any length.

    Args:
        base: base of the geometric sequence of wavelengths; 10000 in the paper.
    """

    hook = "rotate"
    relative = True
    paper = "Su et al. 2021"

    def __init__(self, config: PositionConfig, *, base: float = 10_000.0) -> None:
        super().__init__(config)
        self.base = base
        # A table, because compiled code would recompute the float64 sines for every feature of every head and sequence.
        cos, sin = self._cos_sin(config.length)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.cos: Tensor
        self.sin: Tensor

    @classmethod
    def unsupported(cls, config: PositionConfig, **options: Any) -> str | None:
        if config.head_dim % 2:
            return f"requires an even head width, got {config.head_dim}: it rotates pairs of features"
        return super().unsupported(config, **options)

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        t, s = q.shape[-2], k.shape[-2]
        cos, sin = self.cos[:s], self.sin[:s]
        if len(cos) < s or cos.device != k.device:
            cos, sin = self._cos_sin(s, device=k.device)
        return _rotate_pairs(q, cos[s - t :], sin[s - t :]), _rotate_pairs(k, cos, sin)

    def _cos_sin(self, s: int, *, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
        """Compute cosines and sines (s, d/2) of the angles of positions 0 .. s-1, in float64."""
        angle = angles(torch.arange(s, device=device), self.config.head_dim, base=self.base)
        return angle.cos(), angle.sin()


def _rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the feature pairs of x (b, h, n, d) by the angles with these cosines and sines (n, d/2)."""
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    x1, x2 = x[..., 0::2], x[..., 1::2]
    return torch.stack([x1 * cos - x2 * sin, x1 * sin + x2 * cos], dim=-1).flatten(-2)
