"""Mutants: variants with one mistake each, which the checks of the contract must catch.

``MUTANTS`` maps the name of a check to the mutants that it must catch. No other check may fail, except those in ``also``,
which necessarily detect the same mistake.
"""

from typing import NamedTuple

from attnlab.positions import Position
from attnlab.variants import Variant
from attnlab.variants.fixed_sparse import FixedSparse as FixedSparse
from attnlab.variants.strided_sparse import StridedSparse as StridedSparse
from tests.mutants.base import Plain
from tests.mutants.blind_spots import (
    DetachesInTraining,
    DropsHalfAsMany,
    DropsWithProbabilityOfKeeping,
    ForgetsOldMemory,
    IgnoresMaskOfOneQuery,
    LeaksAtPowersOfTwo,
    LeaksFarFromBlocks,
    LeaksInTraining,
    LeaksWithFourHeads,
    MasksFromTheLeft,
    MasksTwentyKeys,
    MixesLargeBatches,
    NormalizesBatch,
    SquareInOneRole,
)
from tests.mutants.cache import (
    ForgetsInLongCalls,
    ForgetsMemory,
    LeavesState,
    MixesTokens,
    SelectsSorted,
    ShiftsCache,
    TopLeftCalls,
)
from tests.mutants.components import PlainWithIdle, PlainWithWiderWindow
from tests.mutants.mixing import (
    AlwaysCausal,
    AnyRole,
    AnyWidth,
    CountsPadding,
    CountsPositions,
    IgnoresMask,
    IgnoresSource,
    LeaksGradient,
    LeaksValue,
    MinusInfinity,
    MixesRows,
    MixesSecretly,
    NeedsTwoHeads,
    SeesNext,
    SeesNextLater,
    Squeezed,
)
from tests.mutants.modes import (
    AddsNoise,
    AveragesPadding,
    CountsSteps,
    DetachesFarPositions,
    DividesByTheSource,
    DropsOutputs,
    ForgetsScaleInFloat32,
    IgnoresMaskInFloat32,
    LeaksAfterManyCalls,
    LeaksBackwards,
    LeaksInFloat32,
    LeaksInInference,
    LeaksInLaterBlocks,
    LeaksInLongFloat32,
    LeaksInWideHeads,
    LeaksUnderAutocast,
    LeaksWithDropout,
    LeaksWithoutGradients,
    MixesRowsInFloat32,
    OverflowsInFloat16,
)
from tests.mutants.numbers import (
    AlwaysDropout,
    AnyBackend,
    AsksForValues,
    ComputesSquare,
    CountsInBf16,
    DeadKeys,
    DoubleGradient,
    DropsTheSameWeights,
    ForeignRandom,
    ForgetsMask,
    ForgetsScale,
    ForgetsScaleLater,
    HoldsLambda,
    IdleProjection,
    KeepsKeys,
    KeepsOutput,
    NoDropout,
    NormalizesMaskedWithoutEpsilon,
    NormalizesWithoutEpsilon,
    PlainTensor,
    Remembers,
    SavesSquare,
    SaysLinear,
    SoftmaxWithoutMaximum,
    UnscaledDropout,
)
from tests.mutants.projections import AddsInput, IdleBias, IgnoresBias, NamesTheGate
from tests.mutants.recurrences import ConvolvesAhead, ConvolvesPadding, ForgetsInputs
from tests.mutants.schemes import (
    AnyHook,
    AnyMemory,
    ColumnsOfNeighbours,
    CountsFromLeft,
    FirstHeadsTwice,
    IgnoresAlibi,
    IgnoresRotation,
    ScalesByRotatedWidth,
    ShiftOffByOne,
    SummariesOffByOne,
    TopLeft,
    TopLeftAlone,
    Transposed,
    TurnsQueriesOnly,
    WrongHead,
)
from tests.mutants.schemes import (
    IgnoresHeads as IgnoresHeads,
)
from tests.mutants.schemes import (
    IgnoresStep as IgnoresStep,
)
from tests.mutants.schemes import (
    TurnsOffset as TurnsOffset,
)


class Mutant(NamedTuple):
    """A wrong variant, and how it is checked.

    Attributes:
        variant: the variant to check.
        position: the position scheme of every check; None: see ``attnlab.testing.check``.
        also: other checks that necessarily fail.
    """

    variant: type[Variant]
    position: type[Position] | None = None
    also: frozenset[str] = frozenset()


MODES = "precisions and modes"

