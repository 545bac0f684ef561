"""The exact test and the intervals of solve rates, without assumptions on the distribution of the scores.

Each of two cells is trained with the same n seeds, and some of its runs solve the task. The test of Barnard
(1947) asks for the probability of counts at least as far apart as the observed ones if both cells have the
same solve rate, at the least favorable value of that rate. Chan (1998) extends it to a difference of any
size, which gives one-sided tests against a margin and, by inversion (Chan and Zhang 1999), an interval that
agrees with the tests. Pairs of counts are ordered by the score statistic with the variance at the tested
difference (Farrington and Manning 1990).

`tail` is the probability with which one end of an interval is missed.

The test treats the runs of a pair as independent. Pairs share data and initial values, so a seed that
solves one cell is more often one that solves the other; that makes counts far apart rarer than assumed, and
the test valid (see `benchmarks.estimands`). McNemar's test, which uses the pairs, cannot be significant at
the 5 % level with fewer than 6 of them, this one with 3.

References:
    Barnard, G. A. (1947). Significance tests for 2 x 2 tables. Biometrika 34, 123-138.
    Chan, I. S. F. (1998). Exact tests of equivalence and efficacy with a non-zero lower bound for comparative studies.
    Statistics in Medicine 17, 1403-1413.
    Chan, I. S. F. and Zhang, Z. (1999). Test-based exact confidence intervals for the difference of two binomial proportions.
    Biometrics 55, 1202-1209.
    Farrington, C. P. and Manning, G. (1990). Test statistics and sample size formulae for comparative binomial trials with null
    hypothesis of non-zero risk difference or non-unity relative risk. Statistics in Medicine 9, 1447-1454.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from attnlab.stats.paired import Interval

if TYPE_CHECKING:
    import numpy

RATES = 401  # values of the unknown solve rate at which the probability is computed
BISECTIONS = 20  # of an end of the interval, which is then exact to 2e-6
ROUNDING = 1e-9  # statistics closer than this are equal


@dataclass(frozen=True)
class ExactInterval(Interval):
    """An estimate with its exact interval, which is not symmetric; without ends if there are too few values.

    `solved` is the number of seeds that solve the task, for the solve rate of a cell.
    """

    solved: int | None = None
    is_exact: ClassVar[bool] = True

    @property
    def half_width(self) -> None:
        """None: the ends do not lie at one distance from the estimate."""
        return None


def clopper_pearson(count: int, n: int, tail: float) -> tuple[float, float]:
    """Return the interval of Clopper and Pearson (1934) of a probability, from a count of `n`; (0, 1) if `n` is 0."""
    from scipy.stats import binomtest

    if n == 0:
        return 0.0, 1.0
    interval = binomtest(count, n).proportion_ci(1 - 2 * tail, "exact")
    return float(interval.low), float(interval.high)


@lru_cache(maxsize=4096)
def p_above(cell: int, baseline: int, n: int, difference: float = 0.0) -> float:
    """Return the one-sided p-value of "the solve rate of the cell exceeds the baseline's by at most `difference`".

    Args:
        cell: Number of the cell's seeds that solve the task.
        baseline: The same for the baseline.
        n: Number of seeds of each.
        difference: The tested difference of the rates, above -1 and below 1.
    """
    import numpy

    statistics = _score_statistics(n, difference)
    extreme = statistics >= statistics[cell, baseline] - ROUNDING
    rates = numpy.linspace(max(0.0, -difference), min(1.0, 1 - difference), RATES)
    of_cell, of_baseline = _binomial(n, rates + difference), _binomial(n, rates)
    return min(1.0, float(((extreme @ of_baseline) * of_cell).sum(0).max()))


def predicted_solved(count: int, n: int, added: int) -> numpy.ndarray:
    """Return the probabilities that 0, 1, ..., `added` of so many further seeds solve the task, when `count` of `n` do.

    The number has a beta-binomial distribution: before any seed, the solve rate has Jeffreys' prior, Beta(1/2, 1/2).
    """
    import numpy
    from scipy.special import betaln

    solved, prior = numpy.arange(added + 1), 0.5
    ways = -betaln(1 + added - solved, 1 + solved) - numpy.log(1 + added)
    before = betaln(count + prior, n - count + prior)
    return numpy.exp(ways + betaln(solved + count + prior, added - solved + n - count + prior) - before)


@lru_cache(maxsize=4096)
def interval_of_difference(cell: int, baseline: int, n: int, tail: float) -> tuple[float, float]:
    """Return the exact interval of the difference of two solve rates; each end is missed with probability `tail`.

    It contains the differences that neither one-sided test rejects at the level `tail`. Takes the arguments of `p_above`.
    """
    return _lower_end(cell, baseline, n, tail), -_lower_end(baseline, cell, n, tail)


def _lower_end(cell: int, baseline: int, n: int, tail: float) -> float:
    """Return the largest difference below which all are rejected, by bisection: the p-value increases with the difference."""
    rejected, kept = -1.0, (cell - baseline) / n
    if kept == -1.0:
        return -1.0
    for _ in range(BISECTIONS):
        middle = (rejected + kept) / 2
        if p_above(cell, baseline, n, middle) > tail:
            kept = middle
        else:
            rejected = middle
    return kept if rejected > -1.0 else -1.0


def _binomial(n: int, rates: numpy.ndarray) -> numpy.ndarray:
    """Return (n + 1, rates) binomial probabilities of each count at each rate."""
    import numpy
    from scipy.special import gammaln, xlog1py, xlogy

    counts, rates = numpy.arange(n + 1)[:, None], numpy.clip(rates, 0.0, 1.0)
    combinations = gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1)
    return numpy.exp(combinations + xlogy(counts, rates) + xlog1py(n - counts, -rates))


@lru_cache(maxsize=256)
def _score_statistics(n: int, difference: float) -> numpy.ndarray:
    """Return (n + 1, n + 1) score statistics, by the counts of the cell and of the baseline.

    The variance is that at the rates which are most likely under the constraint that they differ by `difference`: the root of a
    cubic equation (Farrington and Manning 1990, appendix).
    """
    import numpy

    rates = numpy.arange(n + 1) / n
    cell, baseline = rates[:, None], rates[None, :]
    b = -(2 + cell + baseline + 3 * difference)
    c = difference**2 + difference * (2 * cell + 2) + cell + baseline
    d = -cell * difference * (1 + difference)
    v = b**3 / 216 - b * c / 24 + d / 4
    u = numpy.where(v < 0, -1, 1) * numpy.sqrt(numpy.maximum(b**2 / 36 - c / 6, 0))
    with numpy.errstate(divide="ignore", invalid="ignore"):
        cosine = numpy.where(u == 0, 0.0, v / u**3)
    angle = (math.pi + numpy.arccos(numpy.clip(cosine, -1, 1))) / 3
    restricted = numpy.clip(2 * u * numpy.cos(angle) - b / 6, max(0.0, difference), min(1.0, 1 + difference))
    other = restricted - difference
    variance = numpy.maximum(restricted * (1 - restricted) + other * (1 - other), 0) / n
    gap = cell - baseline - difference
    with numpy.errstate(divide="ignore", invalid="ignore"):
        statistics = gap / numpy.sqrt(variance)
    return numpy.where(numpy.abs(gap) < ROUNDING, 0.0, numpy.where(variance < ROUNDING, numpy.copysign(1e9, gap), statistics))
