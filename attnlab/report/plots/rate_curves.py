"""A metric over a swept hyperparameter on a logarithmic axis: each run, the fitted curves and their optima."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attnlab.report.plots import svg
from attnlab.stats.lr_curve import LearningRateCurve

LEFT, RIGHT, TOP, BOTTOM = 46, svg.WIDTH - 14, 44, 274
PADDING = 14  # between the frame and the smallest and the largest value
MIN_LABEL_DISTANCE = 44  # of two values on the axis; closer ones share one label
LEGEND_LINE = 19
CURVE_POINTS = 60
SEED_OFFSET = 2.5  # distance between the dots of two cells at one value


@dataclass(frozen=True)
class RateCurve:
    """The curve of one cell: its name, its color, and its runs with the fit."""

    name: str
    color: str
    curve: LearningRateCurve


def curve_limits(curves: Sequence[RateCurve], *, direction: str) -> svg.Limits:
    """Return limits of the metric's axis that fit the runs near the optima.

    Runs far beyond the optimum are much worse than the others. The axis has twice the range of the runs that curves are
    fitted to, and of those at the best value of cells without a fit; at most that of all runs.
    """
    values = [v for c in curves for seeds in c.curve.runs.values.values() for v in seeds.values()]
    rates = [(c.curve, c.curve.fitted if c.curve.optimum else (c.curve.best,)) for c in curves]
    near = [v for curve, fitted in rates for rate in fitted if rate is not None for v in curve.runs.values[rate].values()]
    near = near or values
    size = max(near, default=1.0) - min(near, default=0.0)
    if direction == "min":
        return svg.padded_limits([v for v in values if v <= max(near) + size])
    return svg.padded_limits([v for v in values if v >= min(near) - size])


def rate_plot(
    curves: Sequence[RateCurve], *, title: str, note: str, label: str, limits: svg.Limits, direction: str, clip: str
) -> str:
    """Draw the runs of each cell as dots, with its fitted curve and a ring at its optimum.

    The bar through a ring is the 95 % interval of the optimal value. Diverged runs are crosses, and runs beyond the frame
    arrows, at the worse end of the axis.

    Args:
        curves: In drawing order.
        title: Text above the plot.
        note: Line below the title.
        label: Of the horizontal axis.
        limits: Limits of the metric's axis, the same for all plots of a study.
        direction: "min" when smaller values are better, else "max".
        clip: Name of the clip path, unique within a page.
    """
    rates = sorted({rate for c in curves for rate in c.curve.runs.tried})
    positions = math.log10(rates[0]), math.log10(rates[-1])
    x, y = svg.scale(positions, (LEFT + PADDING, RIGHT - PADDING)), svg.scale(limits, (BOTTOM, TOP))
    places, name = [(x(math.log10(rate)), f"{rate:.3g}") for rate in rates], ((LEFT + RIGHT) / 2, BOTTOM + 32, label)
    parts = [*svg.header(title, note), *svg.y_axis(y, limits, left=LEFT, right=RIGHT)]
    parts += svg.value_axis(places, ends=(TOP, BOTTOM), gap=MIN_LABEL_DISTANCE, name=name)
    frame = f'<rect x="{LEFT}" y="{TOP}" width="{RIGHT - LEFT}" height="{BOTTOM - TOP}"/>'
    parts.append(f'<clipPath id="{clip}">{frame}</clipPath>')
    for i, cell in enumerate(curves):
        offset = (i - (len(curves) - 1) / 2) * SEED_OFFSET
        parts += _runs(cell, x, y, limits=limits, worse_is_up=direction == "min", offset=offset)
        parts += [f'<g clip-path="url(#{clip})">', *_fit(cell, x, y), "</g>"]
    for i, cell in enumerate(curves):
        height = BOTTOM + 56 + LEGEND_LINE * i
        parts.append(svg.line((0, height), (24, height), cell.color, width=2.5))
        parts.append(svg.text(30, height + 4, svg.truncate(cell.name, size=12.5, width=svg.WIDTH - 30), size=12.5))
    return svg.document(BOTTOM + 50 + LEGEND_LINE * len(curves), title, parts)


def _runs(
    cell: RateCurve,
    x: Callable[[float], float],
    y: Callable[[float], float],
    *,
    limits: svg.Limits,
    worse_is_up: bool,
    offset: float,
) -> list[str]:
    """Return a dot for each run, with arrows for values beyond the frame and crosses for diverged runs."""
    parts, worst = [], TOP if worse_is_up else BOTTOM
    for rate, seeds in cell.curve.runs.values.items():
        place = x(math.log10(rate)) + offset
        for value in seeds.values():
            if limits[0] <= value <= limits[1]:
                parts.append(svg.dot(place, y(value), cell.color, radius=2.6, opacity=0.6))
        if any(not limits[0] <= value <= limits[1] for value in seeds.values()):
            parts.append(svg.arrow((place, worst), cell.color, (0, -1 if worse_is_up else 1)))
    for rate in cell.curve.runs.diverged:
        inside = 11 if worse_is_up else -3
        parts.append(
            svg.text(x(math.log10(rate)) + offset, worst + inside, "×", size=15, anchor="middle", fill=cell.color, halo=True)
        )
    return parts


def _fit(cell: RateCurve, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    """Return the fitted curve with its optimum, nothing for a cell without one."""
    curve, optimum = cell.curve, cell.curve.optimum
    if optimum is None:
        return []
    low, high = math.log10(curve.fitted[0]), math.log10(curve.fitted[-1])
    positions = [low + (high - low) * i / (CURVE_POINTS - 1) for i in range(CURVE_POINTS)]
    parts = [svg.polyline([(x(position), y(curve.at(10**position))) for position in positions], cell.color)]
    height = y(curve.at(10**optimum.mean))
    if optimum.low is not None and optimum.high is not None:
        parts.append(svg.line((x(optimum.low), height), (x(optimum.high), height), cell.color, width=2))
    return [*parts, svg.ring(x(optimum.mean), height, cell.color, radius=5)]
