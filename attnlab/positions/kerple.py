"""KERPLE: a learned penalty on the distance, with the shape of a kernel.

Chi et al. 2022, arXiv:2205.09921, "KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation".

    bias_ij = -r_1 log(1 + r_2 |i - j|)      r_1, r_2 > 0              the logarithmic variant
    bias_ij = -r_1 |i - j|^r_2               r_1 > 0,  0 < r_2 <= 2    the power variant

with r_1 and r_2 learned for each head: conditionally positive definite kernels of i and j. ALiBi is the power variant with
r_2 = 1 and r_1 its fixed slopes.

Departures from the paper: the authors' code clamps r_1 and r_2 to their ranges in every step; here they are
r_1 = softplus(rho_1), r_2 = softplus(rho_2), and 2 sigmoid(rho_2) in the power variant, which have a gradient everywhere. The
initial values are as in that code, uniform in (0, 2) and (0, 1): r_1 and r_2 of the logarithmic variant, r_2 and r_1 of the
power variant.
Cost: one (h, t, s) tensor in addition to the logits; 2 h parameters for each block.
Glossary: ``rho_1``, ``rho_2`` as above; ``r1``, ``r2`` r_1, r_2.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.nn.layers import relative_distance
from attnlab.positions.base import Position, PositionConfig

SMALLEST = 0.01  # initial value of r_1 and r_2, as in the authors' code


class Kerple(Position):
    """A learned logarithm or power of the distance, subtracted from the logits. It supports any length.

    Args:
        kernel: ``log`` or ``power``.
    """

    hook = "bias"
    relative = True
    paper = "Chi et al. 2022"

    def __init__(self, config: PositionConfig, *, kernel: Literal["log", "power"] = "log") -> None:
        super().__init__(config)
        self.kernel = kernel
        up_to_1 = torch.rand(config.heads).clamp(min=SMALLEST)
        up_to_2 = (2 * torch.rand(config.heads)).clamp(SMALLEST, 2 - SMALLEST)
        if kernel == "log":
            self.rho_1, self.rho_2 = (nn.Parameter(r.expm1().log()) for r in (up_to_2, up_to_1))
        else:
            self.rho_1, self.rho_2 = nn.Parameter(up_to_1.expm1().log()), nn.Parameter((up_to_2 / 2).logit())

    def bias(
        self, q: Tensor, k: Tensor, *, scale: float, heads: slice = slice(None), step: int = 1, offset: Tensor | int = 0
    ) -> Tensor:
        exact = torch.promote_types(q.dtype, torch.float32)  # bf16 does not represent all integers above 256
        rho_1, rho_2 = (rho.to(exact)[heads, None, None] for rho in (self.rho_1, self.rho_2))
        r1 = F.softplus(rho_1)
        distance = (relative_distance(q.shape[-2], k.shape[-2], device=q.device) * step + offset).abs().to(exact)
        if self.kernel == "log":
            r2 = F.softplus(rho_2)
            return -r1 * (r2 * distance).log1p()  # ([...,] h, t, s)
        r2 = 2 * rho_2.sigmoid()
        return -r1 * distance**r2
