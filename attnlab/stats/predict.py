"""Predicted verdicts: the probability that an inconclusive comparison is conclusive with more seeds.

The prediction is Bayesian. Before the seeds are seen, every true difference and every logarithm of their standard deviation is
equally likely; given them, the true difference has Student's t-distribution around the mean difference (Gelman et al. 2013,
section 3.2). A moderated variance (`attnlab.stats.joint`) counts with its degrees of freedom. Further pairs are drawn from
this distribution and judged together with the present ones, at the levels that Holm's correction and the looks leave to the
comparison, and by the comparison's t-test alone. The draws are the points of a fixed low-discrepancy sequence, so that equal
results have equal predictions.

Averaged over true differences of all sizes, verdicts come about as often as predicted. Where most cells truly do not differ,
"differs" comes about less often (see `reports/validity`).

Further seeds are not worth their cost for a comparison that will probably stay inconclusive, which is futile. Where two cells
truly do not differ, a study that adds seeds until its verdicts are conclusive spends all of its seeds, unless its margin can be
reached. A comparison is futile if the probability of any verdict at the last look is below a limit; for solve rates, it is
computed from the numbers of further seeds that may solve the task (`attnlab.stats.exact.predicted_solved`). The rule is
non-binding: a futile comparison is inconclusive, the looks have the same levels as without the rule, and seeds can still be
added. Error rates can therefore only be smaller.

The power of the tests of a table gives the number of seeds that its verdicts take, before the seeds are trained. A study with a
margin should find a difference as large as the margin, and call two cells without a difference equivalent. The number of seeds
with which both come about with a probability depends on the standard deviation of the pairs' differences. Where earlier seeds
estimate it, the probability is averaged over the values that they leave possible: given n pairs with normal differences, before
which every logarithm of the standard deviation was equally likely, the variance has a scaled inverse chi-squared distribution
(Gelman et al. 2013, section 3.2).

Each comparison is tested at the level of Bonferroni's correction. That is the lowest level at which Holm's method may test it,
so that the probability holds whatever the results of the other comparisons are.

References:
    Gelman, A., Carlin, J. B., Stern, H. S., Dunson, D. B., Vehtari, A. and Rubin, D. B. (2013). Bayesian Data Analysis, 3rd
    edition. Chapman & Hall.
    Jennison, C. and Turnbull, B. W. (2000). Group Sequential Methods with Applications to Clinical Trials. Chapman & Hall,
    chapters 4 and 10.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from attnlab.stats.paired import LEVEL, Difference, Interval, t_quantile
from attnlab.stats.sequential import Looks, levels_at
from attnlab.stats.variance_prior import MAX_DEGREES_OF_FREEDOM, VariancePrior, prior_degrees_of_freedom

if TYPE_CHECKING:
    import numpy

POWER = 0.8  # probability of a verdict with the number of seeds that is predicted to be conclusive
MAX_SEEDS = 1000  # largest such number
POINTS = 2048  # draws of further pairs; a probability is accurate to about 0.2 %
PLASTIC = 1.2207440846057596  # root of x^4 = x + 1, which generates the sequence in three dimensions

FUTILITY = 0.1
MIN_PAIRS = 5  # with fewer, the spread is too uncertain to give up

QUANTILES = 200  # of the sample variance, over which a power is averaged
SPREADS = 40  # quantiles of the true variance, likewise
SHARED = 0.25  # squared correlation of the differences of two cells from one baseline whose runs scatter alike
MIN_DEGREES_OF_FREEDOM = 2.0  # with fewer, nearly every number of seeds is possible
NARROWEST, WIDEST = 1e-4, 100.0  # standard deviations that are considered, in margins


@dataclass(frozen=True)
class Prediction:
    """Probabilities of the verdicts of one comparison with more seeds.

    Attributes:
        seeds: Number of pairs in total.
        differs: Probability of better or worse.
        equivalent: Probability of equivalent; None without a margin.
    """

    seeds: int
    differs: float
    equivalent: float | None = None

    @property
    def conclusive(self) -> float:
        """Probability of any verdict but inconclusive."""
        return self.differs + (self.equivalent or 0)


def predict(difference: Difference, seeds: int) -> Prediction:
    """Return the probabilities of the verdicts with a larger number of pairs.

    Args:
        difference: A difference with a t-test, corrected over its table.
        seeds: Number of pairs in total, more than the present ones.

    Raises:
        ValueError: The difference has no t-test, or not fewer pairs.
    """
    import numpy

    present = difference.interval
    if not (present.sd and present.moderated_sd) or difference.p is None or seeds <= present.n:
        raise ValueError(f"expected a t-test of fewer than {seeds} pairs, got {present}")
    added = seeds - present.n
    present_sd, degrees_of_freedom = present.moderated_sd, present.degrees_of_freedom
    sd, normal = _draws(degrees_of_freedom)
    sd = present_sd * sd  # the true one
    deviation = sd * normal * math.sqrt(1 / present.n + 1 / added)  # mean of the added pairs minus that of the present ones
    squares = degrees_of_freedom * present_sd**2 + sd**2 * _sums_of_squares(added)
    squares = squares + deviation**2 * present.n * added / seeds
    mean = numpy.abs(present.mean + deviation * added / seeds)
    beyond = half_widths(squares, degrees_of_freedom + added, seeds, levels_at(difference.levels, difference.looks, seeds))
    if present.prior is not None:
        own = squares - degrees_of_freedom * present_sd**2 + (present.n - 1) * present.sd**2
        alone = half_widths(own, seeds - 1, seeds, levels_at((LEVEL, LEVEL), difference.looks, seeds))
        beyond = tuple(map(numpy.maximum, beyond, alone))
    differs = mean > beyond[0]
    if difference.margin is None:
        return Prediction(seeds, float(differs.mean()))
    within = difference.margin - mean > beyond[1]
    return Prediction(seeds, float(differs.mean()), float((within & ~differs).mean()))


def half_widths(
    squares: numpy.ndarray, degrees_of_freedom: int, seeds: int, levels: tuple[float, float]
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the distances from a tested value at which a two-sided and a one-sided test are significant."""
    import numpy

    error = numpy.sqrt(squares / degrees_of_freedom / seeds)
    two_sided, one_sided = (t_quantile(1 - level, degrees_of_freedom) for level in (levels[0] / 2, levels[1]))
    return two_sided * error, one_sided * error


