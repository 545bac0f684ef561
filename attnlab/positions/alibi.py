"""ALiBi: attention with linear biases (Press et al. 2022, section 3).

    bias_ij = -m_h |i - j|

with one slope m_h a head. For a power of two of heads the slopes are 2^(-8/h), 2^(-16/h), ..., 2^-8. For other numbers of
heads the authors take the slopes of the next lower power of two and fill up with every second slope of the next higher.

Departure: the paper is causal; for a bidirectional role the distance is taken without its sign.
"""

import torch
from torch import Tensor

from attnlab.nn.layers import relative_distance
from attnlab.positions import Position, PositionConfig


class Alibi(Position):
    """Penalises distance, linearly. No parameters, any length."""

    hook = "bias"
    relative = True
    paper = "Press et al. 2022"

    def __init__(self, config: PositionConfig) -> None:
        super().__init__(config)
        self.register_buffer("slopes", torch.tensor(slopes(config.heads)), persistent=False)  # (h,)
        self.slopes: Tensor

    def bias(
        self, q: Tensor, k: Tensor, *, scale: float, heads: slice = slice(None), step: int = 1, offset: Tensor | int = 0
    ) -> Tensor:
        distance = relative_distance(q.shape[-2], k.shape[-2], device=q.device) * step + offset
        exact = torch.promote_types(q.dtype, torch.float32)  # bf16 cannot count beyond 256
        return -self.slopes.to(exact)[heads, None, None] * distance.abs()  # ([...,] h, t, s)


def slopes(heads: int) -> list[float]:
    """The slope of every head, as in the authors' code."""
    power = 1 << (heads.bit_length() - 1)  # the largest power of two that is at most heads
    regular = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    finer = [2 ** (-8 * (i + 1) / (2 * power)) for i in range(2 * power)]
    return regular + finer[0::2][: heads - power]
