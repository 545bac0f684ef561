"""Position schemes with one mistake each, which the contract of position schemes must catch."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.nn import RelativeLogits, relative_distance
from attnlab.positions import Position, PositionConfig
from attnlab.positions.alibi import Alibi
from attnlab.positions.cope import Cope
from attnlab.positions.relative import Relative
from attnlab.positions.rotary import Rotary
from tests.mutants.schemes import IgnoresHeads, IgnoresStep, TurnsOffset


class Recency(Position):
    """A correct bias with a learned rate for each head: the base of several mutants."""

    hook = "bias"
    relative = True

    def __init__(self, config: PositionConfig) -> None:
        super().__init__(config)
        self.rate = nn.Parameter(torch.ones(config.heads))

    def distance(self, t: int, s: int) -> Tensor:
        return relative_distance(t, s).abs()

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:  # type: ignore[override]
        exact = torch.promote_types(q.dtype, torch.float32)
        return -self.rate.to(exact)[:, None, None] * self.distance(q.shape[-2], k.shape[-2]).to(exact)


class Table(Position):
    """A correct table of vectors: the base of several mutants."""

    hook = "embed"
    extrapolates = False

    def __init__(self, config: PositionConfig) -> None:
        super().__init__(config)
        self.table = nn.Parameter(torch.randn(config.length, config.dim))

    def embed(self, t: int) -> Tensor:
        if t > len(self.table):
            raise ValueError("too long")
        return self.table[:t]


class Transposed(Recency):
    """Returns the bias of keys by queries."""

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:  # type: ignore[override]
        return super().bias(q, k, scale=scale).mT


class WrongHook(Table):
    """Acts by ``embed`` but is declared as a bias."""

    hook = "bias"


class Zeros(Recency):
    """Adds nothing."""

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:  # type: ignore[override]
        return 0 * super().bias(q, k, scale=scale)


class AlignedLeft(Recency):
    """Counts queries from the first key, also with memory in front."""

    def distance(self, t: int, s: int) -> Tensor:
        return (torch.arange(t)[:, None] - torch.arange(s)).abs()


class Normalized(Table):
    """Divides by the length of the sequence."""

    def embed(self, t: int) -> Tensor:
        return super().embed(t) / t


class FromTheKey(Recency):
    """Counts from the first key, but is declared relative."""

    def distance(self, t: int, s: int) -> Tensor:
        return torch.arange(s).expand(t, s)


class ShortTable(Table):
    """Has no vector beyond the trained length, but claims to extrapolate."""

    extrapolates = True


class Modest(Recency):
    """Works at any length, but claims that it does not."""

    extrapolates = False


class MixesRows(Rotary):
    """Subtracts the mean of the batch from the queries."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return super().rotate(q - q.mean(0, keepdim=True), k)


class IgnoresOffset(Alibi):
    """Ignores ``offset``."""

    def bias(
        self, q: Tensor, k: Tensor, *, scale: float, heads: slice = slice(None), step: int = 1, offset: Tensor | int = 0
    ) -> Tensor:
        bias = super().bias(q, k, scale=scale, heads=heads, step=step)
        return bias if isinstance(offset, int) else bias.expand(*offset.shape[:-3], *bias.shape)


class CountsPadding(Cope):
    """Counts the keys that the mask hides, too."""

    def bias(self, q: Tensor, k: Tensor, *, scale: float, visible: Tensor | None = None) -> Tensor:
        return super().bias(q, k, scale=scale)


class SaysWarmer(Rotary):
    """Declares a temperature that it does not apply."""

    def logit_factor(self, s: int) -> float:
        return 2.0


