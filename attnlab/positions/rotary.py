"""Rotary positions.

Su et al. 2021, arXiv:2104.09864, "RoFormer", section 3.2, equations 14 and 15.

    (x_1, x_2) -> (x_1 cos m theta_i - x_2 sin m theta_i,  x_1 sin m theta_i + x_2 cos m theta_i)
    theta_i = base^(-2(i-1)/d)

Pair i of neighboring features (x_1, x_2) of a query or key at position m is rotated by the angle m theta_i, so that q_m . k_n
depends on m and n through m - n only. With a ``fraction`` below 1, the first features are rotated and the others are not, and d
is the number of those that are (partial rotary: Black et al. 2022, arXiv:2204.06745, GPT-NeoX).

A sequence of s keys that is longer than in training, of length L, may be scaled by f = s / L (``scaling``):

    interpolation   m -> m / f                              Chen et al. 2023, arXiv:2306.15595
    ntk             base -> base f^(d / (d - 2))            Peng et al. 2024, arXiv:2309.00071, as the next one
    yarn            theta_i -> (1 - g_i) theta_i / f + g_i theta_i,  and logits times (0.1 ln f + 1)^2
                    g_i = clamp((r_i - alpha) / (beta - alpha), 0, 1),  r_i = L theta_i / (2 pi)

g_i is 1 for pairs that turn more than beta = 32 times within L, which keep their angles, and 0 for pairs that turn less than
alpha = 1 time, which are interpolated. The paper chose these numbers for Llama; below L = 201 (at the first pair's
theta_1 = 1) no pair turns beta times, and all angles are interpolated at least in part.

Departures from the papers: positions count from the first key, memory included; only differences matter, so the logits are the
same. f follows the length of each sequence (YaRN's "dynamic scaling"), and nothing is trained at it. The released code of YaRN
interpolates g_i between whole i, here g_i is as in the paper.
Cost: time O((t + s) dim) for each block; no parameters.
Glossary: ``cos``, ``sin`` cosines and sines of m theta_i, for the positions 0 .. length - 1; ``width`` d; ``factor`` f;
``kept`` g_i.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor

from attnlab.nn.layers import angles, rotate_pairs
from attnlab.positions.base import Position, PositionConfig

ALPHA, BETA = 1.0, 32.0  # of YaRN, as the paper chose them for Llama


class Rotary(Position):
    """A rotation of queries and keys. It has no parameters and supports any length.

    Args:
        base: base of the geometric sequence of wavelengths; 10000 in the paper.
        fraction: part of the features of each head that is rotated, an even number of them.
        scaling: change of the angles for sequences longer than in training: ``none``, ``interpolation``, ``ntk`` or
            ``yarn``. It has no effect up to the length of training. Beyond it, the outputs depend on the length of the
            sequence, so that decoding token by token differs from one pass.
    """

    hook = "rotate"
    relative = True
    paper = "Su et al. 2021"

    def __init__(
        self,
        config: PositionConfig,
        *,
        base: float = 10_000.0,
        fraction: float = 1.0,
        scaling: Literal["none", "interpolation", "ntk", "yarn"] = "none",
    ) -> None:
        super().__init__(config)
        self.base = base
        self.width = round(fraction * config.head_dim)
        self.scaling = scaling
        # A table, because compiled code would recompute the float64 sines for every feature of every head and sequence.
        cos, sin = self._cos_sin(config.length)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.cos: Tensor
        self.sin: Tensor

    @classmethod
    def unsupported(cls, config: PositionConfig, *, options: Mapping[str, Any] = MappingProxyType({})) -> str | None:
        base, fraction = options.get("base", 10_000.0), options.get("fraction", 1.0)
        width = fraction * config.head_dim
        if fraction == 1 and config.head_dim % 2:
            return f"requires an even head width, got {config.head_dim}: it rotates pairs of features"
        if not 0 < fraction <= 1 or abs(width - 2 * round(width / 2)) > 1e-6 or width < 1:
            return (
                f"expected a fraction of the head width {config.head_dim} that is an even number of features, "
                f"got {fraction}: it rotates pairs of features"
            )
        if base <= 1:
            return f"expected a base above 1, got {base}"
        if options.get("scaling") == "ntk" and round(width) == 2:
            return "scaling: ntk requires at least 4 rotated features of each head, got 2: the first pair is never scaled"
        return super().unsupported(config, options=options)

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        t, s = q.shape[-2], k.shape[-2]
        cos, sin = self.cos[:s], self.sin[:s]
        if len(cos) < s or cos.device != k.device:
            cos, sin = self._cos_sin(s, device=k.device)
        if self.scaling == "yarn" and s > self.config.length:
            factor = math.sqrt(self.logit_factor(s))
            q, k = factor * q, factor * k
        return self._rotate_first(q, cos[s - t :], sin[s - t :]), self._rotate_first(k, cos, sin)

    def logit_factor(self, s: int) -> float:
        if self.scaling != "yarn":
            return 1.0
        return (0.1 * math.log(max(1.0, s / self.config.length)) + 1) ** 2

    def _cos_sin(self, s: int, *, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
        """Compute cosines and sines (s, d/2) of the angles of positions 0 .. s-1, in float64."""
        m = torch.arange(s, device=device, dtype=torch.float64)
        factor = max(1.0, s / self.config.length)
        if factor == 1 or self.scaling == "none":
            angle = angles(m, self.width, base=self.base)
        elif self.scaling == "interpolation":
            angle = angles(m / factor, self.width, base=self.base)
        elif self.scaling == "ntk":
            angle = angles(m, self.width, base=self.base * factor ** (self.width / (self.width - 2)))
        else:
            angle = angles(m, self.width, base=self.base)
            turns = angles(torch.tensor([self.config.length], device=device), self.width, base=self.base) / (2 * math.pi)
            kept = ((turns - ALPHA) / (BETA - ALPHA)).clamp(0, 1)
            angle = (1 - kept) * angle / factor + kept * angle
        return angle.cos(), angle.sin()

    def _rotate_first(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate the first ``width`` features of x (b, h, n, d) by the angles with these cosines and sines (n, width/2)."""
        if self.width == x.shape[-1]:
            return _rotate_pairs(x, cos, sin)
        return torch.cat([_rotate_pairs(x[..., : self.width], cos, sin), x[..., self.width :]], dim=-1)


def _rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the feature pairs of x (b, h, n, d) by the angles with these cosines and sines (n, d/2)."""
    if not torch.compiler.is_compiling():
        return _multiply_by_phases(x, cos, sin)
    return rotate_pairs(x, cos.to(x.dtype), sin.to(x.dtype))


def _multiply_by_phases(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs as complex numbers: (x_1 + i x_2) (cos + i sin).

    On a CPU, one such product takes a fifth of the time of the four products of every second feature, but torch.compile
    generates no code for complex numbers. bf16 is computed in fp32.
    """
    dtype = torch.promote_types(x.dtype, torch.float32)
    pairs = torch.view_as_complex(x.to(dtype).contiguous().unflatten(-1, (-1, 2)))
    phases = torch.complex(cos.to(dtype), sin.to(dtype))
    return torch.view_as_real(pairs * phases).flatten(-2).to(x.dtype)
