"""Plots of cells by metric and cost, which mark the Pareto front: the cells that no other cell beats in both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attnlab.report.plots import svg
from attnlab.report.plots.svg import COLUMN, Label, column_height, label_column

LEFT, RIGHT, TOP, BOTTOM = 46, COLUMN - 14, 44, 274
FOOTER_LINE = 18


@dataclass(frozen=True)
class TradeoffPoint:
    """One cell: its cost and its metric.

    Attributes:
        label, color: Name and color of the cell.
        cost, value: Means over seeds of the cost and of the metric.
        low, high: Ends of the metric's 95 % interval, if there is one.
        cost_range: Lowest and highest cost of its seeds if the cost is measured, None when it is counted.
        test: Identity of the cell's test. Cells with different tests do not beat each other.
    """

    label: str
    color: str
    cost: float
    value: float
    low: float | None = None
    high: float | None = None
    cost_range: svg.Limits | None = None
    test: str = ""


def pareto_front(points: Sequence[TradeoffPoint], *, direction: str, cost_direction: str = "min") -> list[int]:
    """Return the indices of the points on the Pareto front of the means, by increasing cost.

    A point beats another with the same test if it is at least as good in the metric and in the cost, and better in one.

    Args:
        points: The cells.
        direction: "min" when smaller values of the metric are better, else "max".
        cost_direction: The same for the cost: "max" for a speed.
    """

    def losses(point: TradeoffPoint) -> tuple[float, float]:
        return (
            point.value if direction == "min" else -point.value,
            point.cost if cost_direction == "min" else -point.cost,
        )

    def beats(first: TradeoffPoint, second: TradeoffPoint) -> bool:
        pairs = list(zip(losses(first), losses(second), strict=True))
        return first.test == second.test and all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    front = (i for i, point in enumerate(points) if not any(beats(other, point) for other in points))
    return sorted(front, key=lambda i: points[i].cost)


def tradeoff_plot(
    points: Sequence[TradeoffPoint],
    *,
    title: str,
    note: str = "",
    direction: str,
    cost_direction: str,
    axis_labels: tuple[str, str],
    footer: Sequence[str] = (),
) -> str:
    """Draw the metric against a cost: a dot per cell with its name next to the plot, and rings on the Pareto front.

    A dashed line joins the front if costs are counted; the front of measured costs is not a line. An interval that exceeds
    the frame ends with an arrow.

    Args:
        points: The cells.
        title: Text above the plot.
        note: Line below the title.
        direction: "min" when smaller values of the metric are better, else "max".
        cost_direction: The same for the cost.
        axis_labels: Labels of the cost and of the metric.
        footer: Lines below the plot.
    """
    cost_limits = svg.padded_limits([cost for point in points for cost in (point.cost, *(point.cost_range or ()))])
    interval_ends = [end for point in points for end in (point.low, point.high) if end is not None]
    limits = svg.limits_with_intervals([point.value for point in points], interval_ends)
    bottom = max(BOTTOM, TOP + column_height([point.label for point in points]))
    x, y = svg.scale(cost_limits, (LEFT, RIGHT)), svg.scale(limits, (bottom, TOP))
    parts = [*svg.header(title, note), *svg.x_axis(x, cost_limits, bands=[(TOP, bottom)], bottom=bottom)]
    parts += svg.y_axis(y, limits, left=LEFT, right=RIGHT)
    parts.append(svg.text(RIGHT, bottom + 32, axis_labels[0], size=12, anchor="end", fill=svg.FAINT))
    front = pareto_front(points, direction=direction, cost_direction=cost_direction)
    if not any(point.cost_range for point in points):
        parts.append(svg.polyline([(x(points[i].cost), y(points[i].value)) for i in front], svg.RULE, dash="4 3"))
    parts += label_column(
        [Label(point.label, (x(point.cost), y(point.value)), point.color) for point in points], top=TOP, bottom=bottom
    )
    for i, point in enumerate(points):
        parts += _mark(point, x, y, limits, ringed=i in front)
    for i, line in enumerate(footer):
        parts.append(svg.text(0, bottom + 56 + FOOTER_LINE * i, svg.truncate(line, size=12), size=12, fill=svg.FAINT))
    return svg.document(bottom + 40 + FOOTER_LINE * len(footer), title, parts)


def _mark(
    point: TradeoffPoint, x: Callable[[float], float], y: Callable[[float], float], limits: svg.Limits, *, ringed: bool
) -> list[str]:
    """Return a cell's dot with the bars of its interval and of its costs, and a ring if it is on the front."""
    parts = []
    place = x(point.cost), y(point.value)
    if point.low is not None and point.high is not None:
        ends = (place[0], y(max(point.low, limits[0]))), (place[0], y(min(point.high, limits[1])))
        parts.append(svg.line(*ends, point.color, width=3, opacity=0.3))
        beyond = svg.ends_beyond((point.low, point.high), limits)
        parts += [svg.arrow((place[0], y(edge)), point.color, (0, -sign)) for edge, sign in beyond]
    if point.cost_range is not None:
        left, right = map(x, point.cost_range)
        parts.append(svg.line((left, place[1]), (right, place[1]), point.color, width=3, opacity=0.3))
    parts.append(svg.dot(*place, point.color, radius=4.5))
    return [*parts, svg.ring(*place, point.color, radius=8)] if ringed else parts
