"""Learning curves: the mean over a cell's seeds with their range, in several panels for many cells."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlab._util.run_state import RunState
from attnlab.config.command import CURVE
from attnlab.config.grid import cell_name
from attnlab.config.types import Label
from attnlab.report.plots import svg
from attnlab.report.plots.lines import DASHES, MAX_MARKERS, Curve, curve_plot, late_limits
from attnlab.report.section import Figure
from attnlab.stats.compare import CellSummary, ComparisonSpec, cell_of

if TYPE_CHECKING:
    import pandas

MAX_POINTS = 60  # of one curve; more are averaged in bins, because a plot is 220 units wide
MAX_CELLS = 9  # in one plot of curves; with more, one plot for each value of the other axes
MAX_PANELS = 12
MAX_PRINTED = 4  # curves of a program
MEAN_WIDTH, RUN_WIDTH = 1.9, 0.8  # line width of the mean over completed runs, and of an incomplete run
NATS, OTHER_NATS = "nats", "nats per token, of different data"  # of the training loss

CurvePoints = list[tuple[float, ...]]  # (step, mean, lowest, highest)


@dataclass(frozen=True)
class CurvePanel:
    """One plot of curves: its metric and unit, the axes that its cells share ("" for all cells), and its vertical limits."""

    metric: str
    unit: str
    panel: str
    note: str
    curves: Sequence[Curve]
    limits: svg.Limits

    @property
    def title(self) -> str:
        """The metric and the shared axes."""
        return f"{self.metric.removeprefix(CURVE)}{f', {self.panel}' if self.panel else ''}"


def drawn_curves(points: pandas.DataFrame, spec: ComparisonSpec) -> list[str]:
    """Return the names of the curves that a report draws: all of attnlab's training, and a program's first."""
    printed = [name for name in dict.fromkeys(points["metric"]) if name.startswith(CURVE)]
    printed.sort(key=lambda name: name != f"{CURVE}{spec.metric}")
    return [f"valid/{spec.metric}", "train/loss", *printed[:MAX_PRINTED]]


def learning_curves(panels: Sequence[CurvePanel]) -> list[Figure]:
    """Draw the plots of `learning_panels`."""
    plots, drawn = [], Counter[str]()
    for panel in panels:
        name = panel.metric.replace("/", "-") + (f"-{drawn[panel.metric]}" if panel.panel else "")
        drawn[panel.metric] += 1
        drawing = curve_plot(panel.curves, title=panel.title, note=panel.note, name=name, limits=panel.limits)
        plots.append(Figure(f"{name}.svg", panel.title, drawing))
    return plots


def learning_panels(
    cells: Sequence[CellSummary],
    records: Sequence[Mapping[str, Any]],
    points: pandas.DataFrame,
    *,
    spec: ComparisonSpec,
    colors: Mapping[str, str],
) -> list[CurvePanel]:
    """Return the plots of the metric on the validation split and of the training loss over steps; of a program, what it prints.

    Args:
        cells: In the report's order.
        records: The compared runs.
        points: As `attnlab.load_curves` returns them.
        spec: The metric and the axes.
        colors: Cell -> color.
    """
    by_name = {cell.name: cell for cell in cells}
    runs = {str(r["run_id"]): (by_name[cell_of(r, spec)], r["state"] == RunState.COMPLETED) for r in records}
    panels = _panels(cells)
    dashes = {name: DASHES[i % len(DASHES)] for i, name in enumerate(dict.fromkeys(panels.values()))}
    faceted = len(cells) > MAX_CELLS and "variant" in spec.axes and 1 < len(dashes) <= MAX_PANELS
    plots = []
    nats = NATS if len({r.get("data") for r in records}) < 2 else OTHER_NATS
    units = {f"valid/{spec.metric}": "validation split", "train/loss": nats}
    for metric in drawn_curves(points, spec):
        by_panel: dict[str, list[Curve]] = {}
        for cell, completed, path in _group_points(points.loc[points["metric"] == metric], runs):
            panel = panels[cell.name]
            label, dash = (cell.axes["variant"], "") if faceted else (cell.name, dashes[panel])
            for part in reversed(_parts(path)):  # the label is that of the first curve of its cell
                band = [(step, low, high) for step, _, low, high in part if low != high]
                line = [(step, mean) for step, mean, _, _ in part]
                curve = Curve(label, colors[cell.name], line, dash, band, width=MEAN_WIDTH if completed else RUN_WIDTH)
                by_panel.setdefault(panel if faceted else "", []).append(curve)
        every = [curve for curves in by_panel.values() for curve in curves]
        if max((len(curve.points) for curve in every), default=0) < 2:
            continue
        limits, has_bands = late_limits(every), any(curve.band for curve in every)
        unit = units.get(metric, "as printed")
        note = f"{unit}; {'mean and range of seeds' if has_bands else 'one seed per cell'}"
        most = max(len(curve.points) for curve in every)
        points_of = "points" if metric not in units else "" if metric == "train/loss" else "evaluations"
        note += f"; {most} {points_of}" if most <= MAX_MARKERS and points_of else ""
        plots += [CurvePanel(metric, unit, panel, note, curves, limits) for panel, curves in by_panel.items()]
    return plots


def _group_points(
    points: pandas.DataFrame, runs: Mapping[str, tuple[CellSummary, bool]]
) -> list[tuple[CellSummary, bool, CurvePoints]]:
    """Return one curve for the completed runs of each cell, and one for each incomplete run.

    The mean at a step at which a run is not finite is NaN: a gap.
    """
    first: dict[tuple[str, str], str] = {}  # run of each curve
    curves = {i: first.setdefault((cell.name, "" if completed else i), i) for i, (cell, completed) in runs.items()}
    grouped = []
    for curve, selected in points.groupby(points["run_id"].astype(object).map(curves.get), sort=False):
        values: Any = selected["value"]
        values = values.where(values.abs() < math.inf)
        steps = values.groupby(selected["step"]).agg(["mean", "min", "max"])
        steps[values.isna().groupby(selected["step"]).any()] = math.nan
        grouped.append((*runs[str(curve)], _thin(list(steps.itertuples(name=None)))))
    return grouped


def _parts(path: CurvePoints) -> list[CurvePoints]:
    """Return the parts of a curve between its gaps."""
    parts: list[CurvePoints] = [[]]
    for point in path:
        if math.isfinite(point[1]):
            parts[-1].append(point)
        elif parts[-1]:
            parts.append([])
    return [part for part in parts if part]


def _panels(cells: Sequence[CellSummary]) -> dict[str, str]:
    """Return cell -> its axes other than the variant as text, which distinguishes cells of one color."""
    others: dict[str, dict[str, Label]] = {
        cell.name: {axis: value for axis, value in cell.axes.items() if axis != "variant"} for cell in cells
    }
    return {name: cell_name(axes) for name, axes in others.items()}


def _thin(points: CurvePoints) -> CurvePoints:
    """Average neighboring points, so that a page with many runs stays small."""
    size = -(-len(points) // MAX_POINTS)
    if size <= 1:
        return points
    bins = [points[i : i + size] for i in range(0, len(points), size)]
    return [(b[len(b) // 2][0], *(sum(values) / len(b) for values in list(zip(*b, strict=True))[1:])) for b in bins]
