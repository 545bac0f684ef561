"""Trends: the change of a cell's difference from its baseline over levels of training steps, width, depth
or another number.

A study with `over` trains each cell and its baseline at several levels with the same seeds. For each seed,
the paired difference at every level is regressed on the logarithm of the level to base 2 by least squares:
one slope per seed, in the metric's unit per doubling of the level. The slopes are independent over seeds,
however the differences of one seed are correlated, so they are tested by the paired t-test, and by two
one-sided tests against a margin (`attnlab.stats.paired`). Holm's method corrects over the trends of a
table. Only seeds that completed at every level count, and there is no test if the cell and its baseline lost
different numbers of them (`attnlab.stats.compare.MAX_LOST_SHARE`).

The words of a trend are about the size of the difference. If d1 and d2 are its values at the lowest and the
highest level on the fitted line, then d2² - d1² = (d2 - d1)(d2 + d1): the size grows if slope and middle of
the line have the same sign, and shrinks if they have opposite signs. Both signs must be significant (an
intersection-union test, Berger 1982), each corrected over the table by itself. A cell that is better at one
end of the range and worse at the other changes sign. A line can say the opposite of the differences that it
is fitted to, for example when they rise and fall again: such a trend is inconclusive. Nothing is claimed beyond
the levels.

References:
    Berger, R. L. (1982). Multiparameter hypothesis testing and acceptance sampling. Technometrics 24, 295-300.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from attnlab.config.grid import cell_name
from attnlab.stats import paired
from attnlab.stats.cells import CellSummary, ComparisonSpec, comparisons, split_tasks
from attnlab.stats.compare import lose_seeds_alike
from attnlab.stats.paired import LEVEL, Difference, Interval, NoTest, noise
from attnlab.stats.records import comparison_name
from attnlab.stats.sequential import merge_looks


class TrendKind(StrEnum):
    """The possible outcomes of a trend."""

    SHRINKS = "shrinks"
    GROWS = "grows"
    REVERSES = "changes sign"
    CHANGES = "changes"  # in one direction; the size may shrink or grow
    STEADY = "steady"
    INCONCLUSIVE = "inconclusive"


class TrendReason(StrEnum):
    """The reason why there is no test of a trend, as its page states it."""

    ONE_LEVEL = "it shares seeds with its baseline at one level only"
    NO_SHARED_SEED = "no seed completed at every level"
    ONE_SEED = "one seed, no interval"
    LOSSES = "the cell and its baseline lost different numbers of seeds"
    CHOICE = "at a level, the verdict depends on the seeds that choose the best values tried"
    CONSTANT = "the same change in all seeds"
    BEFORE_FIRST_LOOK = "fewer seeds than the first look has"
    NOT_A_LINE = "the differences at the levels do not follow the fitted line"


@dataclass(frozen=True)
class Trend:
    """The differences of one cell from its baseline by level, and their change.

    Attributes:
        name: The cell's name without the level.
        baseline: The baseline's name without the level.
        axis: The axis of the levels.
        levels: Those at which the cell and its baseline share a seed, ascending.
        comparisons: The cell at each of these levels, as in the table of verdicts.
        slope: Change of the difference per doubling of the level, with the p-values of the trend; its
            `interval.n` is the number of seeds that completed at every level. None without such a seed, or
            with fewer than two levels.
        middle: The difference at the middle of the range on the fitted line, like `slope`.
        kind: The outcome.
        reason: The reason if there is no test, or the differences contradict its outcome; else None.
    """

    name: str
    baseline: str
    axis: str
    levels: tuple[float, ...]
    comparisons: tuple[CellSummary, ...]
    slope: Difference | None = None
    middle: Difference | None = None
    kind: TrendKind = TrendKind.INCONCLUSIVE
    reason: TrendReason | None = None

    @property
    def p_value(self) -> float | None:
        """P-value that the outcome rests on."""
        if self.slope is None:
            return None
        if self.kind is TrendKind.STEADY and not self.slope.identical:
            return self.slope.p_equivalent_holm
        return self.p_size if self.kind in (TrendKind.SHRINKS, TrendKind.GROWS) else self.slope.p_holm

    @property
    def p_size(self) -> float | None:
        """P-value of "shrinks" and "grows", corrected over the table: slope and middle both have the observed sign."""
        p_values = [test.p_holm for test in (self.slope, self.middle) if test is not None and test.p_holm is not None]
        return max(p_values) if len(p_values) == 2 else None if self.reason or self.slope is None else 1.0

    @property
    def doublings(self) -> float:
        """The range of the levels in doublings."""
        return math.log2(self.levels[-1] / self.levels[0]) if self.levels else 0.0

    @property
    def change(self) -> Interval | None:
        """The change of the difference from the lowest to the highest level on the fitted line, with its interval."""
        return None if self.slope is None else scaled(self.slope.interval, self.doublings)

    @property
    def ends(self) -> tuple[CellSummary, CellSummary]:
        """The cell at the lowest level and at the highest."""
        return self.comparisons[0], self.comparisons[-1]

    @property
    def mean_changes_sign(self) -> bool:
        """True when the mean differences at the lowest and the highest level have opposite signs, significant or not."""
        first, last = (comparison.difference for comparison in self.ends)
        return first is not None and last is not None and first.interval.mean * last.interval.mean < 0


def scaled(interval: Interval, factor: float) -> Interval:
    """Return an interval in another unit, `factor` (> 0) times as large."""
    sd, low, high = (None if value is None else value * factor for value in (interval.sd, interval.low, interval.high))
    return Interval(interval.n, interval.mean * factor, sd, low, high)


def summarize_trends(cells: Iterable[CellSummary], spec: ComparisonSpec) -> list[Trend]:
    """Return the trend of each cell that is compared with a baseline, in the order in which cells first appear.

    Args:
        cells: As `attnlab.stats.compare.summarize_cells` returns them.
        spec: The comparison that the study makes; without `over`, or with another estimand than the mean, there are no trends.
    """
    if not spec.over or not spec.estimator.is_mean:
        return []
    return correct_trends([trend for part, of_task in split_tasks(cells, spec) for trend in _fit_all(of_task, part)])


def _fit_all(cells: Sequence[CellSummary], spec: ComparisonSpec) -> list[Trend]:
    """Return the trends of one task, not yet corrected."""
    by_name = {cell.name: cell for cell in cells}
    groups: dict[tuple[str, str], dict[float, CellSummary]] = {}
    for comparison in comparisons(cells):
        if comparison.difference is not None and not spec.is_control(comparison.axes):
            key = name_without_level(comparison, spec), name_without_level(by_name[comparison.baseline], spec)
            groups.setdefault(key, {})[float(comparison.axes[spec.over])] = comparison
    return [_fit(*key, dict(sorted(levels.items())), by_name, spec) for key, levels in groups.items()]


def correct_trends(trends: Sequence[Trend]) -> list[Trend]:
    """Correct trends over their table by Holm's method, and fill in their outcomes."""
    slopes = paired.correct([trend.slope for trend in trends])
    middles = paired.correct([trend.middle for trend in trends])
    corrected = [
        replace(trend, slope=slope, middle=middle) for trend, slope, middle in zip(trends, slopes, middles, strict=True)
    ]
    return [trend if trend.reason else _judged(trend) for trend in corrected]


