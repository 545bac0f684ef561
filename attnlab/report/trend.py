"""The report's section on trends: differences by level, their change in words, and a plot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnlab.report.analysis import Analysis, Results
from attnlab.report.plots.lines import DASHES, TrendLine, format_level, trend_plot
from attnlab.report.section import Column, Figure, PageSection, Table, TableRow
from attnlab.report.summary import Strong, Summary
from attnlab.report.wording import (
    count,
    describe_mark,
    format_both,
    format_change,
    format_consistent,
    format_interval,
    format_p_value,
    level_noun,
)
from attnlab.stats.compare import CellSummary, ComparisonSpec
from attnlab.stats.records import as_columns, comparison_name
from attnlab.stats.trend import Trend, TrendKind, TrendReason

if TYPE_CHECKING:
    import pandas

    from attnlab.planning.plan import Plan

MAX_LINES = 8  # in one plot
MAX_NAMED = 3  # trends named in the sentence at the top; the table has all of them


def describe_trend(trend: Trend, spec: ComparisonSpec) -> str:
    """Return a trend in one line, for the terminal."""
    differences = [
        f"{format_interval(comparison.difference.interval, sign=True)} at {format_level(level)}"
        for level, comparison in zip(trend.levels, trend.comparisons, strict=True)
        if comparison.difference is not None
    ]
    text = f"{comparison_name(trend.name, trend.baseline)}: {describe_kind(trend)}: {', '.join(differences)} {level_noun(spec)}"
    if trend.slope is None:
        return text
    slope = format_both(trend.slope, after=" ({})")
    return f"{text}; {slope} per doubling{_p_clause(trend)}"


def describe_kind(trend: Trend) -> str:
    """Return the outcome of a trend with its conditions, for a table."""
    match trend.kind:
        case TrendKind.CHANGES:
            text = describe_change(trend)
        case TrendKind.STEADY if trend.slope is not None and trend.slope.identical:
            text = "steady, the same difference at every level"
        case TrendKind.STEADY:
            text = "steady within the margin"
        case TrendKind.INCONCLUSIVE if trend.reason is TrendReason.BEFORE_FIRST_LOOK and trend.slope and trend.slope.looks:
            seeds = count(trend.slope.interval.n, "seed")
            text = f"inconclusive: {seeds}, the first look is at {trend.slope.looks.first}"
        case TrendKind.INCONCLUSIVE if trend.reason is not None:
            text = f"inconclusive: {trend.reason}"
        case _:
            text = trend.kind.value
    return ", ".join([text, *_conditions(trend)])


def describe_change(trend: Trend) -> str:
    """Describe a significant slope as a change of the size of the difference, given the verdicts at the ends of the range."""
    assert trend.slope is not None
    first, last = (comparison.difference.conclusion if comparison.difference else "" for comparison in trend.ends)
    rises = trend.slope.interval.mean > 0
    if first == ("lower" if rises else "higher"):
        return "shrinks or changes sign"
    return "grows or changes sign" if last == ("higher" if rises else "lower") else "changes in size or in sign"


def _conditions(trend: Trend) -> list[str]:
    """Return the conditions of a trend's outcome: a mean that changes sign, a small size, seeds that do not count."""
    conditions = []
    tested = trend.slope is not None and trend.reason is None
    if tested and trend.kind not in (TrendKind.REVERSES, TrendKind.STEADY) and trend.mean_changes_sign:
        conditions.append("the mean difference changes sign")
    significant = trend.kind not in (TrendKind.INCONCLUSIVE, TrendKind.STEADY)
    if significant and trend.slope is not None and trend.slope.within_margin:
        conditions.append("by less than the margin")
    seeds = {seed for comparison in trend.comparisons for seed in comparison.values}
    if trend.slope is not None and trend.slope.interval.n < len(seeds):
        conditions.append(f"on {trend.slope.interval.n} of {len(seeds)} seeds")
    return conditions


def _p_value(trend: Trend) -> str:
    """Format the p-value that the outcome rests on, with a remark if it belongs to the equivalence test."""
    steady = trend.kind is TrendKind.STEADY and trend.slope is not None and not trend.slope.identical
    return format_p_value(trend.p_value) + (" (equivalence)" if steady else "")


def _p_clause(trend: Trend) -> str:
    """Format the p-value for a sentence, as in ", p = 0.006"; "" without one."""
    p = _p_value(trend)
    return f", p {p if p.startswith('<') else f'= {p}'}" if p else ""