MUTANTS: dict[str, list[Mutant]] = {
    "shapes": [Mutant(Squeezed)],
    "other shapes": [Mutant(NeedsTwoHeads), Mutant(AnyWidth)],
    "refusals": [Mutant(AnyRole), Mutant(AnyHook), Mutant(AnyMemory), Mutant(AnyBackend)],
    "causality by value": [
        Mutant(LeaksValue),
        Mutant(SeesNext, also=frozenset({"causality by gradient"})),
        Mutant(ConvolvesAhead, also=frozenset({"causality by gradient", "memory", "key-value cache"})),
        Mutant(SeesNextLater, also=frozenset({"causality by gradient"})),
        Mutant(LeaksWithFourHeads),
        Mutant(LeaksFarFromBlocks),
        Mutant(LeaksAtPowersOfTwo),
        Mutant(LeaksInTraining),
        Mutant(LeaksInLaterBlocks, also=frozenset({"causality by gradient"})),
    ],
    "causality by gradient": [Mutant(LeaksGradient)],
    "full visibility": [Mutant(AlwaysCausal), Mutant(IgnoresSource, also=frozenset({"padding"}))],
    "no mixing": [Mutant(MixesSecretly)],
    "padding": [
        Mutant(IgnoresMask),
        Mutant(CountsPadding, also=frozenset({MODES})),
        Mutant(MasksTwentyKeys, also=frozenset({"leading padding"})),
        Mutant(IgnoresMaskOfOneQuery),
        Mutant(ConvolvesPadding),
    ],
    "all padding": [Mutant(MinusInfinity), Mutant(AveragesPadding), Mutant(DividesByTheSource)],
    "batch independence": [Mutant(MixesRows), Mutant(MixesLargeBatches, also=frozenset({"padding"}))],
    "permutation": [Mutant(CountsPositions)],
    "leading padding": [
        Mutant(Plain, position=CountsFromLeft),
        Mutant(Plain, position=ShiftOffByOne, also=frozenset({"padding", "key-value cache"})),
    ],
    "hooks take effect": [Mutant(IgnoresAlibi)],
    "bias placement": [
        Mutant(WrongHead),
        Mutant(Transposed),
        Mutant(FirstHeadsTwice),
        Mutant(ColumnsOfNeighbours),
        Mutant(SummariesOffByOne),
    ],
    "components take effect": [Mutant(PlainWithIdle)],
    "declared window": [Mutant(PlainWithWiderWindow)],
    "rotation placement": [Mutant(IgnoresRotation), Mutant(TurnsQueriesOnly), Mutant(ScalesByRotatedWidth)],
    "memory": [Mutant(TopLeft), Mutant(ForgetsOldMemory), Mutant(TopLeftAlone)],
    "masked memory": [Mutant(MasksFromTheLeft)],
    "key-value cache": [
        Mutant(ShiftsCache),
        Mutant(MixesTokens),
        Mutant(TopLeftCalls),
        Mutant(ForgetsInLongCalls),
        Mutant(ForgetsMemory),
        Mutant(SelectsSorted),
        Mutant(LeavesState),
        Mutant(ForgetsInputs),
    ],
    "gradcheck": [Mutant(DoubleGradient), Mutant(ForgetsMask), Mutant(DetachesFarPositions)],
    "gradient coverage": [Mutant(IdleProjection), Mutant(DeadKeys, also=frozenset({"gradcheck"}))],
    "extreme inputs": [Mutant(NormalizesWithoutEpsilon), Mutant(NormalizesMaskedWithoutEpsilon), Mutant(SoftmaxWithoutMaximum)],
    "bf16": [Mutant(CountsInBf16)],
    "attention bias": [Mutant(IgnoresBias), Mutant(IdleBias)],
    "residual projections": [Mutant(AddsInput), Mutant(NamesTheGate)],
    "backends": [Mutant(ForgetsScale), Mutant(ForgetsScaleLater)],
    "dropout": [
        Mutant(NoDropout, also=frozenset({"dropout share"})),
        Mutant(AlwaysDropout),
        Mutant(UnscaledDropout),
        Mutant(DropsTheSameWeights),
    ],
    "dropout share": [Mutant(DropsHalfAsMany), Mutant(DropsWithProbabilityOfKeeping), Mutant(DropsOutputs)],
    "training mode": [
        Mutant(NormalizesBatch, also=frozenset({"causality by value", "dropout", "dropout share", MODES})),
        Mutant(DetachesInTraining, also=frozenset({MODES})),
        Mutant(CountsSteps),
    ],
    MODES: [
        Mutant(LeaksInFloat32),
        Mutant(LeaksUnderAutocast),
        Mutant(LeaksInInference),
        Mutant(LeaksWithoutGradients),
        Mutant(LeaksWithDropout),
        Mutant(LeaksInLongFloat32),
        Mutant(LeaksInWideHeads),
        Mutant(LeaksBackwards),
        Mutant(IgnoresMaskInFloat32),
        Mutant(MixesRowsInFloat32),
        Mutant(ForgetsScaleInFloat32),
        Mutant(OverflowsInFloat16),
        Mutant(AddsNoise),
    ],
    "saved bytes": [Mutant(SavesSquare)],
    "flops": [
        Mutant(ComputesSquare),
        Mutant(SaysLinear),
        Mutant(SquareInOneRole, also=frozenset({"gradient coverage", "saved bytes"})),
    ],
    "copies": [Mutant(PlainTensor), Mutant(KeepsOutput), Mutant(HoldsLambda)],
    "compile": [Mutant(AsksForValues)],
    "no hidden state": [Mutant(Remembers), Mutant(KeepsKeys), Mutant(LeaksAfterManyCalls)],
    "seed": [Mutant(ForeignRandom)],
}
