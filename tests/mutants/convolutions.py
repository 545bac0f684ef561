"""Mutants of a recurrence with short convolutions."""

from typing import Any

from torch import Tensor, nn

from attnlab.nn.shift import ShortConvolution
from attnlab.variants import AttentionConfig
from attnlab.variants.delta import Delta


class Convolved(Delta):
    """A recurrence whose convolutions are of the class ``kind``."""

    kind: type[ShortConvolution] = ShortConvolution

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.convolutions = nn.ModuleDict({name: self.kind(config.dim) for name in ("query", "key", "value")})


class WithoutCache(ShortConvolution):
    def new_cache(self) -> Any:
        return None


class CountingPadding(ShortConvolution):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x)


class Ahead(ShortConvolution):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x.flip(1), None if mask is None else mask.flip(1)).flip(1)


class ForgetsInputs(Convolved):
    """Does not keep the last inputs of its convolutions."""

    kind = WithoutCache


class ConvolvesPadding(Convolved):
    """Mixes padding into the first positions."""

    kind = CountingPadding


class ConvolvesAhead(Convolved):
    """Mixes the next positions."""

    kind = Ahead
