"""Learning curves: the mean over a cell's seeds with the band they fill, in panels where there are many cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnlab.config.axes import Label
from attnlab.config.grid import cell_name
from attnlab.report.plots.curves import DASHES, Curve, curves, late_span
from attnlab.stats.compare import Question, Row, cell_of

if TYPE_CHECKING:
    import pandas

MOST_POINTS = 120  # of one curve; more are averaged in bins
CROWD = 9  # cells in one plot of curves; above that, one plot for each value of the other axes
MOST_PANELS = 12
MEAN, THIN = 1.9, 0.8  # width of the line of a cell's completed runs, and of a run that did not complete
Path = list[tuple[float, ...]]  # step, mean, lowest, highest


def learning(
    table: Sequence[Row],
    records: Sequence[Mapping[str, Any]],
    points: pandas.DataFrame,
    *,
    question: Question,
    colors: Mapping[str, str],
) -> list[tuple[str, str, str]]:
    """Curves of the metric on valid and of the training loss, as (name of a file, title, SVG)."""
    by_name = {row.name: row for row in table}
    cells = {str(r["run_id"]): (by_name[cell_of(r, question)], r["state"] == "completed") for r in records}
    panels = _panels(table)
    dashes = {name: DASHES[i % len(DASHES)] for i, name in enumerate(dict.fromkeys(panels.values()))}
    faceted = len(table) > CROWD and "variant" in question.axes and 1 < len(dashes) <= MOST_PANELS
    found = []
    for metric, what in ((f"valid/{question.metric}", "on the validation split"), ("train/loss", "nats")):
        by_panel: dict[str, list[Curve]] = {}
        for row, completed, path in _paths(points.loc[points["metric"] == metric], cells):
            panel = panels[row.name]
            label, dash = (row.axes["variant"], "") if faceted else (row.name, dashes[panel])
            band = [(step, low, high) for step, _, low, high in path if low != high]
            line = [(step, mean) for step, mean, _, _ in path]
            curve = Curve(label, colors[row.name], line, dash, band, width=MEAN if completed else THIN)
            by_panel.setdefault(panel if faceted else "", []).append(curve)
        every = [curve for lines in by_panel.values() for curve in lines]
        if max((len(curve.points) for curve in every), default=0) < 2:
            continue
        span, spread = late_span(every), any(curve.band for curve in every)
        note = f"{what}; {'mean, band: lowest to highest seed' if spread else 'one seed a cell'}"
        for i, (panel, lines) in enumerate(by_panel.items()):
            name = f"{metric.replace('/', '-')}{f'-{i}' if panel else ''}"
            title = f"{metric}{f', {panel}' if panel else ''}"
            found.append((name, title, curves(lines, title=title, note=note, name=name, span=span)))
    return found


def _paths(points: pandas.DataFrame, cells: Mapping[str, tuple[Row, bool]]) -> list[tuple[Row, bool, Path]]:
    """For each cell its completed runs as one path, and each run that did not complete as a path of its own."""
    groups: dict[tuple[str, str], list[str]] = {}
    for run_id in points["run_id"].unique():
        if run_id in cells:
            row, completed = cells[run_id]
            groups.setdefault((row.name, "" if completed else run_id), []).append(run_id)
    found = []
    for run_ids in groups.values():
        chosen = points[points["run_id"].isin(run_ids) & points["value"].notna()]
        steps = chosen.groupby("step")["value"].agg(["mean", "min", "max"])
        found.append((*cells[run_ids[0]], _thinned(list(steps.itertuples(name=None)))))
    return found


def _panels(table: Sequence[Row]) -> dict[str, str]:
    """Cell -> its axes other than the variant, in words: what tells apart cells of one colour."""
    others: dict[str, dict[str, Label]] = {
        row.name: {axis: value for axis, value in row.axes.items() if axis != "variant"} for row in table
    }
    return {name: cell_name(axes) for name, axes in others.items()}


def _thinned(path: Path) -> Path:
    """Average neighbouring points, so that a page of many runs stays small."""
    size = -(-len(path) // MOST_POINTS)
    if size <= 1:
        return path
    bins = [path[i : i + size] for i in range(0, len(path), size)]
    return [(b[len(b) // 2][0], *(sum(values) / len(b) for values in list(zip(*b, strict=True))[1:])) for b in bins]
