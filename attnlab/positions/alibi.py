"""ALiBi: attention with linear biases.

Press et al. 2022, arXiv:2108.12409, "Train Short, Test Long", section 3.

    bias_ij = -m_h |i - j|

with one slope m_h for each head. For a power of two of heads h, the slopes are 2^(-8/h), 2^(-16/h), ..., 2^-8. For other
numbers of heads, the authors' code takes the slopes of the next lower power of two and every second slope of the next higher.

Departures from the paper: the paper is causal; in a bidirectional role the distance is used without its sign.
Cost: one (h, t, s) tensor in addition to the logits; no parameters.
Glossary: ``slopes`` m_h.
"""

import torch
from torch import Tensor

from attnlab.nn.layers import relative_distance
from attnlab.positions.base import Position, PositionConfig


class Alibi(Position):
    """A linear penalty on the distance. It has no parameters and supports any length."""

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
        exact = torch.promote_types(q.dtype, torch.float32)  # bf16 does not represent all integers above 256
        return -self.slopes.to(exact)[heads, None, None] * distance.abs()  # ([...,] h, t, s)


def slopes(heads: int) -> list[float]:
    """Return the slope of every head, as the authors' code does.

    Examples:
        >>> slopes(2)
        [0.0625, 0.00390625]
    """
    power = 1 << (heads.bit_length() - 1)  # the largest power of two up to heads
    regular = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    finer = [2 ** (-8 * (i + 1) / (2 * power)) for i in range(2 * power)]
    return regular + finer[0::2][: heads - power]
