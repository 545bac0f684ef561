"""The differences of one table together: moderated t-tests and simultaneous intervals.

In moderated t-tests, the comparisons share a prior of their variances (`attnlab.stats.variance_prior`). Longer trainings and
other test data change the variance of all cells by a large factor. A table with several levels or tests therefore has a prior
for each of them, with fewer degrees of freedom, because Holm's method corrects over all of them together (as it does over the
studies of one page and the tasks of one study, `benchmarks/several_studies.py`): one prior for three levels with standard
deviations that differ by a factor of 3 has up to 8 % of false verdicts, and its intervals at the level that scatters most cover
84 % (`benchmarks/levels.py`).

Simultaneous intervals hold together, and agree with the verdicts of the table. The 95 % interval of a difference covers the
truth in 95 of 100 comparisons. A table has several, and verdicts are corrected for their number, so such an interval can
exclude zero where the verdict is inconclusive. The simultaneous interval is Bonferroni's: with m comparisons each has the level
1 - 0.05/m, and in 95 of 100 tables all of them together cover the true differences, under any dependence (Dunn 1961). With
moderated t-tests it can be narrower than the interval of the comparison alone, which has to exclude zero for a verdict as well
(`attnlab.stats.paired`). The wider one of the two is then the simultaneous interval.

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

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from attnlab.stats.paired import LEVEL, Difference, Interval, moderated_t_test
from attnlab.stats.variance_prior import (
    MAX_DEGREES_OF_FREEDOM,
    MAX_DEGREES_OF_FREEDOM_OF_GROUPS,
    are_odd,
    table_prior,
)


def moderate(
    differences: Sequence[Difference | None],
    *,
    groups: Sequence[Hashable] | None = None,
    most: int = MAX_DEGREES_OF_FREEDOM,
) -> list[Difference | None]:
    """Let the differences of one table borrow from each other's variances, when there are enough of them; keep the order.

    They get the p-values of the moderated t-test; their intervals and the p-values of their pairs alone remain. Differences
    without a t-test (too few pairs, or the same difference in all pairs) remain as they are, and nothing is borrowed from them;
    neither is from one that scatters much less or more than the others (`attnlab.stats.variance_prior`).

    Args:
        differences: Not yet corrected by `correct`.
        groups: The group of each difference; only members of one group borrow from each other. Default: all are one group.
        most: Largest number of degrees of freedom of the prior.
    """
    tested: dict[Hashable, dict[int, Difference]] = {}
    names = [None] * len(differences) if groups is None else groups
    for i, (name, difference) in enumerate(zip(names, differences, strict=True)):
        if difference is not None and _has_t_test(difference):
            tested.setdefault(name, {})[i] = difference
    most = min(most, MAX_DEGREES_OF_FREEDOM_OF_GROUPS) if len(tested) > 1 else most
    moderated = list(differences)
    for members in tested.values():
        odd = are_odd(*_spreads(members.values()))
        kept = {i: difference for (i, difference), unlike in zip(members.items(), odd, strict=True) if not unlike}
        if prior := table_prior(*_spreads(kept.values()), most=most):
            moderated = [moderated_t_test(kept[i], prior) if i in kept else d for i, d in enumerate(moderated)]
    return moderated


def _spreads(differences: Iterable[Difference]) -> tuple[list[float], list[int]]:
    """Return the variances of differences with a t-test, and their numbers of pairs."""
    intervals = [difference.interval for difference in differences]
    return [interval.sd**2 for interval in intervals if interval.sd], [interval.n for interval in intervals]


def cap_priors(tables: Sequence[Sequence[Difference | None]]) -> list[list[Difference | None]]:
    """Weaken the priors of tables that are corrected together, if there are several; keep the order."""
    return [[difference if len(tables) == 1 else _capped(difference) for difference in table] for table in tables]


def _capped(difference: Difference | None) -> Difference | None:
    most, prior = MAX_DEGREES_OF_FREEDOM_OF_GROUPS, difference.interval.prior if difference else None
    if difference is None or prior is None or prior.degrees_of_freedom <= most:
        return difference
    return moderated_t_test(difference, replace(prior, degrees_of_freedom=most))


def _has_t_test(difference: Difference) -> bool:
    return difference.p is not None and bool(difference.interval.sd)


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
    low, high = difference.ends_at(LEVEL / difference.comparisons)
    if low is None or high is None:
        return None
    if not difference.is_significant:
        low, high = min(low, 0.0), max(high, 0.0)  # only rounding can have left zero outside
    elif difference.interval.mean > 0:
        low = max(low, 0.0)
    else:
        high = min(high, 0.0)
    return replace(difference.interval, low=low, high=high)


def hides_correction(difference: Difference) -> bool:
    """Return True when the 95 % interval alone excludes zero although the difference is not significant in its table."""
    low, high = difference.interval.low, difference.interval.high
    return low is not None and high is not None and not low <= 0 <= high and not difference.is_significant
