"""Power: the probability that a number of seeds is conclusive, and the number of seeds for a conclusion."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING

from attnlab.stats.paired import LEVEL, Difference, sign_test, t_quantile
from attnlab.stats.sequential import levels_at
from attnlab.stats.variance_prior import VariancePrior

if TYPE_CHECKING:
    import numpy

POWER = 0.8  # probability of a conclusion at the number of seeds that `seeds_needed` names
MAX_SEEDS = 1000  # largest number of seeds that `seeds_needed` considers


def seeds_needed(difference: Difference) -> int | None:
    """Estimate the total number of seeds for a conclusion, if mean and spread stay as observed.

    A conclusion means that, with probability `POWER`, the difference from zero or (with a margin) the equivalence is
    significant at the level that Holm's correction and the looks leave to it. The estimate is rough from few seeds, and too
    low the more often the smaller the difference is (see `reports/validity`).

    Returns:
        A number larger than that of the present pairs, or None beyond `MAX_SEEDS`.
    """
    mean = difference.interval
    assert mean.sd is not None
    if mean.sd == 0:  # the sign test: no power to compute, only a number of seeds that suffices
        kinds = 2 if difference.margin and abs(mean.mean) < difference.margin else 1  # of tests that can be conclusive

        def target(n: int) -> float:
            level, level_equivalent = levels_at(difference.levels, difference.looks, n)
            return LEVEL if difference.identical else max((level / 2, level_equivalent)[:kinds])

        return next(n for n in range(mean.n + 1, MAX_SEEDS) if sign_test(n) < target(n))
    if not (mean.mean or difference.margin):
        return None
    assert mean.moderated_sd is not None
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
