"""Moderated t-tests: the comparisons of one table share a prior of their variances (`attnlab.stats.variance_prior`).

Longer trainings and other test data change the variance of all cells by a large factor. A table with several levels or tests
therefore has a prior for each of them, with fewer degrees of freedom, because Holm's method corrects over all of them together
(as it does over the studies of one page and the tasks of one study, `benchmarks/several_studies.py`):
one prior for three levels with standard deviations that differ by a factor of 3 has up to 8 % of false verdicts, and its
intervals at the level that scatters most cover 84 % (`benchmarks/levels.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from attnlab.stats.paired import Difference, moderated_t_test
from attnlab.stats.variance_prior import (
    MAX_DEGREES_OF_FREEDOM,
    MAX_DEGREES_OF_FREEDOM_OF_GROUPS,
    are_twins,
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
    neither is from a twin of the baseline (`attnlab.stats.variance_prior`).

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
        twins = are_twins(*_spreads(members.values()))
        kept = {i: difference for (i, difference), twin in zip(members.items(), twins, strict=True) if not twin}
        if prior := table_prior(*_spreads(kept.values()), most=most):
            prior = replace(prior, groups=len(tested))
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
