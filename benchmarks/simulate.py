"""Simulated studies with known distributions, judged by the functions that judge a report (``attnlab.stats.paired``).

A table has CELLS cells and a baseline, each with one value per seed. Draws have mean 0 and a standard deviation of about 1,
so that differences and margins are in units of one run's standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy

from attnlab.stats import paired, power
from attnlab.stats.sequential import Looks

CELLS = 4
MAX_SEEDS = 200  # largest predicted number of seeds that is simulated
Draw = Callable[[numpy.random.RandomState, tuple[int, ...]], numpy.ndarray]


def _contaminated(random: numpy.random.RandomState, shape: tuple[int, ...]) -> numpy.ndarray:
    wide = numpy.where(random.random_sample(shape) < 0.1, 5.0, 1.0)
    return random.standard_normal(shape) * wide / math.sqrt(3.4)


def _skewed(random: numpy.random.RandomState, shape: tuple[int, ...]) -> numpy.ndarray:
    return (random.lognormal(0, 1, shape) - math.exp(0.5)) / math.sqrt((math.e - 1) * math.e)


DRAWS: dict[str, Draw] = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "t3": lambda random, shape: random.standard_t(3, shape) / math.sqrt(3),
    "contaminated": _contaminated,
    "skewed": _skewed,
    "skewed_gap": _skewed,
    "mild_gap": lambda random, shape: (random.gamma(4, 1, shape) - 4) / 2,
}
DISTRIBUTIONS = {
    "normal": "normal",
    "t3": "Student's t with 3 degrees of freedom (no fourth moment)",
    "contaminated": "normal, one seed in ten with five times the spread",
    "skewed": "log-normal (skewness 6) in cell and baseline alike: in a true A/A comparison the skew cancels in the pairs",
    "skewed_gap": "log-normal in the cells, no noise at all in the baseline: all of the skew stays in the differences",
    "mild_gap": "the same with a skewness of 1 (gamma, shape 4)",
}


@dataclass(frozen=True)
class Line:
    """One simulated number, a row of ``validity.csv``; ``error`` is its Monte-Carlo standard error."""

    part: str
    noise: str
    case: str
    quantity: str
    value: float
    error: float | None
    studies: int


@dataclass(frozen=True)
class Share:
    """A relative frequency with its Monte-Carlo standard error."""

    happened: float
    of: int

    @property
    def value(self) -> float:
        return self.happened / self.of

    @property
    def error(self) -> float:
        return math.sqrt(max(self.value * (1 - self.value), 1e-12) / self.of)


def tables(noise: str, n: int, *, studies: int, seed: int) -> Iterator[list[list[float]]]:
    """Yield the paired differences of each study, CELLS x n; the cells of a study share their baseline."""
    random = numpy.random.RandomState(seed)
    cells = DRAWS[noise](random, (studies, CELLS, n))
    baseline = numpy.zeros((studies, 1, n)) if noise.endswith("_gap") else DRAWS[noise](random, (studies, 1, n))
    yield from (cells - baseline).tolist()


def judge(
    table: list[list[float]], *, margin: float | None = None, looks: Looks | None = None, moderated: bool = False
) -> list[paired.Difference]:
    """Return the differences of a table as in a report; a cell has as many seeds as values."""
    zero = dict.fromkeys(range(max(map(len, table))), 0.0)
    differences = [paired.difference(dict(enumerate(gaps)), zero, margin=margin, looks=looks) for gaps in table]
    corrected = paired.correct(paired.moderate(differences) if moderated else differences)
    return [difference for difference in corrected if difference is not None]


def false_verdicts(noise: str, n: int, *, studies: int, seed: int) -> tuple[Share, Share]:
    """Simulate tables without a true difference.

    Return the share of tables with a verdict of better or worse, and the coverage of the intervals.
    """
    wrong = covered = 0
    for table in tables(noise, n, studies=studies, seed=seed):
        differences = judge(table)
        wrong += any(difference.conclusion in ("lower", "higher") for difference in differences)
        first = differences[0].interval  # one per table, because the others share its baseline
        assert first.low is not None and first.high is not None
        covered += first.low <= 0 <= first.high
    return Share(wrong, studies), Share(covered, studies)


def false_equivalence(noise: str, n: int, *, margin: float, studies: int, seed: int) -> Share:
    """Simulate tables whose true differences equal the margin; return the share with a verdict of equivalent."""
    wrong = 0
    for table in tables(noise, n, studies=studies, seed=seed):
        differences = judge([[gap + margin for gap in gaps] for gaps in table], margin=margin)
        wrong += any(difference.within_margin for difference in differences)
    return Share(wrong, studies)


def kept_promise(mean: float, *, margin: float | None, level: float, studies: int, seed: int) -> tuple[int, Share]:
    """Return the number of seeds from `seeds_needed` for a known mean and spread (1), and the share of conclusive studies."""
    known = paired.Difference(paired.Interval(2, mean, 1.0), p=1.0, margin=margin, levels=(level, level))
    n = power.seeds_needed(known)
    assert n is not None
    random, conclusive = numpy.random.RandomState(seed), 0
    for gaps in random.normal(mean, 1, (studies, n)).tolist():
        difference = paired.difference(dict(enumerate(gaps)), dict.fromkeys(range(n), 0.0), margin=margin)
        assert difference is not None and difference.p is not None
        equivalent = difference.p_equivalent is not None and difference.p_equivalent < level
        conclusive += equivalent or difference.p < level
    return n, Share(conclusive, studies)


@dataclass(frozen=True)
class AddedSeeds:
    """Outcome of studies with added seeds.

    Attributes:
        differ: share of tables with a verdict of better or worse.
        equal: share of tables with a verdict of equivalent.
        covered: share of intervals that contain the true difference at the end.
        seeds: mean number of seeds per cell.
    """

    differ: Share
    equal: Share
    covered: Share
    seeds: float


def until_conclusive(
    noise: str,
    *,
    first: int,
    last: int,
    shift: float = 0.0,
    margin: float | None = None,
    corrected: bool = True,
    moderated: bool = False,
    studies: int,
    seed: int,
) -> AddedSeeds:
    """Simulate studies that add seeds as ``run --until-conclusive`` does.

    With ``corrected=False`` each look is judged as if it were the only one, which inflates the error rate.
    """
    looks = Looks(first, last) if corrected else None
    differ = equal = covered = seeds = 0
    for table in tables(noise, last, studies=studies, seed=seed):
        cells = [[gap + shift for gap in gaps] for gaps in table]
        counts = [first] * CELLS
        while True:
            seen = [gaps[:n] for gaps, n in zip(cells, counts, strict=True)]
            differences = judge(seen, margin=margin, looks=looks, moderated=moderated)
            undecided = [i for i, difference in enumerate(differences) if not difference.conclusion and counts[i] < last]
            if not undecided:
                break
            for i in undecided:
                counts[i] += 1
        differ += any(difference.conclusion in ("lower", "higher") for difference in differences)
        equal += any(difference.within_margin for difference in differences)
        interval = differences[0].interval
        assert interval.low is not None and interval.high is not None
        covered += interval.low <= shift <= interval.high
        seeds += sum(counts)
    return AddedSeeds(Share(differ, studies), Share(equal, studies), Share(covered, studies), seeds / (studies * CELLS))


def added_by_hand(
    noise: str,
    *,
    first: int,
    last: int,
    shift: float = 0.0,
    margin: float | None = None,
    corrected: bool = True,
    studies: int,
    seed: int,
) -> AddedSeeds:
    """Simulate studies whose seeds are added by hand: to every cell, one at a time, judged each time.

    Nothing is announced, so each look is corrected only for those before it. With ``corrected=False`` each is judged as if it
    were the only one. A verdict is false if it is at any look; an interval covers the truth if it does at all looks.
    """
    differ = equal = covered = 0
    for table in tables(noise, last, studies=studies, seed=seed):
        cells = [[gap + shift for gap in gaps] for gaps in table]
        differs, equals, covers = False, False, True
        for n in range(first, last + 1):
            looks = Looks(first, first, tuple(range(first + 1, n + 1))) if corrected else None
            differences = judge([gaps[:n] for gaps in cells], margin=margin, looks=looks)
            differs |= any(difference.conclusion in ("lower", "higher") for difference in differences)
            equals |= any(difference.within_margin for difference in differences)
            interval = differences[0].interval
            assert interval.low is not None and interval.high is not None
            covers &= interval.low <= shift <= interval.high
        differ, equal, covered = differ + differs, equal + equals, covered + covers
    return AddedSeeds(Share(differ, studies), Share(equal, studies), Share(covered, studies), last)
