"""Power of t-tests: the probability that a number of seeds is conclusive, for a known mean and spread.

Reports predict verdicts from the seeds that they have (`attnlab.stats.predict`); these are the numbers for a truth that is
known, with which simulations and tests compare them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING

from attnlab.stats.paired import LEVEL, Difference, t_quantile
from attnlab.stats.predict import MAX_SEEDS, POWER
from attnlab.stats.sequential import levels_at
from attnlab.stats.variance_prior import VariancePrior

if TYPE_CHECKING:
    import numpy


def seeds_needed(difference: Difference) -> int | None:
    """Return the total number of seeds for a conclusion, if mean and spread are those that were observed.

    A conclusion means that, with probability `POWER`, the difference from zero or (with a margin) the equivalence is
    significant at the level that Holm's correction and the looks leave to it.

    Args:
        difference: A difference whose pairs scatter.

    Returns:
        A number larger than that of the present pairs, or None beyond `MAX_SEEDS`.
    """
    mean = difference.interval
    if not (mean.mean or difference.margin):
        return None
    assert mean.moderated_sd
    options = {"sd": mean.moderated_sd, "margin": difference.margin, "prior": mean.prior}
    candidates = range(max(mean.n + 1, 3), MAX_SEEDS + 1)
    index = bisect_left(
        candidates,
        POWER,
        key=lambda n: power(n, mean.mean, levels=levels_at(difference.levels, difference.looks, n), **options),
    )
    return candidates[index] if index < len(candidates) else None


def power(
    n: int,
    mean: float,
    *,
    sd: float,
    margin: float | None = None,
    levels: tuple[float, float] = (LEVEL, LEVEL),
    prior: VariancePrior | None = None,
) -> float:
    """Return the probability that `n` seeds are conclusive.

    For a given sample spread, the result is inconclusive if the sample mean is too close to zero to differ from it and too far
    away to be equivalent. The probability is averaged over 200 quantiles of the sample spread.

    Args:
        n: Number of pairs.
        mean: The true difference.
        sd: The true standard deviation of the pairs' differences.
        margin: Largest difference that counts as equivalent.
        levels: Levels of the two-sided t-test, and of the two one-sided tests.
        prior: That of the variances of the table.
    """
    import numpy
    from scipy.special import chdtri, ndtr

    upper = 1 - (numpy.arange(200) + 0.5) / 200
    error = sd / math.sqrt(n)
    borrowed = prior.degrees_of_freedom * prior.variance if prior else 0
    degrees_of_freedom = n - 1 + (prior.degrees_of_freedom if prior else 0)
    sample_error = numpy.sqrt((borrowed + sd**2 * chdtri(n - 1, upper)) / degrees_of_freedom / n)
    differs = t_quantile(1 - levels[0] / 2, degrees_of_freedom) * sample_error
    equals = numpy.maximum(0, (margin or 0) - t_quantile(1 - levels[1], degrees_of_freedom) * sample_error)

    def within(edge: numpy.ndarray) -> numpy.ndarray:
        return ndtr((edge - mean) / error) - ndtr((-edge - mean) / error)

    return float(1 - numpy.mean(numpy.where(equals < differs, within(differs) - within(equals), 0)))
