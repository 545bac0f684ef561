"""Mutants of recurrences: of their convolutions, and of their formulas, which keep every property of the contract."""

from typing import Any

from torch import Tensor, nn

from attnlab.nn.shift import ShortConvolution
from attnlab.variants import AttentionConfig, Variant
from attnlab.variants.delta import Delta
from attnlab.variants.delta_product import DeltaProduct
from attnlab.variants.gated_delta2 import GatedDelta2
from attnlab.variants.kda import Kda
from attnlab.variants.log_linear import LogLinear
from attnlab.variants.mamba3 import Mamba3


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


class DecaysHeads(Kda):
    """Has one decay for all channels of a head, as Gated DeltaNet."""

    def log_alpha(self, source: Tensor) -> Tensor:
        log_alpha = super().log_alpha(source)
        return log_alpha.mean(-1, keepdim=True).expand_as(log_alpha)


class SwapsGates(GatedDelta2):
    """Writes with the share that is erased, and the reverse."""

    def project_heads(self, layer: nn.Module, x: Tensor) -> Tensor:
        return super().project_heads({self.beta: self.write, self.write: self.beta}.get(layer, layer), x)  # type: ignore[call-overload]


class ReversesSteps(DeltaProduct):
    """Reverses the order of the steps of a position."""

    def steps(self, z: Tensor) -> Tensor:
        return super().steps(z).unflatten(2, (-1, self.reflections)).flip(3).flatten(2, 3)


class LevelsByDistance(LogLinear):
    """Has ranges by distance, which move with the query, instead of those of a Fenwick tree."""

    def _levels_of(self, at: Tensor, starts: Tensor) -> Tensor:
        return super()._levels_of((at - starts).clamp(min=0), 0 * starts)


class ForgetsAngles(Mamba3):
    """Does not carry the angle from one position to the next."""

    def _cumulated(self, turns: Tensor, last: Any) -> Tensor:
        return turns


RECURRENCE_MUTANTS: list[tuple[str, type[Variant]]] = [
    ("kda", DecaysHeads),
    ("gated_delta2", SwapsGates),
    ("delta_product", ReversesSteps),
    ("log_linear", LevelsByDistance),
    ("mamba3", ForgetsAngles),
]
