"""Dropout (Srivastava et al. 2014) with few random bits, for a CPU.

PyTorch draws 53 bits for each factor on a CPU that is not Intel's, which takes longer than a layer norm. Here each factor
takes 16: probabilities are rounded to multiples of 2^-16, and factors scaled by the rounded ones, so that expectations are
exact.
"""

import torch
from torch import Tensor, nn

LEVELS = 1 << 16  # that an int16 has
FACTORS_PER_DRAW = 4  # int16 in an int64


def dropout_factors(x: Tensor, p: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Return a factor for each element of x, of its shape and dtype: 0 with probability p, else 1 / (1 - p).

    Args:
        x: on a CPU.
        p: less than 1; rounded to a multiple of 2^-16.
        generator: draws the numbers; default: the global one.
    """
    dropped = min(round(p * LEVELS), LEVELS - 1)
    draws = torch.empty(-(-x.numel() // FACTORS_PER_DRAW), dtype=torch.int64)
    draws.random_(-(1 << 63), None, generator=generator)  # all 64 bits; without bounds, the sign would be 0
    levels = draws.view(torch.int16)[: x.numel()].view(x.shape)
    kept = levels.ge_(dropped - LEVELS // 2)  # in place as int16: a comparison to bool is several times slower
    scale = torch.tensor(LEVELS / (LEVELS - dropped), dtype=x.dtype)
    if x.dtype.itemsize == kept.dtype.itemsize:
        return kept.mul_(int(scale.view(torch.int16))).view(x.dtype)  # 1 -> the bits of scale, 0 -> those of 0
    return kept.to(x.dtype).mul_(scale)


class Dropout(nn.Dropout):
    """``nn.Dropout`` that is faster on a CPU. On other devices, and when it is compiled, it is ``nn.Dropout``."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x with features set to zero in training, and the others scaled, with the shape and dtype of x."""
        if not self.training or not 0 < self.p < 1 or x.device.type != "cpu" or torch.compiler.is_compiling():
            return super().forward(x)
        return x * dropout_factors(x, self.p)
