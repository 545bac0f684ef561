"""Which plots a study gets: every seed of every cell, learning curves, speed and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlab.grid.axes import Label
from attnlab.grid.cells import cell_name
from attnlab.palette import BUILT_IN, color_of
from attnlab.reporting.compare import COSTS, Question, Row, cell_of
from attnlab.reporting.plots import DASHES, Curve, Dots, curves, dots, late_span
from attnlab.stats import interval

if TYPE_CHECKING:
    import pandas

MOST_POINTS = 120  # of one curve; more are averaged in bins
CROWD = 9  # cells in one plot of curves; above that, one plot for each value of the other axes
MOST_PANELS = 12


@dataclass(frozen=True)
class Figure:
    """One plot: its file name, what it shows, and the SVG."""

    file: str
    title: str
    svg: str


def cell_colors(table: Sequence[Row]) -> dict[str, str]:
    """Cell -> colour: its variant's; where all cells have one variant, a colour each."""
    variants = {row.name: str(row.axes.get("variant", "")) for row in table}
    if len(set(variants.values())) > 1:
        return {name: color_of(variant) for name, variant in variants.items()}
    palette = list(BUILT_IN.values())
    return {row.name: palette[i % len(palette)] for i, row in enumerate(table)}


def draw(
    table: Sequence[Row],
    records: Sequence[Mapping[str, Any]],
    points: pandas.DataFrame,
    *,
    question: Question,
) -> list[Figure]:
    """Draw what there is to draw; a study without a completed run gets curves at most."""
    colors = cell_colors(table)
    better = "lower is better" if question.direction == "min" else "higher is better"
    found = []
    done = [row for row in table if row.value is not None]
    if done:
        lines = [_dots(row.name, colors[row.name], list(row.values.values())) for row in done]
        found.append(_figure("seeds", f"{question.metric}, every seed", dots, lines, note=f"test split; {better}"))
    found += _learning(table, records, points, question=question, colors=colors)
    for cost, note in (
        ("tokens_per_s", "training; higher is faster"),
        ("saved_mib", "kept for backward; lower is leaner"),
    ):
        lines = [
            Dots(row.name, colors[row.name], [row.costs[cost].mean], row.costs[cost].mean) for row in done if cost in row.costs
        ]
        if lines:
            found.append(_figure(cost, f"{COSTS[cost]}, mean over seeds", dots, lines, note=note))
    return found


def _figure(file: str, title: str, plot: Any, lines: Sequence[Any], *, note: str, **more: Any) -> Figure:
    return Figure(f"{file}.svg", title, plot(lines, title=title, note=note, **more))


def _dots(label: str, color: str, values: Sequence[float]) -> Dots:
    seen = interval(values)
    return Dots(label, color, values, seen.mean, seen.low, seen.high)


def _learning(
    table: Sequence[Row],
    records: Sequence[Mapping[str, Any]],
    points: pandas.DataFrame,
    *,
    question: Question,
    colors: Mapping[str, str],
) -> list[Figure]:
    """Curves of the metric on valid, and of the training loss; in panels where there are many cells."""
    by_name = {row.name: row for row in table}
    cells = {str(record["run_id"]): by_name[cell_of(record, question)] for record in records}
    panels = _panels(table)
    dashes = {name: DASHES[i % len(DASHES)] for i, name in enumerate(dict.fromkeys(panels.values()))}
    faceted = len(table) > CROWD and "variant" in question.axes and 1 < len(dashes) <= MOST_PANELS
    found = []
    for metric, what in (
        (f"valid/{question.metric}", "on the validation split"),
        ("train/loss", "nats"),
    ):
        by_panel: dict[str, list[Curve]] = {}
        for run_id, group in points[points["metric"] == metric].groupby("run_id", sort=False):
            row = cells.get(str(run_id))
            if row is None:
                continue
            path = _thinned(list(zip(group["step"].tolist(), group["value"].tolist(), strict=True)))
            panel = panels[row.name]
            label, dash = (row.axes["variant"], "") if faceted else (row.name, dashes[panel])
            curve = Curve(label, colors[row.name], path, dash)
            by_panel.setdefault(panel if faceted else "", []).append(curve)
        every = [curve for lines in by_panel.values() for curve in lines]
        if max((len(curve.points) for curve in every), default=0) < 2:
            continue
        span = late_span(every)
        for i, (panel, lines) in enumerate(by_panel.items()):
            name = f"{metric.replace('/', '-')}{f'-{i}' if panel else ''}"
            title = f"{metric}{f', {panel}' if panel else ''}"
            found.append(_figure(name, title, curves, lines, note=f"{what}; one line a seed", name=name, span=span))
    return found


def _panels(table: Sequence[Row]) -> dict[str, str]:
    """Cell -> its axes other than the variant, in words: what tells apart cells of one colour."""
    others: dict[str, dict[str, Label]] = {
        row.name: {axis: value for axis, value in row.axes.items() if axis != "variant"} for row in table
    }
    return {name: cell_name(axes) for name, axes in others.items()}


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Average runs of neighbouring points, so that a page of many runs stays small."""
    points = sorted(p for p in points if p[1] == p[1])
    size = -(-len(points) // MOST_POINTS)
    if size <= 1:
        return points
    bins = [points[i : i + size] for i in range(0, len(points), size)]
    return [(b[len(b) // 2][0], sum(v for _, v in b) / len(b)) for b in bins]
