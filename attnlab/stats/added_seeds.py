"""The number of seeds that a study takes if it adds seeds until its verdicts are conclusive, before they are trained.

Studies are simulated whose cells all differ from their baseline by zero, by the margin, or by more. They are judged at each
number of seeds from the first to the last look. Each comparison is tested at the level of Bonferroni's correction, and futility
stopping is left out, so that real studies end a little earlier.

A study that may add seeds takes slightly more of them than a study that is judged once, where a difference is zero or as large
as the margin, because it pays for its looks. It takes far fewer where differences are larger.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

from attnlab.stats.paired import LEVEL
from attnlab.stats.power import TableDesign
from attnlab.stats.predict import POWER
from attnlab.stats.sequential import Looks, levels_at

STUDIES = 2_000  # of each kind: a mean number of seeds is accurate to about 1 %
COMPARISONS = 20_000  # in all studies of a kind; large tables have fewer studies
MIN_STUDIES = 50
LARGE = 2.0  # margins, a difference that ends a study early
MAX_ADDED = 6  # looks beyond those of a fixed number of seeds, which the correction for looks may take


@dataclass(frozen=True)
class AddedSeeds:
    """Mean numbers of seeds of a cell, baselines included, where seeds are added until verdicts are conclusive.

    Attributes:
        first, last: numbers of seeds of the first and of the last look.
        equal: mean number where no cell differs.
        large: mean number where all cells differ by `LARGE` margins.
        right: share of comparisons with the right verdict, for differences of zero or of the margin, whichever is smaller.
    """

    first: int
    last: int
    equal: float
    large: float
    right: float


def added_seeds(design: TableDesign, sd: float, *, first: int, fixed: int) -> AddedSeeds | None:
    """Return the outcome for the smallest last look with which `POWER` of the comparisons have the right verdict.

    Args:
        design: the table, which was not judged before.
        sd: standard deviation of a pair's difference, in the unit of the margin.
        first: number of seeds of the first look.
        fixed: number of seeds with which as many have it in a study that is judged once; more than `first`.

    Returns:
        None if more than `MAX_ADDED` further looks are needed.
    """
    candidates = range(fixed, fixed + MAX_ADDED + 1)
    outcomes = {}

    def right(last: int) -> float:
        outcomes[last] = simulate_added_seeds(design, sd, first=first, last=last)
        return outcomes[last].right

    index = bisect_left(candidates, POWER, key=right)
    return outcomes[candidates[index]] if index < len(candidates) else None


def simulate_added_seeds(design: TableDesign, sd: float, *, first: int, last: int) -> AddedSeeds:
    """Return the outcome for a last look.

    Args:
        design, sd: as for `added_seeds`.
        first, last: numbers of seeds of the first and of the last look.
    """
    studies = max(MIN_STUDIES, min(STUDIES, COMPARISONS // design.comparisons))
    truths = (0.0, design.margin, LARGE * design.margin)
    (equal, right), (_, found), (large, _) = (_simulate(design, sd, truth, first, last, studies) for truth in truths)
    return AddedSeeds(first, last, equal, large, min(right, found))


def _simulate(design: TableDesign, sd: float, truth: float, first: int, last: int, studies: int) -> tuple[float, float]:
    """Return the mean number of seeds of a cell, and the share of comparisons with the right verdict."""
    import numpy
    from scipy.special import stdtrit

    random = numpy.random.RandomState(0)
    runs = random.normal(0, sd / math.sqrt(2), (studies, design.comparisons + 1, last))
    differences = truth + runs[:, 1:] - runs[:, :1]
    level, looks = LEVEL / design.comparisons, Looks(first, last)
    seeds = numpy.full(differences.shape[:2], last)
    is_open, right = numpy.ones(seeds.shape, dtype=bool), numpy.zeros(seeds.shape, dtype=bool)
    for n in range(first, last + 1):
        mean, variance = differences[..., :n].mean(2), differences[..., :n].var(2, ddof=1)
        prior = design.prior(n, sd)
        borrowed = prior.degrees_of_freedom if prior else 0
        freedom = n - 1 + borrowed
        error = numpy.sqrt((borrowed * variance.mean(1, keepdims=True) + (n - 1) * variance) / freedom / n)
        different, equal = levels_at((level, level), looks, n)
        differs = abs(mean) > stdtrit(freedom, 1 - different / 2) * error
        within = design.margin - abs(mean) > stdtrit(freedom, 1 - equal) * error
        right |= is_open & (differs if truth else within & ~differs)
        seeds = numpy.where(is_open & (differs | within), n, seeds)
        is_open &= ~(differs | within)
    return float((seeds.sum(1) + seeds.max(1)).mean() / (design.comparisons + 1)), float(right.mean())
