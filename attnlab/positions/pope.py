"""PoPE: polar coordinates, in which the content sets the magnitude and the position sets the angle.

Gopalakrishnan et al. 2025, arXiv:2509.10534, "Decoupling the 'What' and 'Where' With Polar Coordinate Positional Embeddings".

    a_ts = sum_c mu(q_tc) mu(k_sc) cos((s - t) theta_c + delta_c),      mu(x) = log(1 + e^x),     theta_c = base^(-(c-1)/d)

Each of the d features of a query or key is the magnitude of a complex number with the angle position times theta_c: in
Cartesian coordinates, 2 d features. (``rotary`` rotates d/2 pairs of features; their angle also depends on the content.) The
learned delta_c in [-2 pi, 0] sets the distances at which feature c matches best.

Departures from the paper: none that is known; formulas and the scale 1 / sqrt(d) of the logits were verified by a published
reproduction, not in the paper itself. delta belongs to a head. Positions count from the first key, memory included.
Cost: products of queries and keys of twice the width, time O(t s dim) more than ``rotary``; dim parameters for each block.
Glossary: ``cos``, ``sin`` cosines and sines of t theta_c, for the positions 0 .. length - 1; ``delta`` delta.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.nn.layers import angles
from attnlab.positions.base import Position, PositionConfig


class Pope(Position):
    """Magnitudes from the content, angles from the position. It supports any length.

    Args:
        base: base of the geometric sequence of wavelengths; 10000 in the paper.
        delta: initial values of delta: ``zeros``, which the paper recommends for longer sequences than in training, or
            ``uniform`` in (-2 pi, 0).
    """

    hook = "rotate"
    relative = True
    paper = "Gopalakrishnan et al. 2025"

    def __init__(self, config: PositionConfig, *, base: float = 10_000.0, delta: Literal["zeros", "uniform"] = "zeros") -> None:
        super().__init__(config)
        self.base = base
        shape = (config.heads, config.head_dim)
        self.delta = nn.Parameter(torch.zeros(shape) if delta == "zeros" else -2 * math.pi * torch.rand(shape))
        cos, sin = self._cos_sin(config.length)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.cos: Tensor
        self.sin: Tensor

    @classmethod
    def unsupported(cls, config: PositionConfig, *, options: Mapping[str, Any] = MappingProxyType({})) -> str | None:
        if options.get("base", 10_000.0) <= 1:
            return f"expected a base above 1, got {options['base']}"
        return super().unsupported(config, options=options)

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        t, s = q.shape[-2], k.shape[-2]
        cos, sin = self.cos[:s], self.sin[:s]
        if len(cos) < s or cos.device != k.device:
            cos, sin = self._cos_sin(s, device=k.device)
        exact = torch.promote_types(k.dtype, torch.float32)
        cos, sin = cos.to(exact), sin.to(exact)
        delta = self.delta.to(exact).clamp(-2 * math.pi, 0)[:, None]  # (h, 1, d)
        key_cos = cos * delta.cos() - sin * delta.sin()  # cos(s theta_c + delta_c)
        key_sin = sin * delta.cos() + cos * delta.sin()
        return _cartesian(q, cos[s - t :], sin[s - t :]), _cartesian(k, key_cos, key_sin)

    def _cos_sin(self, s: int, *, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
        """Compute cosines and sines (s, d) of the angles of positions 0 .. s-1, in float64."""
        angle = angles(torch.arange(s, device=device), 2 * self.config.head_dim, base=self.base)
        return angle.cos(), angle.sin()


def _cartesian(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return the Cartesian coordinates (b, h, n, 2 d) of the magnitudes softplus(x), x (b, h, n, d), at these angles."""
    magnitude = F.softplus(x)
    return torch.cat([magnitude * cos.to(x.dtype), magnitude * sin.to(x.dtype)], dim=-1)
