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

References:
    Gelman, A., Carlin, J. B., Stern, H. S., Dunson, D. B., Vehtari, A. and Rubin, D. B. (2013). Bayesian Data Analysis, 3rd
    edition. Chapman & Hall.
    Jennison, C. and Turnbull, B. W. (2000). Group Sequential Methods with Applications to Clinical Trials. Chapman & Hall,
    chapters 4 and 10.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from attnlab.stats.paired import LEVEL, Difference, t_quantile
from attnlab.stats.sequential import levels_at

if TYPE_CHECKING:
    import numpy

POWER = 0.8  # probability of a verdict with the number of seeds that is predicted to be conclusive
MAX_SEEDS = 1000  # largest such number
POINTS = 2048  # draws of further pairs; a probability is accurate to about 0.2 %
PLASTIC = 1.2207440846057596  # root of x^4 = x + 1, which generates the sequence in three dimensions

FUTILITY = 0.1
MIN_PAIRS = 5  # with fewer, the spread is too uncertain to give up


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
        first, second = (LEVEL / factor for factor in difference.alone)
        alone = half_widths(own, seeds - 1, seeds, levels_at((first, second), difference.looks, seeds))
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
