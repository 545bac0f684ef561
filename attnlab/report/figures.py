"""The plots of a study: differences, seeds, and trade-offs with costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from attnlab._util import cost_metrics
from attnlab._util.colors import colors_of, shades
from attnlab.report.notes import plot_label
from attnlab.report.plots.learning import MAX_CELLS
from attnlab.report.plots.rows import ForestRow, SeedRow, forest_plot, forest_row, seed_plot
from attnlab.report.plots.scatter import TradeoffPoint, tradeoff_plot
from attnlab.report.plots.svg import fits_title
from attnlab.report.section import Figure
from attnlab.report.wording import better, format_difference
from attnlab.stats.compare import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.records import comparison_name


def cell_colors(cells: Sequence[CellSummary]) -> dict[str, str]:
    """Return cell -> color: shades of its variant's color, or one per cell where all cells have one variant."""
    groups: dict[str, list[str]] = {}
    for cell in cells:
        groups.setdefault(str(cell.axes.get("variant", "")), []).append(cell.name)
    if len(groups) == 1:
        return colors_of(cell.name for cell in cells)
    colors = {variant: shades(color, len(groups[variant])) for variant, color in colors_of(groups).items()}
    return {name: colors[variant][i] for variant, names in groups.items() for i, name in enumerate(names)}


def draw_differences(cells: Sequence[CellSummary], spec: ComparisonSpec, colors: Mapping[str, str]) -> list[Figure]:
    """Draw the differences from the baselines, and the score of every seed."""
    return _differences(cells, spec, colors) + _seeds(cells, spec, colors)


def difference_rows(cells: Sequence[CellSummary], spec: ComparisonSpec, colors: Mapping[str, str]) -> list[ForestRow]:
    """Return a row for each difference from a baseline: its distance from the value without a difference, and its intervals."""
    by_name = {cell.name: cell for cell in cells}
    rows, several = [], any(cell.further for cell in cells)
    in_unit = spec.estimator.in_unit
    for cell in comparisons(cells):
        if cell.difference is not None and math.isfinite(cell.difference.interval.mean):
            name = comparison_name(plot_label(cell, spec), cell.baseline) if several else plot_label(cell, spec)
            baseline = by_name[cell.baseline].values
            shown = {seed: value for seed, value in cell.values.items() if in_unit}
            values = {seed: value - baseline[seed] for seed, value in shown.items() if seed in baseline}
            options = {"text": format_difference(cell, in_plot=True), "control": spec.is_control(cell.axes)}
            rows.append(forest_row(name, colors[cell.name], values, cell.difference, run=cell.name, **options))
    return rows


def differences_title(cells: Sequence[CellSummary], spec: ComparisonSpec) -> str:
    """Return what a plot of differences shows, with the baseline's name if there is one, and it is short."""
    baselines = {cell.baseline for cell in comparisons(cells) if cell.baseline}
    heading = spec.estimator.words.difference_heading
    title = f"{heading} {next(iter(baselines))}"
    return f"{heading} the baseline" if len(baselines) > 1 or not fits_title(title) else title


def _differences(cells: Sequence[CellSummary], spec: ComparisonSpec, colors: Mapping[str, str]) -> list[Figure]:
    rows, estimator = difference_rows(cells, spec, colors), spec.estimator
    if not rows:
        return []
    title = differences_title(cells, spec)
    note = f"{'mean' if estimator.is_mean else 'estimate'}, 95 % interval{'; rings: each seed' if estimator.in_unit else ''}"
    note += "" if spec.margin is None else f"; blue: margin ±{spec.margin:g}"
    if any(row.outer_low is not None for row in rows):
        note = f"95 % interval; thin: simultaneous{'; rings: seeds' if estimator.in_unit else ''}"
        note += "" if spec.margin is None else f"; blue: ±{spec.margin:g}"
    drawing = forest_plot(rows, title=title, note=note, direction=estimator.difference_direction, margin=spec.margin)
    return [Figure("forest.svg", title, drawing)]


def _seeds(cells: Sequence[CellSummary], spec: ComparisonSpec, colors: Mapping[str, str]) -> list[Figure]:
    completed = [cell for cell in cells if cell.value is not None]
    if not completed:
        return []
    rows = [SeedRow(c.name, colors[c.name], c.values, c.value.mean, c.value.low, c.value.high) for c in completed if c.value]
    several = max(len(cell.values) for cell in completed) > 1
    joined = several and 1 < len(completed) <= MAX_CELLS and any(cell.difference for cell in completed)
    joined = joined and len({cell.test for cell in completed}) == 1
    title = f"{spec.metric}, every seed"
    bars = "; bar: 95 % interval" if any(row.low is not None for row in rows) else ""
    note = f"{better(spec.direction)}{bars}{'; thin lines join one seed' if joined else ''}"
    threshold = spec.estimator.threshold
    note += "" if threshold is None else f"; line: {threshold:g}"
    return [Figure("seeds.svg", title, seed_plot(rows, title=title, note=note, joined=joined, threshold=threshold))]


def draw_tradeoffs(cells: Sequence[CellSummary], spec: ComparisonSpec, colors: Mapping[str, str]) -> list[Figure]:
    """Draw the metric against each cost that has a trade-off plot and that at least two cells have."""
    completed = [cell for cell in cells if cell.value is not None]
    figures = []
    for cost in _plotted_costs(completed):
        points = []
        for cell in completed:
            if cell.value is not None and cost.name in cell.costs:
                value, mean, seed_range = cell.value, cell.costs[cost.name].mean, cell.ranges.get(cost.name)
                point = TradeoffPoint(
                    cell.name, colors[cell.name], mean, value.mean, value.low, value.high, seed_range, cell.test
                )
                points.append(point)
        if len(points) < 2:
            continue
        title = f"{spec.metric} against {cost.heading}"
        cost_direction, side = ("min", "left") if cost.better == "lower" else ("max", "right")
        note = f"{'lower' if spec.direction == 'min' else 'upper'} {side} is better; ringed: Pareto front of the means"
        svg = tradeoff_plot(
            points,
            title=title,
            note=note,
            direction=spec.direction,
            cost_direction=cost_direction,
            axis_labels=(cost.heading, spec.metric),
            footer=_tradeoff_footer(points),
        )
        figures.append(Figure(f"{cost.name}.svg", title, svg))
    return figures


def _plotted_costs(completed: Sequence[CellSummary]) -> list[cost_metrics.CostMetric]:
    """Return one cost metric per trade-off plot: the first that all cells have, else the first that any has."""
    plots: dict[str, list[cost_metrics.CostMetric]] = {}
    for metric in cost_metrics.COST_METRICS:
        if metric.plot and any(metric.name in cell.costs for cell in completed):
            plots.setdefault(metric.plot, []).append(metric)
    return [
        next((metric for metric in metrics if all(metric.name in cell.costs for cell in completed)), metrics[0])
        for metrics in plots.values()
    ]


def _tradeoff_footer(points: Sequence[TradeoffPoint]) -> list[str]:
    """Explain the bars of a trade-off plot, and the rings if the cost is measured."""
    bar = "upright bar: 95 % interval"
    if any(point.cost_range for point in points):
        return [
            f"{bar}; level: lowest to highest seed",
            "where level bars overlap, the costs may be the same",
        ]
    return [bar] if any(point.low is not None for point in points) else []