def trend_table(trends: Sequence[Trend], *, colors: Mapping[str, str]) -> Table:
    """Return the differences by level with one row per trend.

    Args:
        trends: At least one.
        colors: Cell at a level -> color; a trend has the color of its highest level.
    """
    levels = sorted({level for trend in trends for level in trend.levels})
    several = len({trend.baseline for trend in trends}) > 1
    columns = [Column("cell", is_text=True), *([Column("compared with", is_text=True)] if several else [])]
    columns += [Column(f"at {format_level(level)}") for level in levels]
    columns += [Column("per doubling"), Column("over the range"), Column("p (Holm)"), Column("trend", is_text=True)]
    rows = []
    for trend in trends:
        by_level = dict(zip(trend.levels, trend.comparisons, strict=True))
        differences = [by_level[level].difference if level in by_level else None for level in levels]
        texts = [trend.name, *([trend.baseline] if several else [])]
        texts += [format_interval(d.interval, sign=True) if d else "" for d in differences]
        texts += [format_consistent(trend.slope) if trend.slope else ""]
        texts += [format_interval(trend.change, sign=True), _p_value(trend), describe_kind(trend)]
        rows.append(TableRow(texts, colors.get(trend.ends[1].name, "")))
    return Table(columns, rows)


def describe_method(trends: Sequence[Trend], spec: ComparisonSpec) -> str:
    """Return the paragraph above the table: what is compared with what, and at which levels."""
    baselines = list(dict.fromkeys(trend.baseline for trend in trends))
    levels = [format_level(level) for level in sorted({level for trend in trends for level in trend.levels})]
    versus = baselines[0] if len(baselines) == 1 else "its baseline"
    return (
        f"Difference of each cell from {versus} at {', '.join(levels)} {level_noun(spec)}, trained with the same seeds at "
        "each level, and the change of that difference. The result does not extend to levels outside this range."
    )


def trend_notes(trends: Sequence[Trend], spec: ComparisonSpec) -> list[str]:
    """Return notes on the figures of the table."""
    texts = describe_mark({trend.name: trend.slope for trend in trends if trend.slope}, of="slopes")
    if spec.margin is None:
        texts.append("Without a margin, the study cannot show that a difference is steady.")
    else:
        texts.append(f"Steady: two one-sided tests place the change over the range within the margin, ±{spec.margin:g}.")
    return [*texts, "Columns, words and tests: docs/studies/length.md#how-to-read-a-trend."]


def draw_trends(trends: Sequence[Trend], spec: ComparisonSpec, *, colors: Mapping[str, str]) -> list[Figure]:
    """Draw the differences over the levels, at most `MAX_LINES` trends in a plot."""
    lines = trend_lines(trends, colors)
    chunks = [lines[i : i + MAX_LINES] for i in range(0, len(lines), MAX_LINES)]
    title = f"difference in {spec.metric} over {level_noun(spec)}"
    note = f"{'negative' if spec.direction == 'min' else 'positive'} is better; 95 % intervals"
    note += "" if spec.margin is None else f"; blue: margin ±{spec.margin:g}"
    figures = []
    for i, chunk in enumerate(chunks):
        file = f"trend{f'-{i}' if len(chunks) > 1 else ''}.svg"
        drawing = trend_plot(chunk, title=title, note=note, axis=level_noun(spec), margin=spec.margin)
        figures.append(Figure(file, title, drawing))
    return figures


def trend_lines(trends: Sequence[Trend], colors: Mapping[str, str]) -> list[TrendLine]:
    """Return a line for each trend of at least two levels."""
    drawn = [trend for trend in trends if len(trend.levels) > 1]
    several = len({trend.baseline for trend in drawn}) > 1
    return [_line(trend, colors, i, several=several) for i, trend in enumerate(drawn)]


def _line(trend: Trend, colors: Mapping[str, str], number: int, *, several: bool) -> TrendLine:
    intervals = [comparison.difference.interval for comparison in trend.comparisons if comparison.difference is not None]
    points = [(level, i.mean, i.low, i.high) for level, i in zip(trend.levels, intervals, strict=True)]
    label = comparison_name(trend.name, trend.baseline) if several else trend.name
    return TrendLine(label, colors.get(trend.ends[1].name, ""), points, DASHES[number % len(DASHES)])


