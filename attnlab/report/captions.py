"""Captions of figures and tables in a paper, as text: which test, how many seeds, which correction, which intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attnlab._util.metrics import in_words
from attnlab.report.wording import count, describe_test
from attnlab.stats.cells import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.paired import Difference, Interval
from attnlab.stats.simultaneous import hides_correction


def metric_name(spec: ComparisonSpec) -> str:
    """Return the metric's name as words."""
    return in_words(spec.metric)


def differences_of(cells: Sequence[CellSummary]) -> list[Difference]:
    """Return the differences of a table."""
    return [cell.difference for cell in comparisons(cells) if cell.difference is not None]


def describe_seeds(numbers: Sequence[int]) -> str:
    """Return numbers of seeds as in "3 seeds" or "2 to 5 seeds"."""
    low, high = min(numbers, default=0), max(numbers, default=0)
    return count(low, "seed") if low == high else f"{low} to {high} seeds"


def interval_clause(spec: ComparisonSpec, intervals: Iterable[Interval | None], *, whose: str = "the") -> str:
    """Return what stands after a value: the interval of that kind, or that there is none."""
    if all(interval is None or interval.low is None for interval in intervals):
        return "(no interval)"
    if spec.estimator.is_exact:
        return f"with {whose} exact 95 % interval over seeds in brackets"
    return f"± half the width of {whose} 95 % t-interval over seeds"


def test_clause(differences: Sequence[Difference], spec: ComparisonSpec, *, of: str, equivalent: str = "equivalent") -> str:
    """Return the test, the equivalence test if there is one, and the correction.

    Args:
        differences: Of one table.
        spec: The comparison that the study makes.
        of: Noun for one of the differences.
        equivalent: The rows that the equivalence test is about.
    """
    if all(difference.p is None for difference in differences):
        return "no test, for want of seeds"
    moderated = any(difference.interval.prior for difference in differences)
    test = spec.estimator.words.test or f"two-sided {'moderated ' if moderated else ''}paired t-test"
    equivalence = spec.margin is not None and spec.estimator.has_equivalence
    margin = f" ({equivalent}: two one-sided tests against the margin ±{spec.margin:g})" if equivalence else ""
    number = max((difference.comparisons for difference in differences), default=0)
    looks = f" and for {spec.looks.count} looks at the data" if spec.looks and spec.looks.count > 1 else ""
    return f"{test} over seeds{margin}, corrected by Holm's method over {count(number, of)}{looks}"


def simultaneous_clause(differences: Sequence[Difference]) -> str:
    """Return a sentence on the mark of simultaneous intervals, with a space before it; "" if no difference has it."""
    if not any(map(hides_correction, differences)):
        return ""
    return " ‡: simultaneous (Bonferroni) interval, shown where the 95 % interval alone excludes zero without a verdict."


def forest_caption(differences: Sequence[Difference], cells: Sequence[CellSummary], spec: ComparisonSpec, *, of: str) -> str:
    """Return the caption of a plot of differences or effects; `of` describes them."""
    seeds = describe_seeds([difference.interval.n for difference in differences])
    number = max((difference.comparisons for difference in differences), default=1)
    kind = "exact intervals" if spec.estimator.is_exact else "t-intervals"
    lines = f", thick lines 95 % {kind} over seeds" if any(d.interval.low is not None for d in differences) else ""
    lines += f", thin lines simultaneous intervals (Bonferroni over {number})" if lines and number > 1 else ""
    rings = "; rings are single seeds" if spec.estimator.in_unit else ""
    margin = f"; the band is the margin of equivalence, ±{spec.margin:g}" if spec.margin else ""
    return (
        f"{of[:1].upper()}{of[1:]} {describe_test(cells)}, over {seeds}. Squares are estimates{lines}{rings}{margin}. "
        "Arrows point to what lies beyond the axis."
    )
