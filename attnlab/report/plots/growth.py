"""A cost over length, both axes logarithmic: growth with a power of the length is a straight line, and its slope the power."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from attnlab.report.plots import svg
from attnlab.report.plots.by_length import FLOOR, LEFT, MARGIN, RIGHT, TOP, length_axis
from attnlab.report.plots.curves import Curve, legend


def growth_plot(lines: Sequence[Curve], *, title: str, note: str = "") -> str:
    """Draw each line through its (length, cost) points, all above 0; a line without points stands in the legend only."""
    points = [point for each in lines for point in each.points]
    if not points:
        return svg.svg(TOP, title, svg.head(title, "there is nothing to draw"))
    lengths = sorted({int(length) for length, _ in points})
    ends = math.log(lengths[0]), math.log(lengths[-1])
    span = svg.padded([math.log(cost) for _, cost in points])
    place, y = svg.scale(ends, (LEFT + MARGIN, RIGHT - MARGIN)), svg.scale(span, (FLOOR, TOP))
    parts = [*svg.head(title, note), *_upward(y, span), *length_axis(lengths, place)]
    for each in lines:
        spots = [(place(math.log(length)), y(math.log(cost))) for length, cost in each.points]
        parts += [svg.path(spots, each.color, dash=each.dash)] if spots else []
        parts += [svg.dot(*spot, each.color, radius=3) for spot in spots]
    labels = [(each.label, each.color, each.dash) for each in lines]
    return svg.svg(FLOOR + 50 + legend(labels, FLOOR + 56, parts), title, parts)


def _upward(y: Callable[[float], float], span: svg.Place) -> list[str]:
    """Grid lines at powers of ten, and at 2 and 5 times them where that leaves few."""
    low, high = (math.exp(end) for end in span)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    tens = [10.0**p for p in powers if low <= 10.0**p <= high]
    ticks = tens if len(tens) > 3 else [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
    parts = []
    for tick in ticks:
        parts.append(svg.line((LEFT, y(math.log(tick))), (RIGHT, y(math.log(tick))), svg.GRID, width=1))
        parts.append(svg.text(LEFT - 5, y(math.log(tick)) + 4, svg.number(tick), size=12, anchor="end", fill=svg.FAINT))
    return parts
