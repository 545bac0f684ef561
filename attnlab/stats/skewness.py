"""Fragile verdicts: verdicts of the t-test that a test corrected for skewness does not share.

The t-test of a mean assumes differences that scatter symmetrically. Where they are skewed, as when one or
two seeds lie far to one side, it makes more false verdicts than it promises. Johnson (1978) corrects the
t-statistic for the skewness g of the sample; Hall (1992) makes his transformation monotone, so that a
larger difference never has a larger p-value:

    S = mean / sd        S' = S + g S^2 / 3 + g^2 S^3 / 27 + g / (6 n)        t' = sqrt(n) S'

With few seeds, g is uncertain, and a test with it has less power. It therefore decides no verdict: a
verdict of the t-test that it does not share, at the same level, is called fragile. In a moderated t-test,
sd is the moderated standard deviation, with its degrees of freedom, and g is the skewness of the comparison's
differences. Without Hall's cubic term, many large differences would be called fragile, too.
`benchmarks.estimands` has the shares of false and of sound verdicts that are.

References:
    Johnson, N. J. (1978). Modified t tests and confidence intervals for asymmetrical populations. Journal of the American
    Statistical Association 73, 536-544.
    Hall, P. (1992). On the removal of skewness by transformation. Journal of the Royal Statistical Society B 54, 221-228.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

MIN_SEEDS = 5  # with fewer pairs the skewness is too uncertain


def sample_skewness(values: Sequence[float]) -> float | None:
    """Return the third central moment over the cubed standard deviation; None for fewer than `MIN_SEEDS` values.

    Args:
        values: Not all equal.
    """
    n = len(values)
    if n < MIN_SEEDS:
        return None
    mean = math.fsum(values) / n
    second, third = (math.fsum((value - mean) ** power for value in values) / n for power in (2, 3))
    return third / second**1.5


def skewness_corrected_p(size: float, n: int, *, skewness: float, degrees_of_freedom: int) -> float:
    """Return the one-sided p-value of Hall's test that a mean lies above a tested value.

    Args:
        size: The mean minus the tested value, in standard deviations of one difference.
        n: Number of pairs.
        skewness: Of the differences.
        degrees_of_freedom: Those of the t-test.
    """
    from scipy.special import stdtr

    transformed = size + skewness * size**2 / 3 + skewness**2 * size**3 / 27 + skewness / (6 * n)
    return float(stdtr(degrees_of_freedom, -math.sqrt(n) * transformed))