def with_trends(summary: Summary, trends: Sequence[Trend], spec: ComparisonSpec) -> Summary:
    """Return the summary of a study with a sentence on its trends after the conclusive verdicts."""
    if not trends:
        return summary
    groups: list[str] = []
    levels = sorted({level for trend in trends for level in trend.levels})
    by_verb: dict[str, list[str]] = {}
    for trend in sorted(trends, key=lambda trend: [*TrendKind].index(trend.kind)):
        if trend.kind is not TrendKind.INCONCLUSIVE:
            own = (trend.levels[0], trend.levels[-1])
            between = "" if own == (levels[0], levels[-1]) else f"from {' to '.join(map(format_level, own))}: "
            by_verb.setdefault(describe_verb(trend), []).append(f"{trend.name} ({between}{describe_ends(trend)})")
    for verb, named in by_verb.items():
        more = f"; and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
        groups += ["; " if groups else "", "the difference ", Strong(verb), f" for {'; '.join(named[:MAX_NAMED])}{more}"]
    opening = f" From {format_level(levels[0])} to {format_level(levels[-1])} {level_noun(spec)}, "
    open_ = sum(trend.kind is TrendKind.INCONCLUSIVE for trend in trends)
    if not groups:
        these = "the trend of the difference is" if len(trends) == 1 else f"the trends of all {len(trends)} differences are"
        return replace(summary, open=[*summary.open, f"{opening if summary.open else opening.lstrip()}{these} inconclusive."])
    rest = f"; {open_} of {count(len(trends), 'trend')} {'is' if open_ == 1 else 'are'} inconclusive" if open_ else ""
    return replace(summary, conclusive=[*summary.conclusive, opening, *groups, f"{rest}."])


def describe_verb(trend: Trend) -> str:
    """Return the verb of a conclusive trend, with "the difference" as the subject."""
    if trend.kind is not TrendKind.STEADY:
        return trend.kind.value
    if trend.slope is None:
        return "is steady"
    return "is the same at every level" if trend.slope.identical else "is steady within the margin"


def describe_ends(trend: Trend) -> str:
    """Return the ends of a trend as in "-0.0455 to -0.0127, p = 0.006", with its conditions."""
    ends = [comparison.difference.interval.mean for comparison in trend.ends if comparison.difference is not None]
    change = f": {describe_change(trend)}" if trend.kind is TrendKind.CHANGES else ""
    conditions = _conditions(trend)
    return ", ".join([f"{format_change(*ends)}{_p_clause(trend)}{change}", *conditions])


def _record(trend: Trend, level: float, comparison: CellSummary) -> dict[str, Any]:
    paired, sloped = (test.interval if test else None for test in (comparison.difference, trend.slope))
    return {
        "cell": trend.name,
        "baseline": trend.baseline,
        trend.axis: level,
        **as_columns(paired, n="n_paired", mean="difference", low="difference_low", high="difference_high"),
        **as_columns(sloped, n="n_trend", mean="slope", low="slope_low", high="slope_high"),
        **as_columns(trend.change, mean="change"),
        **as_columns(trend.slope, p="p", p_holm="p_holm"),
        "p_size_holm": trend.p_size,
        **as_columns(trend.slope, p_equivalent_holm="p_equivalent_holm"),
        "trend": describe_kind(trend),
    }


class TrendAnalysis(Analysis[list[Trend]]):
    """The differences over the levels of `over`; `trends.csv` has one row per trend and level."""

    def notes(self, plan: Plan) -> list[str]:
        """Return a note on an estimand that has no trend of its differences."""
        if plan.estimator.is_mean:
            return []
        levels = f"cells are compared at each level of {plan.study.over_axis}"
        return [f"{plan.estimand.name}: {levels}; only means have a tested trend over them"]

    def estimate(self, results: Results) -> list[Trend]:
        """Return the trends, which are corrected over all tasks of the study."""
        return list(results.compared.trends)

    def lines(self, estimate: list[Trend], results: Results) -> Iterator[str]:
        """Yield a line for each trend."""
        for trend in estimate:
            yield f"trend: {describe_trend(trend, results.spec)}"

    def section(self, estimate: list[Trend], results: Results) -> PageSection:
        """Return the section with the differences by level and their plot."""
        return PageSection(
            f"Trend over {level_noun(results.spec)}",
            [describe_method(estimate, results.spec)],
            plots=draw_trends(estimate, results.spec, colors=results.colors),
            table=trend_table(estimate, colors=results.colors),
            notes=trend_notes(estimate, results.spec),
        )

    def summarize(self, summary: Summary, estimate: list[Trend], results: Results) -> Summary:
        """Add a sentence on the trends after the conclusive verdicts."""
        return with_trends(summary, estimate, results.spec)

    def frames(self, estimate: list[Trend], results: Results) -> dict[str, pandas.DataFrame]:
        """Return the trends in full precision."""
        import pandas

        rows = [
            _record(trend, level, comparison)
            for trend in estimate
            for level, comparison in zip(trend.levels, trend.comparisons, strict=True)
        ]
        return {"trends": pandas.DataFrame(rows)}
