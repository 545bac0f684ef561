"""Curves over training steps, with their range over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from attnlab.report.plots import svg
from attnlab.report.plots.labels import LEFT as COLUMN
from attnlab.report.plots.labels import Label, column_height, label_column

DASHES = ("", "7 4", "2 3", "9 3 2 3", "12 4", "4 2 1 2")
LEFT, RIGHT, TOP, BOTTOM = 46, COLUMN - 14, 44, 274
MAX_MARKERS = 10  # points of a curve that are marked
LEGEND_LINE = 19


@dataclass(frozen=True)
class Curve:
    """One curve: (step, value) points in order of step, and (step, lowest, highest) where seeds differ."""

    label: str
    color: str
    points: Sequence[tuple[float, float]]
    dash: str = ""
    band: Sequence[tuple[float, float, float]] = field(default=())
    width: float = 1.7


def curve_plot(
    curves: Sequence[Curve],
    *,
    title: str,
    note: str = "",
    name: str = "curves",
    limits: svg.Limits | None = None,
) -> str:
    """Draw curves over steps, with one label per cell next to their ends. Curves of few points have markers.

    Args:
        curves: In drawing order.
        title: Text above the plot.
        note: Line below the title.
        name: Name of the clip path, unique within a page.
        limits: Limits of the vertical axis; default `late_limits`. Curves are clipped to them.
    """
    last = max((step for curve in curves for step, _ in curve.points), default=1)
    limits = limits or late_limits(curves)
    first = {(curve.label, curve.color, curve.dash): curve for curve in reversed(curves) if curve.points}
    bottom = max(BOTTOM, TOP + column_height([label for label, _, _ in first]))
    x, y = svg.scale((0, last), (LEFT, RIGHT)), svg.scale(limits, (bottom, TOP))
    parts = [*svg.header(title, note), *svg.y_axis(y, limits, left=LEFT, right=RIGHT)]
    for tick in svg.ticks(0, last, about=4):
        parts.append(svg.text(x(tick), bottom + 16, svg.tick_label(tick), size=12, anchor="middle", fill=svg.FAINT))
    parts.append(svg.text((LEFT + RIGHT) / 2, bottom + 31, "step", size=12, anchor="middle", fill=svg.FAINT))
    frame = f'<rect x="{LEFT}" y="{TOP}" width="{RIGHT + 5 - LEFT}" height="{bottom - TOP}"/>'
    parts.append(f'<clipPath id="{name}">{frame}</clipPath><g clip-path="url(#{name})">')
    for curve in (curve for curve in curves if len(curve.band) > 1):
        upper = [(x(step), y(high)) for step, _, high in curve.band]
        lower = [(x(step), y(low)) for step, low, _ in curve.band]
        parts.append(svg.polygon([*upper, *reversed(lower)], curve.color))
    for curve in curves:
        points = [(x(step), y(value)) for step, value in curve.points]
        parts.append(svg.polyline(points, curve.color, dash=curve.dash, width=curve.width))
        parts += [svg.dot(*point, curve.color, radius=3) for point in points if len(points) <= MAX_MARKERS]
    parts.append("</g>")
    labels = []
    for (label, color, dash), curve in first.items():
        step, value = curve.points[-1]
        labels.append(Label(label, (x(step), y(min(max(value, limits[0]), limits[1]))), color, dash))
    parts += label_column(labels, top=TOP, bottom=bottom)
    return svg.document(bottom + 40, title, parts)


def late_limits(curves: Sequence[Curve]) -> svg.Limits:
    """Return limits of a vertical axis that fit all but the first quarter of the steps, where values are far from the rest."""
    last = max((step for curve in curves for step, _ in curve.points), default=1)
    late = [value for curve in curves for step, value in curve.points if step >= last / 4]
    late += [end for curve in curves for step, *ends in curve.band if step >= last / 4 for end in ends]
    return svg.padded_limits(late or [value for curve in curves for _, value in curve.points])


def legend(labels: Sequence[tuple[str, str, str]], top: float) -> tuple[list[str], float]:
    """Return the parts of a legend, in two columns if the labels are short, and its height.

    Args:
        labels: (label, color, dash) of each entry.
        top: Vertical position of the first entry.
    """
    parts = []
    columns = 2 if max((len(label) for label, _, _ in labels), default=0) <= 24 else 1
    for i, (label, color, dash) in enumerate(labels):
        left, y = (i % columns) * svg.WIDTH / 2, top + LEGEND_LINE * (i // columns)
        parts.append(svg.polyline([(left, y), (left + 24, y)], color, dash=dash, width=2.5))
        parts.append(svg.text(left + 30, y + 4, svg.truncate(label, size=12.5, width=svg.WIDTH - 30), size=12.5))
    return parts, LEGEND_LINE * math.ceil(len(labels) / columns)
