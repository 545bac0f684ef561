"""The figures of a paper as PDF: differences, effects, trends and learning curves, from the data of the page's plots.

Figures are one or two columns of a paper wide, so that they need no scaling. Fonts are embedded as TrueType, and the files
have no dates, so that the same study gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.config.command import CURVE
from attnlab.report.plots.curves import DASHES, Curve
from attnlab.report.plots.forest import MARGIN_COLOR, ForestRow, forest_limits
from attnlab.report.plots.learning import MEAN_WIDTH, NATS, OTHER_NATS, CurvePanel
from attnlab.report.plots.trend import TrendLine, format_level, trend_limits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ONE_COLUMN, TWO_COLUMNS = 3.25, 6.75  # inches
MAX_HEIGHT = 8.5  # inches
ROW_HEIGHT = 0.31  # inches of one row of a forest plot: its label and its interval
AXES_MARGIN = 0.62  # inches above and below the rows
CHARACTERS = 62  # of a label that fits into one column
PANEL_HEIGHT = 1.9  # inches
LEGEND_LINE = 0.15  # inches
SPREAD = 1.2  # of the lines at one level, as a factor
MAX_CURVES = 12  # in one panel; more cannot be told apart
MARKERS = "so^Dv"
INK, FAINT, GRID = "#1A1A1A", "#595959", "#D9D9D9"
STYLE: Any = {
    "axes.edgecolor": FAINT,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "axes.unicode_minus": True,
    "figure.constrained_layout.use": True,
    "font.family": ["STIXGeneral", "DejaVu Sans"],  # both come with matplotlib
    "font.size": 8,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "pdf.compression": 6,
    "pdf.fonttype": 42,  # TrueType
    "text.parse_math": False,  # a $ in a name is a dollar
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
}


@contextmanager
def _figure(path: Path, width: float, height: float) -> Iterator[Figure]:
    """Yield an empty figure of a size in inches, and write it to `path` as PDF."""
    import warnings

    import matplotlib.figure

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # boxes stand for names in a script that neither font has
        figure = matplotlib.figure.Figure(figsize=(width, height))
        yield figure
        figure.savefig(path, format="pdf", metadata={"CreationDate": None, "Creator": "attnlab"})


def fits_forest(rows: Sequence[ForestRow]) -> bool:
    """Return True if a forest plot of these rows fits on a page."""
    return ROW_HEIGHT * len(rows) + AXES_MARGIN <= MAX_HEIGHT


def forest(path: Path, rows: Sequence[ForestRow], *, label: str, direction: str, margin: float | None) -> None:
    """Draw differences with their intervals, one row each, in one column.

    Args:
        path: PDF to write.
        rows: From top to bottom.
        label: Of the horizontal axis.
        direction: "min" where a negative difference is better, else "max".
        margin: Largest difference that counts as equivalent; drawn as a band around zero.
    """
    limits = forest_limits(rows, margin)
    with _figure(path, ONE_COLUMN, ROW_HEIGHT * len(rows) + AXES_MARGIN) as figure:
        axes = figure.add_subplot()
        axes.set(xlim=limits, ylim=(len(rows) - 0.45, -0.75), yticks=[])
        axes.spines["left"].set_visible(False)
        if margin is not None:
            axes.axvspan(-margin, margin, color=MARGIN_COLOR, alpha=0.2, linewidth=0)
        axes.axvline(0, color=INK, linewidth=0.9)
        for y, row in enumerate(rows):
            _forest_row(axes, y, row, limits)
        left, right = ("better", "worse") if direction == "min" else ("worse", "better")
        axes.set_title(f"← {left}", loc="left", color=FAINT, fontsize=7, pad=2)
        axes.set_title(f"{right} →", loc="right", color=FAINT, fontsize=7, pad=2)
        axes.set_xlabel(label)
        axes.locator_params(axis="x", nbins=6)


def _forest_row(axes: Axes, y: int, row: ForestRow, limits: tuple[float, float]) -> None:
    """Draw a label, and below it the intervals, the mean and the seeds; arrows at the frame stand for what lies beyond."""
    inside = axes.get_yaxis_transform()  # horizontal positions as shares of the axes
    name = row.label if len(row.label) <= CHARACTERS else f"{row.label[: CHARACTERS - 1]}…"
    place = axes.text(0, y - 0.42, name, transform=inside, fontsize=7.5, va="center", color=INK)
    place.set_bbox({"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.4})
    axes.scatter(row.values, [y] * len(row.values), s=9, facecolors="none", edgecolors=row.color, linewidths=0.6, zorder=3)
    for low, high, width in ((row.outer_low, row.outer_high, 0.7), (row.low, row.high, 1.8)):
        if low is not None and high is not None:  # the median of runs that diverged has an infinite end
            shown = [max(low, 2 * limits[0] - limits[1]), min(high, 2 * limits[1] - limits[0])]
            axes.plot(shown, [y, y], color=row.color, linewidth=width, solid_capstyle="butt", zorder=2)
    axes.scatter([row.mean], [y], s=16, marker="s", color=row.color, zorder=4)
    ends = [end for end in (row.mean, row.low, row.high, row.outer_low, row.outer_high) if end is not None]
    for edge, beyond, marker in ((0, min(ends) < limits[0], "<"), (1, max(ends) > limits[1], ">")):
        if beyond:
            axes.scatter([edge], [y], s=14, marker=marker, color=row.color, transform=inside, clip_on=False, zorder=5)


def trends(path: Path, lines: Sequence[TrendLine], *, labels: tuple[str, str], margin: float | None) -> None:
    """Draw differences over levels with their intervals, in one column.

    Args:
        path: PDF to write.
        lines: One for each trend.
        labels: Of the two axes.
        margin: Drawn as a band around zero.
    """
    levels = sorted({level for line in lines for level, *_ in line.points})
    limits = trend_limits(lines, margin)
    entries = len(lines)
    with _figure(path, ONE_COLUMN, PANEL_HEIGHT + 0.5 + LEGEND_LINE * math.ceil(entries / 2)) as figure:
        axes = figure.add_subplot()
        if margin is not None:
            axes.axhspan(-margin, margin, color=MARGIN_COLOR, alpha=0.2, linewidth=0)
        axes.axhline(0, color=INK, linewidth=0.9)
        for i, line in enumerate(lines):
            shift = SPREAD ** (
                (i - (entries - 1) / 2) / max(entries - 1, 4)
            )  # intervals of the same level stand beside each other
            at = [level * shift for level, *_ in line.points]
            means = [mean for _, mean, *_ in line.points]
            axes.plot(
                at,
                means,
                **_line_style(line.color, line.dash),
                marker=MARKERS[i % len(MARKERS)],
                markersize=3,
                label=line.label,
            )
            for x, (_, _, low, high) in zip(at, line.points, strict=True):
                if low is not None and high is not None:
                    axes.plot([x, x], [low, high], color=line.color, linewidth=1.4, solid_capstyle="butt")
        axes.set_xscale("log")
        axes.set(ylim=limits, xlabel=labels[0], ylabel=labels[1])
        axes.set_xticks(levels, [format_level(level) for level in levels])
        axes.set_xticks([], minor=True)
        _legend(figure, axes, entries)


def curves(path: Path, panels: Sequence[CurvePanel]) -> None:
    """Draw learning curves, in two columns if there are several panels.

    Args:
        path: PDF to write.
        panels: With the same entries in their legends if there are several.
    """
    across = min(3, len(panels))
    down = math.ceil(len(panels) / across)
    width = ONE_COLUMN if len(panels) == 1 else TWO_COLUMNS
    names = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
    colors = {curve.label: curve.color for panel in reversed(panels) for curve in panel.curves}  # a label has one in all panels
    dashes = {name: DASHES[i % len(DASHES)] for i, name in enumerate(names)}  # in print, colors alone may look alike
    legend = LEGEND_LINE * math.ceil(len(names) / _legend_columns(names, width))
    with _figure(path, width, min(MAX_HEIGHT, PANEL_HEIGHT * down + 0.15 + legend)) as figure:
        grid = [figure.add_subplot(down, across, i + 1) for i in range(len(panels))]
        for axes, panel in zip(grid, panels, strict=True):
            for curve in panel.curves:
                _curve(axes, curve, colors[curve.label], dashes[curve.label])
            axes.set_ylim(panel.limits)
            axes.set_xlabel("step")
            axes.set_ylabel(
                f"{panel.metric.removeprefix(CURVE).replace('_', ' ')}{' (nats)' if panel.unit in (NATS, OTHER_NATS) else ''}"
            )
            axes.set_title(panel.panel, pad=3)
            axes.locator_params(axis="x", nbins=5)
            axes.grid(axis="y", color=GRID, linewidth=0.5)
            axes.set_axisbelow(True)
        handles = {label: handle for axes in grid for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        columns = _legend_columns(names, width)
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, handlelength=1.8)


def _curve(axes: Axes, curve: Curve, color: str, dash: str) -> None:
    steps, values = zip(*curve.points, strict=True) if curve.points else ((), ())
    style = _line_style(color, dash)
    width = style["linewidth"] * curve.width / MEAN_WIDTH  # incomplete runs are thin
    axes.plot(steps, values, **style | {"linewidth": width}, label=curve.label)
    if len(curve.band) > 1:
        at, lows, highs = zip(*curve.band, strict=True)
        axes.fill_between(at, lows, highs, color=color, alpha=0.15, linewidth=0)


def _line_style(color: str, dash: str) -> dict[str, Any]:
    """Return the style of a line from that of an SVG drawing."""
    lengths = [float(length) / 2 for length in dash.split()]
    return {"color": color, "linewidth": 1.1, "linestyle": (0, lengths) if lengths else "-"}


def _legend_columns(names: Sequence[str], width: float) -> int:
    """Return the number of legend entries beside each other that fit into a width in inches."""
    widest = 0.4 + 0.052 * max(map(len, names), default=1)
    return max(1, min(len(names), int(width / widest)))


def _legend(figure: Figure, axes: Axes, entries: int) -> None:
    if entries > 1:
        handles, names = axes.get_legend_handles_labels()
        columns = _legend_columns(names, ONE_COLUMN)
        figure.legend(handles, names, loc="outside lower center", ncols=columns, handlelength=2.2)


def paper_panels(panels: Sequence[CurvePanel]) -> list[CurvePanel]:
    """Return the panels of one figure: the metric and the loss side by side, or of many cells those of the metric alone."""
    faceted = [panel for panel in panels if panel.panel]
    return [panel for panel in faceted if panel.metric == faceted[0].metric] or list(panels)
