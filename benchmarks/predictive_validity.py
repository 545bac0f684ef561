"""Simulated studies at two levels, whose pairs are counted as `examples/my_analysis/validity.py` counts them.

Each cell has a true effect at the lower level and one at the higher level, with a given correlation. Runs add noise with a
standard deviation of 1 at the lower level, half of which is shared with the run of the same seed at the higher level. The true
probability that a sign is the same is that over all pairs with a verdict in all simulated studies of a setting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy

from attnlab.stats.paired import LEVEL
from benchmarks.simulation import COVERED, Kind, Quantity, Setting, Share, Simulation
from benchmarks.table_tests import TableTests, t_tests

SEEDS = 3
SHRINKAGE = 0.5  # of the standard deviation of effects, and of the noise, from the lower level to the higher
SHARED_NOISE = 0.5  # correlation of the noise of one seed at the two levels
MAX_SPREAD = 2.0  # largest ratio of the noise of two cells where the cells are equal
NEAR_TIE = 0.1  # standard deviation of the effect of half of the cells, where many pairs nearly tie; that of the others is 1.4
SIZES = {"few verdicts": 1.5, "": 5.0, "most pairs differ": 20.0}  # standard deviation of effects, in that of a run
CORRELATIONS = (0.5, 0.9, 0.99)
FAMILY_SIZE, WITHIN, WITHIN_CORRELATION = 8.0, (0.1, 2.0), 0.9  # spread of families, and of the cells of one family
ALL_AT_ONCE = "the order of all cells is reversed at once in one study of ten"

Effects = Callable[[numpy.random.RandomState, tuple[int, int]], numpy.ndarray]


def _normal(random: numpy.random.RandomState, shape: tuple[int, int]) -> numpy.ndarray:
    return random.standard_normal((2, *shape))


def _t3(random: numpy.random.RandomState, shape: tuple[int, int]) -> numpy.ndarray:
    return random.standard_t(3, (2, *shape)) / math.sqrt(3)


def _near_ties(random: numpy.random.RandomState, shape: tuple[int, int]) -> numpy.ndarray:
    return random.standard_normal((2, *shape)) * numpy.where(random.random_sample(shape) < 0.5, NEAR_TIE, 1.4)


EFFECTS: dict[str, Effects] = {"normal": _normal, "t3": _t3, "near ties": _near_ties}


@dataclass(frozen=True)
class Pairs:
    """All pairs of cells of many studies; arrays have the shape (studies, pairs).

    Attributes:
        lower, higher: Their tests at the two levels.
        true_sign: Sign of the true difference at the higher level.
        order: Indices of the cells of each study by their means at the lower level, shape (studies, cells).
    """

    lower: TableTests
    higher: TableTests
    true_sign: numpy.ndarray
    order: numpy.ndarray

    @property
    def keeps_sign(self) -> numpy.ndarray:
        """True where the mean differences at both levels have the same sign."""
        return self.lower.mean * self.higher.mean > 0

    @property
    def keeps_true_sign(self) -> numpy.ndarray:
        """True where the mean difference at the lower level has the sign of the true one at the higher level."""
        return self.lower.mean * self.true_sign > 0


def draw(effects: str, cells: int, correlation: float, size: float, *, studies: int, seed: int) -> Pairs:
    """Simulate studies with `SEEDS` seeds, whose effects have a standard deviation of `size`."""
    random = numpy.random.RandomState(seed)
    low, other = EFFECTS[effects](random, (studies, cells)) * size
    return _trained(low, correlation * low + math.sqrt(1 - correlation**2) * other, random)


def draw_families(families: int, cells: int, reversal: float, within: float, *, studies: int, seed: int) -> Pairs:
    """Simulate studies of equally large families of cells, whose order is reversed in a share of the studies.

    Args:
        families: Number of families; their effects have a standard deviation of `FAMILY_SIZE`.
        cells: Number of cells.
        reversal: The share of the studies.
        within: Standard deviation of the effects in a family, which have the correlation `WITHIN_CORRELATION`.
        studies: Number of studies.
        seed: Random seed.
    """
    random = numpy.random.RandomState(seed)
    of_family = FAMILY_SIZE * random.standard_normal((studies, families))
    own, other = within * random.standard_normal((2, studies, cells))
    later = WITHIN_CORRELATION * own + math.sqrt(1 - WITHIN_CORRELATION**2) * other
    sign = numpy.where(random.random_sample((studies, 1)) < reversal, -1, 1)
    family = numpy.arange(cells) * families // cells
    return _trained(of_family[:, family] + own, (sign * of_family)[:, family] + later, random)


def _trained(low: numpy.ndarray, high: numpy.ndarray, random: numpy.random.RandomState) -> Pairs:
    """Return the pairs of studies, given the effects of their cells at the two levels before shrinkage."""
    high = SHRINKAGE * high
    noise, own = random.standard_normal((2, *low.shape, SEEDS))
    later = SHRINKAGE * (SHARED_NOISE * noise + math.sqrt(1 - SHARED_NOISE**2) * own)
    i, j = numpy.triu_indices(low.shape[1], 1)
    first, last = low[..., None] + noise, high[..., None] + later
    order = numpy.argsort(first.mean(2), axis=1)
    return Pairs(compare_pairs(first), compare_pairs(last), numpy.sign(high[:, i] - high[:, j]), order)


def compare_pairs(runs: numpy.ndarray) -> TableTests:
    """Compare all pairs of cells.

    Args:
        runs: Shape (studies, cells, seeds).
    """
    i, j = numpy.triu_indices(runs.shape[1], 1)
    return t_tests(runs[:, i] - runs[:, j], moderated=True)


def share_intervals(verdicts: numpy.ndarray, kept: numpy.ndarray, order: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the ends of the intervals of many studies, as `share_interval` computes them for one.

    Args:
        verdicts: True for pairs with a verdict, at least one in each study, shape (studies, pairs).
        kept: True for pairs that count as the same sign.
        order: As in `Pairs`.
    """
    number, same = verdicts.sum(1).astype(float), (verdicts & kept).sum(1).astype(float)
    share = same / number
    odds = numpy.maximum(share, 1 - share) / numpy.maximum(numpy.minimum(share, 1 - share), 1e-9)
    most = numpy.minimum(number, longest_chain(verdicts, order) - 1)
    effective = numpy.maximum(1, numpy.minimum(most, odds))
    return clopper_pearson(share * effective, effective)


