"""FIRE: a learned function of the distance relative to the position of the query.

Li et al. 2024, arXiv:2310.04418, "Functional Interpolation for Relative Positions Improves Long Context Transformers".

    bias_ij = f_theta( psi(i - j) / psi(max(L, i)) ),      psi(x) = log(c x + 1)

with a network f_theta: R -> R^h of one hidden layer of ReLU, and learned scalars c > 0 and L > 0. The argument is at most 1 at
every length, so that f_theta interpolates between distances that it was trained on: *progressive interpolation*. Below the
threshold L it is a function of the distance alone.

Departures from the paper: none; as in the authors' code, c enters by its absolute value, L is the product of a constant and of
a learned factor that starts at 1, and 1e-6 is added to the denominator. The position i counts from the first key, memory
included.
Cost: the hidden layer for each pair, time and memory O(t s width) for each block, for all rows of a batch together;
(2 + h) width + h + 2 parameters for each block.
Glossary: ``hidden``, ``out`` f_theta; ``c`` c; ``threshold`` the constant in L; ``factor`` the learned factor.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.nn.layers import relative_distance
from attnlab.positions.base import Position, PositionConfig

EPSILON = 1e-6


class Fire(Position):
    """A small network that maps distances, divided by the position of the query, to a bias of each head.

    Args:
        width: of the hidden layer.
        c: initial value of c, which sets how strongly the logarithm spreads small distances.
        threshold: initial value of L.
    """

    hook = "bias"
    paper = "Li et al. 2024"

    def __init__(self, config: PositionConfig, *, width: int = 32, c: float = 0.1, threshold: float = 512.0) -> None:
        super().__init__(config)
        self.hidden = nn.Linear(1, width)
        self.out = nn.Linear(width, config.heads)
        self.c = nn.Parameter(torch.tensor(c))
        self.factor = nn.Parameter(torch.tensor(1.0))
        self.threshold = threshold

    @classmethod
    def unsupported(cls, config: PositionConfig, *, options: Mapping[str, Any] = MappingProxyType({})) -> str | None:
        if config.role == "bidirectional":
            return "does not support the role bidirectional: distances to keys ahead can exceed the position that divides them"
        for name in ("width", "c", "threshold"):
            if options.get(name, 1) <= 0:
                return f"expected a positive {name}, got {options[name]}"
        return super().unsupported(config, options=options)

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:  # type: ignore[override] of whole logits only
        t, s = q.shape[-2], k.shape[-2]
        exact = torch.promote_types(q.dtype, torch.float32)  # bf16 does not represent all integers above 256
        distance = relative_distance(t, s, device=q.device).abs().to(exact)  # those to keys ahead are hidden
        i = torch.arange(s - t, s, device=q.device, dtype=exact)
        largest = torch.maximum(i, (self.factor * self.threshold).abs().to(exact))
        x = self.psi(distance) / (self.psi(largest)[:, None] + EPSILON)  # (t, s)
        hidden = F.linear(x[..., None], self.hidden.weight.to(exact), self.hidden.bias.to(exact)).relu()
        return F.linear(hidden, self.out.weight.to(exact), self.out.bias.to(exact)).movedim(-1, 0)  # (h, t, s)

    def psi(self, x: Tensor) -> Tensor:
        """Compute log(|c| x + 1)."""
        return (self.c.abs().to(x.dtype) * x).log1p()