class Warmer(Rotary):
    """Applies a temperature that it does not declare."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        q, k = super().rotate(q, k)
        return 1.5 * q, k


class SwappedProducts(Relative):
    """Returns the operand of the keys where that of the distances belongs."""

    def relative_logits(self, q: Tensor, s: int) -> RelativeLogits | None:
        parts = super().relative_logits(q, s)
        return None if parts is None else RelativeLogits(parts.distance, parts.content, parts.r)


class Idle(Recency):
    """Has a parameter without effect."""

    def __init__(self, config: PositionConfig) -> None:
        super().__init__(config)
        self.idle = nn.Parameter(torch.randn(3))


class Detached(Rotary):
    """Stops the gradient of the keys."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        q, k = super().rotate(q, k)
        return q, k.detach()


class CountsInBf16(Recency):
    """Counts distances in the dtype of the queries."""

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:  # type: ignore[override]
        t, s = q.shape[-2:-1][0], k.shape[-2]
        positions = torch.arange(s, dtype=q.dtype)
        return -self.rate.to(q.dtype)[:, None, None] * (positions[-t:, None] - positions).abs()


class Widens(Rotary):
    """Returns float64 for any queries."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        q, k = super().rotate(q, k)
        return q.double(), k.double()


class PlainTensor(Recency):
    """Keeps its rates in a tensor that is neither parameter nor buffer."""

    def __init__(self, config: PositionConfig) -> None:
        super().__init__(config)
        del self.rate
        self.rate = torch.rand(config.heads)  # type: ignore[assignment]


class Counts(Recency):
    """Counts its calls."""

    calls = 0

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:  # type: ignore[override]
        self.calls += q.shape[-2] == 2
        return super().bias(q, k, scale=scale) * (1 + self.calls)


class ForeignRandom(Recency):
    """Draws its rates from a generator without a seed."""

    def __init__(self, config: PositionConfig) -> None:
        super().__init__(config)
        generator = torch.Generator()
        generator.seed()
        with torch.no_grad():
            self.rate.copy_(torch.rand(config.heads, generator=generator))


class AnyRole(Recency):
    """Does not refuse the role ``cross``."""

    @classmethod
    def unsupported(cls, config: PositionConfig, *, options: Mapping[str, Any] | None = None) -> str | None:
        return None


class Wraps(Rotary):
    """Rotates position 256 like position 0."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        t, s = q.shape[2], k.shape[2]
        q = nn.functional.pad(q, (0, 0, s - t, 0))
        parts = [super(Wraps, self).rotate(*pair) for pair in zip(q.split(256, 2), k.split(256, 2), strict=True)]
        return torch.cat([part[0] for part in parts], 2)[:, :, s - t :], torch.cat([part[1] for part in parts], 2)


class ShortCycle(Table):
    """Repeats its vectors after 256 positions."""

    def embed(self, t: int) -> Tensor:
        return super().embed(t)[torch.arange(t) % 256]


class LongerThanATable(Recency):
    """Counts the distance from the first query where there are more keys than 300."""

    def distance(self, t: int, s: int) -> Tensor:
        return relative_distance(t, s).abs() if s <= 300 else (torch.arange(t)[:, None] - torch.arange(s)).abs()


class LargerInFloat32(Recency):
    """Is larger in float32 than in any other precision."""

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:  # type: ignore[override]
        bias = super().bias(q, k, scale=scale)
        return bias if q.dtype != torch.float32 else bias * 1.01


POSITION_MUTANTS: dict[str, list[type[Position]]] = {
    "shapes": [Transposed, WrongHook],
    "effect": [Zeros, ShortCycle],
    "parts": [AlignedLeft, LongerThanATable, Normalized],
    "relative": [FromTheKey, Wraps],
    "longer sequences": [ShortTable, Modest],
    "batch independence": [MixesRows],
    "padding": [CountsPadding],
    "temperature": [SaysWarmer, Warmer],
    "bias in blocks": [IgnoresOffset, IgnoresHeads, IgnoresStep, TurnsOffset],
    "relative logits": [SwappedProducts],
    "gradients": [Idle, Detached],
    "bf16": [CountsInBf16, Widens, LargerInFloat32],
    "state": [PlainTensor, Counts, ForeignRandom],
    "roles refused": [AnyRole],
}
CORRECT = (Recency, Table)
