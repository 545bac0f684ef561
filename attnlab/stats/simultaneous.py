"""Simultaneous intervals: the intervals of one table that hold together, and that agree with its verdicts.

The 95 % interval of a difference covers the truth in 95 of 100 comparisons. A table has several, and verdicts are corrected for
their number, so such an interval can exclude zero where the verdict is inconclusive. The simultaneous interval is Bonferroni's:
with m comparisons each has the level 1 - 0.05/m, and in 95 of 100 tables all of them together cover the true differences, under
any dependence (Dunn 1961). Those of moderated t-tests can be narrower than the interval of the comparison alone, which has to
exclude zero for a verdict as well (`attnlab.stats.paired`). The wider one of the two is then the simultaneous interval.

Verdicts are corrected by Holm's method, which rejects all that Bonferroni's does, and more. Where it shows a difference that
Bonferroni's interval leaves open, the interval ends at zero, on the side of the estimate, as the lower confidence bounds of
Strassburger and Bretz (2008) do. An interval thus excludes zero exactly where the difference is significant. Their bounds stay
at zero for every significant difference as long as one comparison is open, and have no end on the far side. The intervals
here keep Bonferroni's ends instead. In exchange, they hold together less often after the cut than before: where m - 1 of m
comparisons differ by far, all are right in at least 1 - 0.05 - 0.05 (m - 1) / m of the tables.

References:
    Dunn, O. J. (1961). Multiple comparisons among means. Journal of the American Statistical Association 56, 52-64.
    Holm, S. (1979). A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6, 65-70.
    Strassburger, K. and Bretz, F. (2008). Compatible simultaneous lower confidence bounds for the Holm procedure and other
    Bonferroni-based closed tests. Statistics in Medicine 27, 4914-4927.
"""

from __future__ import annotations

from dataclasses import replace

from attnlab.stats.paired import LEVEL, Difference, Interval


def simultaneous_interval(difference: Difference) -> Interval | None:
    """Return the interval of a difference that holds together with all others of its table.

    It excludes zero, or ends at zero, exactly if the difference is significant after Holm's correction; otherwise zero lies
    inside. It is corrected for the same looks as the p-value.

    Args:
        difference: Corrected over its table by `attnlab.stats.paired.correct`.

    Returns:
        The interval, in the metric's unit; None when there is no t-test: one pair, fewer pairs than the first look has, or
        the same difference in all pairs.
    """
    if difference.p is None:
        return None
    (low, high), null = difference.ends_at(LEVEL / difference.comparisons), difference.null
    if low is None or high is None:
        return None
    if not difference.is_significant:
        low, high = min(low, null), max(high, null)  # only rounding can have left zero outside
    elif difference.interval.mean > null:
        low = max(low, null)
    else:
        high = min(high, null)
    return replace(difference.interval, low=low, high=high)


def hides_correction(difference: Difference) -> bool:
    """Return True when the 95 % interval alone excludes zero although the difference is not significant in its table."""
    low, high, null = difference.interval.low, difference.interval.high, difference.null
    return low is not None and high is not None and not low <= null <= high and not difference.is_significant
