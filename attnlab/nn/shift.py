"""Short causal convolutions of each feature by itself (depthwise): mixtures of the last positions."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.nn.cache import SequenceCache


class ShortConvolution(nn.Module):
    """A learned mixture of the last positions, feature by feature:

        y_t = b + sum_{k < width} w_k * x_{t-k}

    with zeros before the first position.

    Args:
        dim: number of features.
        width: number of positions, the position itself included.
        bias: add b; else it is 0.
    """

    def __init__(self, dim: int, *, width: int = 4, bias: bool = False) -> None:
        super().__init__()
        bound = width**-0.5  # as in ``nn.Conv1d``
        self.weight = nn.Parameter(torch.empty(width, dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(dim).uniform_(-bound, bound)) if bias else None
        self.cache: SequenceCache | None = None  # set while a decoder generates

    def new_cache(self) -> SequenceCache:
        """Return an empty cache for decoding: it holds the last inputs."""
        return SequenceCache(keep=len(self.weight) - 1)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Convolve x (b, t, dim); while a decoder generates, x holds the new positions alone.

        Args:
            x: (b, t, dim).
            mask: (b, t), boolean, False at padding, which counts as zeros; None: no padding.
        """
        return self._add(torch.zeros_like(x) if self.bias is None else self.bias.to(x.dtype).expand_as(x), x, mask)

    def _add(self, y: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return y plus the mixture of x."""
        t, width = x.shape[1], len(self.weight)
        past = x if mask is None else x.masked_fill(~mask.unsqueeze(-1), 0.0)
        past = past if self.cache is None else self.cache.extend(past)
        past = F.pad(past, (0, 0, t + width - 1 - past.shape[1], 0))  # zeros before the first position
        weight = self.weight.to(x.dtype)
        for k in range(width):
            y = y + weight[k] * past[:, width - 1 - k : width - 1 - k + t]
        return y


class CausalShift(ShortConvolution):
    """A short convolution that is added to its input. The weights are 0 at first, so that the layer starts as the identity."""

    def __init__(self, dim: int, *, width: int = 4) -> None:
        super().__init__(dim, width=width)
        nn.init.zeros_(self.weight)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Shift x; takes the arguments of ``ShortConvolution``."""
        return self._add(x, x, mask)