def longest_chain(verdicts: numpy.ndarray, order: numpy.ndarray) -> numpy.ndarray:
    """Return the largest number of cells that all have verdicts on each other, of each study."""
    studies, cells = order.shape
    i, j = numpy.triu_indices(cells, 1)
    different = numpy.zeros((studies, cells, cells), bool)
    different[:, i, j] = different[:, j, i] = verdicts
    different = numpy.take_along_axis(numpy.take_along_axis(different, order[:, :, None], 1), order[:, None, :], 2)
    longest = numpy.ones((studies, cells), int)
    for first, last in zip(i, j, strict=True):  # cells before `first` come earlier
        longest[:, last] = numpy.maximum(longest[:, last], numpy.where(different[:, first, last], longest[:, first] + 1, 1))
    return longest.max(1)


def clopper_pearson(successes: numpy.ndarray, number: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the ends of 95 % intervals."""
    from scipy.special import betaincinv

    none, every = successes <= 0, successes >= number
    low = betaincinv(numpy.where(none, 1, successes), number - successes + 1, LEVEL / 2)
    high = betaincinv(successes + 1, numpy.where(every, 1, number - successes), 1 - LEVEL / 2)
    return numpy.where(none, 0, low), numpy.where(every, 1, high)


def agreement(
    effects: str, cells: int, correlation: float, size: float, studies: int, seed: int
) -> Mapping[str, Share | float]:
    """Simulate the coverage of intervals in studies with a verdict, and false verdicts in studies of equal cells."""
    return measure(draw(effects, cells, correlation, size, studies=studies, seed=seed), seed)


def family_agreement(
    families: int, cells: int, reversal: float, within: float, studies: int, seed: int
) -> Mapping[str, Share | float]:
    """Simulate the same for families of cells whose order is reversed in a share of the studies."""
    return measure(draw_families(families, cells, reversal, within, studies=studies, seed=seed), seed)


def measure(pairs: Pairs, seed: int) -> Mapping[str, Share | float]:
    """Return the quantities of the simulation."""
    studies, cells = pairs.order.shape
    verdicts = pairs.lower.differs
    counted = verdicts.any(1)
    share, true_share = (float((verdicts & kept).sum() / verdicts.sum()) for kept in (pairs.keeps_sign, pairs.keeps_true_sign))
    verdicts, kept = verdicts[counted], pairs.keeps_sign[counted]
    low, high = share_intervals(verdicts, kept, pairs.order[counted])
    naive = clopper_pearson((verdicts & kept).sum(1).astype(float), verdicts.sum(1).astype(float))
    equal = numpy.random.RandomState(seed + 1)
    spreads = equal.uniform(1, MAX_SPREAD, (studies, cells, 1))
    false = compare_pairs(spreads * equal.standard_normal((studies, cells, SEEDS))).differs.any(1)

    def covers(ends: tuple[numpy.ndarray, numpy.ndarray], truth: float) -> Share:
        return Share(((ends[0] <= truth) & (truth <= ends[1])).sum(), len(verdicts))

    return {
        "false": Share(false.sum(), studies),
        "covered": covers((low, high), share),
        "covered true": covers((low, high), true_share),
        "covered binomial": covers(naive, share),
        "share": share,
        "width": float((high - low).mean()),
        "verdicts": float(pairs.lower.differs.mean()),
    }


def _settings() -> list[Setting]:
    """Return the settings: cells of several kinds of effects, and other sizes of effects where many pairs nearly tie."""
    kinds = [(effects, "", (5, 8, 12)) for effects in EFFECTS]
    kinds += [("near ties", size, (8, 12)) for size in SIZES if size]
    settings = [
        Setting(
            ", ".join(filter(None, (effects, size))),
            f"{cells} cells, correlation {correlation:g}",
            partial(agreement, effects, cells, correlation, SIZES[size]),
        )
        for effects, size, numbers in kinds
        for cells in numbers
        for correlation in CORRELATIONS
    ]
    others = [
        Setting(
            "near ties, other numbers",
            f"{cells} cells, correlation 0.5",
            partial(agreement, "near ties", cells, 0.5, SIZES[""]),
            reason,
        )
        for cells, reason in ((4, "fewer cells than reports require"), (20, "more than 12 cells"))
    ]
    return _family_settings() + settings + others


def _family_settings() -> list[Setting]:
    """Return the settings in which families of cells change places together."""
    settings = [
        Setting(
            "two families",
            f"{cells} cells, {within:g} within, reversed in {reversal:.0%}",
            partial(family_agreement, 2, cells, reversal, within),
        )
        for cells in (5, 8, 10, 12)
        for within in WITHIN
        for reversal in (0.1, 0.3, 0.5)
    ]
    return settings + [
        Setting("four families", f"{cells} cells, reversed in 10%", partial(family_agreement, 4, cells, 0.1, 2.0), ALL_AT_ONCE)
        for cells in (8, 12)
    ]


PREDICTIVE_VALIDITY = Simulation(
    "predictive-validity",
    "Verdicts at a lower level and signs at a higher one",
    f"""\
Studies with {SEEDS} seeds at two levels (`over:`). The true effects of the cells at the two levels have the stated correlation;
they are normal, have t3 tails, or half of the cells nearly tie; or families of cells change places together, as a whole, in
the stated share of the studies. Their standard deviation is {SIZES[""]:g} times that of a run,
{SIZES["few verdicts"]:g} times (“few verdicts”), or {SIZES["most pairs differ"]:g} times (“most pairs differ”). Covered is the
probability that a pair with a verdict at the lower level has the same measured sign at the higher level (“true”: the same true
sign), in studies with a verdict. The binomial interval takes pairs for independent. False are verdicts on pairs of equal cells,
whose runs have standard deviations of 1 to {MAX_SPREAD:g}.""",
    settings=_settings(),
    quantities=(
        Quantity("false", "false verdicts over all pairs", level=0.05, limit=0.06),
        Quantity(COVERED.name, COVERED.text, Kind.COVERAGE, level=0.95, limit=0.93),
        Quantity("covered true", "coverage of the probability of the true sign", Kind.COVERAGE, level=0.95),
        Quantity("covered binomial", "coverage of a binomial interval over pairs", Kind.COVERAGE, level=0.95),
        Quantity("share", "true probability of the same measured sign", Kind.NUMBER),
        Quantity("width", "mean width of the intervals", Kind.NUMBER),
        Quantity("verdicts", "share of pairs with a verdict", Kind.NUMBER),
    ),
    studies=4_000,
    hard={"families of cells that change places together": ("covered", "families")},
)
