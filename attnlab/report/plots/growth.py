"""A cost over length with both axes logarithmic: a power law is a straight line, and its slope the exponent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from attnlab.report.plots import svg
from attnlab.report.plots.by_length import BOTTOM, LEFT, PADDING, RIGHT, TOP, length_axis
from attnlab.report.plots.curves import Curve, legend


def growth_plot(curves: Sequence[Curve], *, title: str, note: str = "") -> str:
    """Draw each curve through its (length, cost) points, all above 0; a curve without points is only in the legend."""
    points = [point for curve in curves for point in curve.points]
    if not points:
        return svg.document(TOP, title, svg.header(title, "no data"))
    lengths = sorted({int(length) for length, _ in points})
    length_limits = math.log(lengths[0]), math.log(lengths[-1])
    limits = svg.padded_limits([math.log(cost) for _, cost in points])
    x, y = svg.scale(length_limits, (LEFT + PADDING, RIGHT - PADDING)), svg.scale(limits, (BOTTOM, TOP))
    parts = [*svg.header(title, note), *_logarithmic_y_axis(y, limits), *length_axis(lengths, x)]
    for curve in curves:
        places = [(x(math.log(length)), y(math.log(cost))) for length, cost in curve.points]
        parts += [svg.polyline(places, curve.color, dash=curve.dash)] if places else []
        parts += [svg.dot(*place, curve.color, radius=3) for place in places]
    entries, height = legend([(curve.label, curve.color, curve.dash) for curve in curves], BOTTOM + 56)
    return svg.document(BOTTOM + 50 + height, title, [*parts, *entries])


def _logarithmic_y_axis(y: Callable[[float], float], limits: svg.Limits) -> list[str]:
    """Return grid lines at powers of ten, and at 2 and 5 times them if there are few."""
    low, high = (math.exp(end) for end in limits)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    tens = [10.0**p for p in powers if low <= 10.0**p <= high]
    ticks = tens if len(tens) > 3 else [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
    parts = []
    for tick in ticks:
        height = y(math.log(tick))
        parts.append(svg.line((LEFT, height), (RIGHT, height), svg.GRID, width=1))
        parts.append(svg.text(LEFT - 5, height + 4, svg.tick_label(tick), size=12, anchor="end", fill=svg.FAINT))
    return parts