def name_without_level(cell: CellSummary, spec: ComparisonSpec) -> str:
    """Return the name that a cell shares with the cells that differ from it only in the level."""
    axes = {axis: value for axis, value in cell.axes.items() if axis != spec.over}
    return cell_name(axes) or cell.name


def fit_line(levels: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Return slope and middle of the least-squares line through values over the logarithm of levels to base 2.

    Args:
        levels: At least two numbers above 0, ascending.
        values: One per level.

    Returns: The change per doubling of the level, and the value of the line halfway, in logarithms, between
        the first level and the last.
    """
    x = [math.log2(level) for level in levels]
    mean_x, mean = math.fsum(x) / len(x), math.fsum(values) / len(x)
    slope = math.fsum((a - mean_x) * (v - mean) for a, v in zip(x, values, strict=True)) / math.fsum(
        (a - mean_x) ** 2 for a in x
    )
    return slope, mean + slope * ((x[0] + x[-1]) / 2 - mean_x)


def _fit(
    name: str, baseline: str, levels: Mapping[float, CellSummary], by_name: Mapping[str, CellSummary], spec: ComparisonSpec
) -> Trend:
    """Return a trend with its slope, not yet corrected over the table."""
    trend = Trend(name, baseline, spec.over, tuple(levels), tuple(levels.values()))
    if len(levels) < 2:
        return replace(trend, reason=TrendReason.ONE_LEVEL)
    scores = [(cell.values, by_name[cell.baseline].values) for cell in levels.values()]
    seeds = sorted(set.intersection(*({*values} & {*base} for values, base in scores)))
    if not seeds:
        return replace(trend, reason=TrendReason.NO_SHARED_SEED)
    lines = {seed: fit_line(trend.levels, [values[seed] - base[seed] for values, base in scores]) for seed in seeds}
    largest = {seed: max(abs(values[seed]) for pair in scores for values in pair) for seed in seeds}
    zero = dict.fromkeys(seeds, 0.0)
    margin = None if spec.margin is None else spec.margin / trend.doublings
    per_noise = 2 / trend.doublings  # noise of a slope, relative to that of a score: at most that of the line between the ends
    of_slope = {seed: per_noise * value for seed, value in largest.items()}
    slopes, middles = ({seed: line[i] for seed, line in lines.items()} for i in (0, 1))
    compared = (comparison_name(cell.name, cell.baseline) for cell in levels.values())
    looks = merge_looks(spec.looks_of(name) for name in compared)
    slope = paired.difference(slopes, zero, margin=margin, looks=looks, scales=of_slope)
    middle = paired.difference(middles, zero, looks=looks, scales=largest)
    assert slope is not None and middle is not None
    bases = [by_name[cell.baseline] for cell in levels.values()]
    if len(seeds) > 1 and _lost_unequally(trend.comparisons, bases):
        slope, middle = (paired.withhold(part, NoTest.LOSSES) for part in (slope, middle))
        return replace(trend, slope=slope, middle=middle, reason=TrendReason.LOSSES)
    if any(cell.difference and cell.difference.no_test is NoTest.CHOICE for cell in trend.comparisons):
        slope, middle = (paired.withhold(part, NoTest.CHOICE) for part in (slope, middle))
        return replace(trend, slope=slope, middle=middle, reason=TrendReason.CHOICE)
    trend = replace(trend, slope=slope, middle=middle)
    if slope.no_test is NoTest.CONSTANT:
        return replace(trend, reason=TrendReason.CONSTANT)
    if slope.p is None:
        reason = TrendReason.ONE_SEED if len(seeds) == 1 else TrendReason.BEFORE_FIRST_LOOK
        return replace(trend, reason=reason)
    return trend


def _lost_unequally(cells: Sequence[CellSummary], baselines: Sequence[CellSummary]) -> bool:
    """Return True when the cells lost other numbers of seeds than their baselines, at one level or at all together."""
    pairs = [([cell], [baseline]) for cell, baseline in zip(cells, baselines, strict=True)]
    return not all(lose_seeds_alike(*groups) for groups in [*pairs, (cells, baselines)])


def _judged(trend: Trend) -> Trend:
    """Return a tested trend with its outcome, which is inconclusive if the mean differences at the levels contradict it."""
    kind = _kind(trend)
    if _follows_line(trend, kind):
        return replace(trend, kind=kind)
    return replace(trend, kind=TrendKind.INCONCLUSIVE, reason=TrendReason.NOT_A_LINE)


def _follows_line(trend: Trend, kind: TrendKind) -> bool:
    """Return True when the mean differences at the levels agree with an outcome of the fitted line."""
    assert trend.slope is not None
    means = [comparison.difference.interval.mean for comparison in trend.comparisons if comparison.difference is not None]
    first, last = means[0], means[-1]
    if kind is TrendKind.STEADY:
        rounding = noise(*(value for comparison in trend.comparisons for value in comparison.values.values()))
        return max(means) - min(means) <= max(trend.slope.margin * trend.doublings if trend.slope.margin else 0.0, rounding)
    same_direction = (last - first) * trend.slope.interval.mean > 0
    if kind is TrendKind.GROWS:
        return same_direction and abs(last) > abs(first)
    if kind is TrendKind.SHRINKS:
        return same_direction and abs(last) < abs(first)
    return same_direction or kind is TrendKind.INCONCLUSIVE


def _kind(trend: Trend) -> TrendKind:
    """Return the outcome of a trend that was tested."""
    assert trend.slope is not None and trend.middle is not None and trend.p_size is not None
    conclusion = trend.slope.conclusion
    if conclusion in ("equivalent", "identical"):
        return TrendKind.STEADY
    if not conclusion:
        return TrendKind.INCONCLUSIVE
    if {comparison.difference.conclusion for comparison in trend.ends if comparison.difference} == {"lower", "higher"}:
        return TrendKind.REVERSES
    if trend.p_size >= LEVEL:
        return TrendKind.CHANGES
    same_sign = trend.slope.interval.mean * trend.middle.interval.mean > 0
    return TrendKind.GROWS if same_sign else TrendKind.SHRINKS
