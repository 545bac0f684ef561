"""The number of seeds that is conclusive with a probability, for a known mean and spread.

Reports predict verdicts from the seeds that they have (`attnlab.stats.predict`); these are the numbers for a truth that is
known, with which simulations and tests compare them.
"""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy
from scipy.special import chdtri, ndtr

from attnlab.stats.paired import LEVEL, Difference
from attnlab.stats.predict import MAX_SEEDS, POWER, half_widths
from attnlab.stats.sequential import levels_at
from attnlab.stats.variance_prior import VariancePrior

QUANTILES = 200  # of the sample variance, over which a power is averaged


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

    def power_of(n: int) -> float:
        own = (LEVEL / difference.alone[0], LEVEL / difference.alone[1])
        levels, alone = (levels_at(levels, difference.looks, n) for levels in (difference.levels, own))
        return power(n, mean.mean, levels=levels, alone=alone, **options)

    candidates = range(max(mean.n + 1, 3), MAX_SEEDS + 1)
    index = bisect_left(candidates, POWER, key=power_of)
    return candidates[index] if index < len(candidates) else None


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
