"""Studies from known distributions, judged by the very functions that judge a report: ``attnlab.stats.paired``.

A table has CELLS cells and a baseline; each has one value a seed. What is drawn is scaled to mean 0 and standard deviation
about 1, so differences and margins are in units of one run's spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy

from attnlab.stats import paired
from attnlab.stats.sequential import Looks

CELLS = 4
MOST = 200  # seeds that are tried where a number of them was guessed
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
ABOUT = {
    "normal": "normal",
    "t3": "Student's t with 3 degrees of freedom (no fourth moment)",
    "contaminated": "normal, one seed in ten with five times the spread",
    "skewed": "log-normal (skewness 6) in cell and baseline alike: in a true A/A comparison the skew cancels in the pairs",
    "skewed_gap": "log-normal in the cells, no noise at all in the baseline: all of the skew stays in the differences",
    "mild_gap": "the same with a skewness of 1 (gamma, shape 4)",
}


@dataclass(frozen=True)
class Share:
    """How often something happened, with the Monte-Carlo standard error."""

    happened: float
    of: int

    @property
    def value(self) -> float:
        return self.happened / self.of

    @property
    def error(self) -> float:
        return math.sqrt(max(self.value * (1 - self.value), 1e-12) / self.of)


def tables(noise: str, n: int, *, studies: int, seed: int) -> Iterator[list[list[float]]]:
    """For each study, the paired differences of each cell (CELLS x n); the cells of one share their baseline."""
    random = numpy.random.RandomState(seed)
    cells = DRAWS[noise](random, (studies, CELLS, n))
    baseline = numpy.zeros((studies, 1, n)) if noise.endswith("_gap") else DRAWS[noise](random, (studies, 1, n))
    yield from (cells - baseline).tolist()


def judged(table: list[list[float]], *, margin: float | None = None, looks: Looks | None = None) -> list[paired.Difference]:
    """The differences of a table as a report has them; a cell has as many seeds as it has values."""
    zero = dict.fromkeys(range(max(map(len, table))), 0.0)
    found = paired.correct([paired.difference(dict(enumerate(gaps)), zero, margin=margin, looks=looks) for gaps in table])
    return [each for each in found if each is not None]


def false_verdicts(noise: str, n: int, *, studies: int, seed: int) -> tuple[Share, Share]:
    """Tables without a true difference: the share with a verdict of better or worse, and the coverage of the intervals."""
    wrong = covered = 0
    for table in tables(noise, n, studies=studies, seed=seed):
        found = judged(table)
        wrong += any(each.finding in ("lower", "higher") for each in found)
        first = found[0].interval  # one a table: the others share its baseline
        assert first.low is not None and first.high is not None
        covered += first.low <= 0 <= first.high
    return Share(wrong, studies), Share(covered, studies)


def false_equivalence(noise: str, n: int, *, margin: float, studies: int, seed: int) -> Share:
    """Tables whose true differences all lie at the margin: the share that calls one of them equivalent."""
    wrong = 0
    for table in tables(noise, n, studies=studies, seed=seed):
        found = judged([[gap + margin for gap in gaps] for gaps in table], margin=margin)
        wrong += any(each.small for each in found)
    return Share(wrong, studies)


def kept_promise(mean: float, *, margin: float | None, level: float, studies: int, seed: int) -> tuple[int, Share]:
    """The number of seeds that `seeds_needed` names where mean and spread (1) are known, and how often it settles then."""
    known = paired.Difference(paired.Interval(2, mean, 1.0), p=1.0, margin=margin, levels=(level, level))
    n = paired.seeds_needed(known)
    assert n is not None
    random, settled = numpy.random.RandomState(seed), 0
    for gaps in random.normal(mean, 1, (studies, n)).tolist():
        found = paired.difference(dict(enumerate(gaps)), dict.fromkeys(range(n), 0.0), margin=margin)
        assert found is not None and found.p is not None
        near = found.p_equivalent is not None and found.p_equivalent < level
        settled += near or found.p < level
    return n, Share(settled, studies)


def guessed_promise(mean: float, pilot: int, *, most: int, studies: int, seed: int) -> tuple[Share, Share, float]:
    """The same where mean and spread are guessed from a pilot: pilots left open, those of them that the number named
    settles (or that are told more than ``most``: not tried, not settled), and the median number named."""
    random, tried, settled, named = numpy.random.RandomState(seed), 0, 0, []
    for gaps in random.normal(mean, 1, (studies, most)).tolist():
        first = judged([gaps[:pilot]])[0]
        if first.finding:
            continue
        tried += 1
        n = paired.seeds_needed(first) or most + 1
        named.append(n)
        settled += n <= most and bool(judged([gaps[:n]])[0].finding)
    return Share(tried, studies), Share(settled, tried), float(numpy.median(named))


@dataclass(frozen=True)
class Settled:
    """Studies with added seeds: the tables with a verdict of better or worse, those with one of equivalence, the intervals
    that hold the true difference when the seeds end, and the mean number of seeds of a cell."""

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
    studies: int,
    seed: int,
) -> Settled:
    """Studies whose seeds are added as ``run --until-conclusive`` does.

    With ``corrected=False`` each look is judged as if it were the only one: the mistake to be avoided.
    """
    looks = Looks(first, last) if corrected else None
    differ = equal = covered = seeds = 0
    for table in tables(noise, last, studies=studies, seed=seed):
        gaps = [[gap + shift for gap in each] for each in table]
        counts = [first] * CELLS
        while True:
            found = judged([each[:n] for each, n in zip(gaps, counts, strict=True)], margin=margin, looks=looks)
            undecided = [i for i, each in enumerate(found) if not each.finding and counts[i] < last]
            if not undecided:
                break
            for i in undecided:
                counts[i] += 1
        differ += any(each.finding in ("lower", "higher") for each in found)
        equal += any(each.small for each in found)
        at = found[0].interval
        assert at.low is not None and at.high is not None
        covered += at.low <= shift <= at.high
        seeds += sum(counts)
    return Settled(Share(differ, studies), Share(equal, studies), Share(covered, studies), seeds / (studies * CELLS))
