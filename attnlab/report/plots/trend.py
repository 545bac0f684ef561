"""Differences from the baseline over levels on a logarithmic axis: one line per cell, zero and the margin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attnlab.report.plots import svg
from attnlab.report.plots.curves import BOTTOM as LEAST_BOTTOM
from attnlab.report.plots.curves import LEFT, RIGHT, TOP
from attnlab.report.plots.forest import MARGIN_COLOR
from attnlab.report.plots.labels import Label, column_height, label_column

PADDING = 16  # between the frame and the lowest and the highest level
APART = 5  # between the marks of two cells at one level
MIN_LABEL_DISTANCE = 34  # of two levels on the axis; closer ones share one label


@dataclass(frozen=True)
class TrendLine:
    """The differences of one cell: (level, mean, low, high) by level; `low` and `high` are None without an interval."""

    label: str
    color: str
    points: Sequence[tuple[float, float, float | None, float | None]]
    dash: str = ""


def trend_plot(lines: Sequence[TrendLine], *, title: str, note: str, axis: str, margin: float | None = None) -> str:
    """Draw each cell's difference with its interval over the levels, with one label per cell next to its last level.

    Args:
        lines: In drawing order; each has a point at least.
        title: Text above the plot.
        note: Line below the title.
        axis: Name of the levels.
        margin: Largest difference that counts as equivalent; drawn as a band around zero.
    """
    bottom = max(LEAST_BOTTOM, TOP + column_height([line.label for line in lines]))
    levels = sorted({level for line in lines for level, *_ in line.points})
    limits = trend_limits(lines, margin)
    y = svg.scale(limits, (bottom, TOP))
    spread = APART * (len(lines) - 1) / 2
    x = svg.scale((math.log(levels[0]), math.log(levels[-1])), (LEFT + PADDING + spread, RIGHT - PADDING - spread))
    parts = svg.header(title, note)
    if margin is not None:
        parts.append(svg.rect(LEFT, y(margin), RIGHT - LEFT, y(-margin) - y(margin), MARGIN_COLOR, opacity=0.2))
    parts += svg.y_axis(y, limits, left=LEFT, right=RIGHT)
    places, name = [(x(math.log(level)), format_level(level)) for level in levels], ((LEFT + RIGHT) / 2, bottom + 31, axis)
    parts += svg.value_axis(places, ends=(TOP, bottom), gap=MIN_LABEL_DISTANCE, name=name)
    parts.append(svg.line((LEFT, y(0)), (RIGHT, y(0)), svg.INK, width=1.4))
    labels = []
    for i, line in enumerate(lines):
        shift = APART * i - spread
        parts += _line(line, x, y, shift=shift, limits=limits)
        level, mean, *_ = line.points[-1]
        labels.append(Label(line.label, (x(math.log(level)) + shift, y(mean)), line.color, line.dash))
    parts += label_column(labels, top=TOP, bottom=bottom)
    return svg.document(bottom + 40, title, parts)


def trend_limits(lines: Sequence[TrendLine], margin: float | None) -> svg.Limits:
    """Return limits with zero, the margin and all means inside; long intervals are cut at the frame."""
    means = [mean for line in lines for _, mean, *_ in line.points]
    ends = [end for line in lines for _, _, *interval in line.points for end in interval if end is not None]
    inside = 1.25 * (margin or 0.0)
    return svg.limits_with_intervals([*means, 0.0, -inside, inside], ends)


def _line(
    line: TrendLine, x: Callable[[float], float], y: Callable[[float], float], *, shift: float, limits: svg.Limits
) -> list[str]:
    """Return the line of one cell with a mark and an interval at each level; arrows where an interval leaves the frame."""
    places = [(x(math.log(level)) + shift, mean, low, high) for level, mean, low, high in line.points]
    parts = (
        [svg.polyline([(place, y(mean)) for place, mean, *_ in places], line.color, dash=line.dash)] if len(places) > 1 else []
    )
    for place, mean, low, high in places:
        if low is not None and high is not None:
            inside = max(low, limits[0]), min(high, limits[1])
            parts.append(svg.line((place, y(inside[0])), (place, y(inside[1])), line.color, width=1.8))
            parts += [
                svg.arrow((place, y(edge)), line.color, (0, -sign)) for edge, sign in svg.ends_beyond((low, high), limits)
            ]
        parts.append(svg.rect(place - 4, y(mean) - 4, 8, 8, line.color))
    return parts


def format_level(level: float) -> str:
    """Format a level: "1,500", "0.25"."""
    return f"{level:,.0f}" if level.is_integer() else f"{level:g}"
