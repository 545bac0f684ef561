"""Power of the tests of a table: the number of seeds that its verdicts take, before the seeds are trained.

A study with a margin should find a difference as large as the margin, and call two cells without a difference equivalent. The
number of seeds with which both come about with a probability depends on the standard deviation of the pairs' differences.
Where earlier seeds estimate it, the probability is averaged over the values that they leave possible: given n pairs with
normal differences, before which every logarithm of the standard deviation was equally likely, the variance has a scaled
inverse chi-squared distribution (Gelman et al. 2013, section 3.2).

Each comparison is tested at the level of Bonferroni's correction. That is the lowest level at which Holm's method may test it,
so that the probability holds whatever the results of the other comparisons are.

References:
    Gelman, A., Carlin, J. B., Stern, H. S., Dunson, D. B., Vehtari, A. and Rubin, D. B. (2013). Bayesian Data Analysis, 3rd
    edition. Chapman & Hall.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnlab.stats.paired import LEVEL, Interval
from attnlab.stats.predict import MAX_SEEDS, POWER, half_widths
from attnlab.stats.sequential import Looks, levels_at
from attnlab.stats.variance_prior import MAX_DEGREES_OF_FREEDOM, VariancePrior, prior_degrees_of_freedom

if TYPE_CHECKING:
    import numpy

QUANTILES = 200  # of the sample variance, over which a power is averaged
SPREADS = 40  # quantiles of the true variance, likewise
SHARED = 0.25  # squared correlation of the differences of two cells from one baseline whose runs scatter alike
MIN_DEGREES_OF_FREEDOM = 2.0  # with fewer, nearly every number of seeds is possible
NARROWEST, WIDEST = 1e-4, 100.0  # standard deviations that are considered, in margins


@dataclass(frozen=True)
class Spread:
    """An estimate of the standard deviation of a pair's difference.

    Attributes:
        sd: in the metric's unit.
        degrees_of_freedom: of the estimate; infinite for a known value.
    """

    sd: float
    degrees_of_freedom: float = math.inf


@dataclass(frozen=True)
class TableDesign:
    """The properties of a table, besides its seeds, that decide on the power of its tests.

    Attributes:
        margin: largest difference that counts as equivalent, in the metric's unit.
        comparisons: number of comparisons that are corrected together.
        sharing: number of them that borrow from each other's variances; 0: each has a separate t-test.
        most: largest number of degrees of freedom of the prior of the variances.
        looks: looks at which the study was judged.
    """

    margin: float
    comparisons: int = 1
    sharing: int = 0
    most: int = MAX_DEGREES_OF_FREEDOM
    looks: Looks | None = None

    def prior(self, seeds: int, sd: float) -> VariancePrior | None:
        """Return the prior of the variances of so many pairs."""
        freedom = min(self.most, prior_degrees_of_freedom(seeds, self.sharing))
        return VariancePrior(freedom, sd**2, self.sharing) if freedom else None


def pooled_spread(intervals: Iterable[Interval]) -> Spread | None:
    """Return the pooled standard deviation of the comparisons of one table; None when too few pairs estimate it.

    The comparisons share a baseline, so that they count as fewer than they are.
    """
    tested = [interval for interval in intervals if interval.n > 1 and interval.sd]
    effective = pooled_degrees_of_freedom([interval.n for interval in tested])
    if effective < MIN_DEGREES_OF_FREEDOM:
        return None
    squares = sum((interval.n - 1) * interval.sd**2 for interval in tested if interval.sd)
    return Spread(math.sqrt(squares / sum(interval.n - 1 for interval in tested)), effective)


def pooled_degrees_of_freedom(pairs: Sequence[int]) -> float:
    """Return the degrees of freedom of the pooled variance of comparisons with these numbers of pairs and one baseline."""
    return sum(n - 1 for n in pairs) / (1 + SHARED * (len(pairs) - 1)) if pairs else 0.0


def verdict_probability(design: TableDesign, seeds: int, spread: Spread) -> float:
    """Return the probability of the right verdict on a comparison, for a difference of zero or of the margin.

    Args:
        design: the table.
        seeds: number of pairs, at least 2.
        spread: of its differences.

    Returns:
        The smaller of two probabilities: that a difference of the margin is found, and that no difference is called equivalent.
    """
    sds = _possible_sds(spread)
    return min(sum(_right(design, seeds, sd, equal=equal) for sd in sds) / len(sds) for equal in (True, False))


def seeds_for_verdict(design: TableDesign, spread: Spread) -> int | None:
    """Return the smallest number of pairs with a `verdict_probability` of `POWER`; None beyond `MAX_SEEDS`."""
    looks, first = design.looks, 2
    if looks is not None:
        first = looks.first if looks.announced else looks.latest + 1
    candidates = range(first, MAX_SEEDS + 1)
    index = bisect_left(candidates, POWER, key=lambda seeds: verdict_probability(design, seeds, spread))
    return candidates[index] if index < len(candidates) else None


def largest_spread(design: TableDesign, seeds: int, *, degrees_of_freedom: float = math.inf) -> float | None:
    """Return the largest standard deviation with which `seeds` pairs have a `verdict_probability` of `POWER`.

    None below 2 pairs.

    With `degrees_of_freedom`, the largest estimate of it from earlier pairs.
    """
    if seeds < 2:
        return None
    low, high = (math.log(factor * design.margin) for factor in (NARROWEST, WIDEST))
    while high - low > 1e-3:
        middle = (low + high) / 2
        enough = verdict_probability(design, seeds, Spread(math.exp(middle), degrees_of_freedom)) >= POWER
        low, high = (middle, high) if enough else (low, middle)
    return math.exp(low)


def power(
    n: int,
    mean: float,
    *,
    sd: float,
    margin: float | None = None,
    levels: tuple[float, float] = (LEVEL, LEVEL),
    prior: VariancePrior | None = None,
    alone: tuple[float, float] = (LEVEL, LEVEL),
) -> float:
    """Return the probability that `n` pairs are conclusive, for a known truth.

    For a given sample spread, the result is inconclusive if the sample mean is too close to zero to differ from it and too far
    away to be equivalent. The probability is averaged over quantiles of the sample spread.

    Args:
        n: Number of pairs.
        mean: The true difference.
        sd: The true standard deviation of the pairs' differences.
        margin: Largest difference that counts as equivalent.
        levels: Levels of the table's two-sided t-test, and of its two one-sided tests.
        prior: That of the variances of the table.
        alone: Levels of the tests of the comparison alone, which matter if there is a prior.
    """
    import numpy
    from scipy.special import chdtri, ndtr

    upper = 1 - (numpy.arange(QUANTILES) + 0.5) / QUANTILES
    error = sd / math.sqrt(n)
    borrowed = prior.degrees_of_freedom * prior.variance if prior else 0
    degrees_of_freedom = n - 1 + (prior.degrees_of_freedom if prior else 0)
    squares = sd**2 * chdtri(n - 1, upper)
    differs, near = half_widths(borrowed + squares, degrees_of_freedom, n, levels)
    if prior:
        differs, near = map(numpy.maximum, (differs, near), half_widths(squares, n - 1, n, alone))
    equals = numpy.maximum(0, (margin or 0) - near)

    def within(edge: numpy.ndarray) -> numpy.ndarray:
        return ndtr((edge - mean) / error) - ndtr((-edge - mean) / error)

    return float(1 - numpy.mean(numpy.where(equals < differs, within(differs) - within(equals), 0)))


def _right(design: TableDesign, seeds: int, sd: float, *, equal: bool) -> float:
    """Return the probability of the right verdict for a known standard deviation and a difference of zero or of the margin."""
    level = LEVEL / design.comparisons
    levels, prior = levels_at((level, level), design.looks, seeds), design.prior(seeds, sd)
    tests = {"sd": sd, "levels": levels, "prior": prior, "alone": levels_at((LEVEL, LEVEL), design.looks, seeds)}
    differs = power(seeds, 0.0 if equal else design.margin, **tests)
    return power(seeds, 0.0, margin=design.margin, **tests) - differs if equal else differs


def _possible_sds(spread: Spread) -> list[float]:
    """Return equally probable values of the true standard deviation."""
    import numpy
    from scipy.special import chdtri

    if math.isinf(spread.degrees_of_freedom):
        return [spread.sd]
    probabilities = (numpy.arange(SPREADS) + 0.5) / SPREADS
    return (spread.sd * numpy.sqrt(spread.degrees_of_freedom / chdtri(spread.degrees_of_freedom, probabilities))).tolist()