def predicted_seeds(difference: Difference, probability: float = POWER) -> int | None:
    """Return the smallest number of pairs with which the comparison is conclusive with a probability; None beyond `MAX_SEEDS`.

    Args:
        difference: A difference with a t-test, corrected over its table.
        probability: Smallest probability of a conclusion.
    """
    candidates = range(difference.interval.n + 1, MAX_SEEDS + 1)
    index = bisect_left(candidates, probability, key=lambda seeds: predict(difference, seeds).conclusive)
    return candidates[index] if index < len(candidates) else None


@lru_cache(maxsize=64)
def _draws(degrees_of_freedom: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return draws of the true standard deviation, relative to the observed one, and as many of a standard normal variable."""
    import numpy
    from scipy.special import chdtri, ndtri

    return numpy.sqrt(degrees_of_freedom / chdtri(degrees_of_freedom, _uniform(0))), ndtri(_uniform(1))


@lru_cache(maxsize=256)
def _sums_of_squares(pairs: int) -> numpy.ndarray:
    """Return draws of the sum of squared deviations of some pairs from their mean, in units of the true variance."""
    import numpy
    from scipy.special import chdtri

    return chdtri(pairs - 1, _uniform(2)) if pairs > 1 else numpy.zeros(POINTS)


def _uniform(dimension: int) -> numpy.ndarray:
    """Return one dimension of a low-discrepancy sequence in the unit cube."""
    import numpy

    return (0.5 + numpy.arange(1, POINTS + 1) * PLASTIC ** -(dimension + 1)) % 1


@dataclass(frozen=True)
class Futility:
    """The state of a comparison when it stopped receiving seeds.

    Attributes:
        pairs: Number of pairs.
        seeds: Number of pairs at the last look.
        probability: Predicted probability of a verdict at the last look.
    """

    pairs: int
    seeds: int
    probability: float


def find_futility(difference: Difference | None, seeds: int, *, below: float = FUTILITY) -> Futility | None:
    """Return the futility of an inconclusive comparison, or None when further seeds may be conclusive or have no prediction.

    Args:
        difference: A difference, corrected over its table.
        seeds: Number of pairs at the last look.
        below: Smallest probability of a verdict that is worth further seeds; 0: no comparison is futile.
    """
    if difference is None or difference.p is None:
        return None  # there are too few pairs for a test
    pairs = difference.interval.n
    if not MIN_PAIRS <= pairs < seeds:
        return None
    probability = predict(difference, seeds).conclusive if difference.interval.sd else difference.verdict_probability(seeds)
    return Futility(pairs, seeds, probability) if probability is not None and probability < below else None


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
        prior: The prior of the variances of the table.
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
