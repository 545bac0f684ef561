"""Exact tests and intervals from counts and order statistics, without assumptions on the distribution of the scores.

Tests are one-sided: `tail` is the probability with which one end of an interval is missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from attnlab.stats.paired import Interval


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


def sign_test_p(positive: int, n: int) -> float:
    """Return the probability of at least `positive` of `n` signs if both are equally likely."""
    from scipy.special import bdtrc

    return 1.0 if positive <= 0 else float(bdtrc(positive - 1, n, 0.5))


def clopper_pearson(count: int, n: int, tail: float) -> tuple[float, float]:
    """Return the interval of Clopper and Pearson (1934) of a probability, from a count of `n`; (0, 1) if `n` is 0."""
    from scipy.special import betaincinv

    low = 0.0 if count == 0 else float(betaincinv(count, n - count + 1, tail))
    high = 1.0 if count == n else float(betaincinv(count + 1, n - count, 1 - tail))
    return low, high


def median_interval(values: Sequence[float], tail: float) -> tuple[float, float] | None:
    """Return the interval of a median between two order statistics, which agrees with the sign test.

    None with so few values that even the smallest and the largest miss the median more often than `tail` allows.
    """
    n, ordered = len(values), sorted(values)
    left_out = next(k for k in range(n + 1) if sign_test_p(n - k, n) > tail)  # on each side
    return (ordered[left_out - 1], ordered[n - left_out]) if left_out else None
