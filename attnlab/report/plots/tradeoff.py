"""The metric against a cost, with the Pareto front marked: the cells that no other cell beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnlab.report.plots import svg

LEFT, RIGHT, TOP, BOTTOM = 46, svg.WIDTH - 14, 44, 274
NUMBER_SIZE = 11  # font size of the numbers next to the dots
LEGEND_LINE, FOOTER_LINE = 20, 18


@dataclass(frozen=True)
class TradeoffPoint:
    """One cell: its cost and its metric.

    Attributes:
        label, color: Of its legend entry.
        cost, value: Means over seeds of the cost and of the metric.
        low, high: Ends of the metric's 95 % interval, if there is one.
        cost_range: Lowest and highest cost of its seeds if the cost is measured, None if it is counted.
        test: What the cell is tested on. Cells with different tests do not beat each other.
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
    """Return the indices of the points on the Pareto front, by increasing cost.

    A point beats another if it is at least as good in the metric and in the cost, and better in one of them. A measured cost
    counts as lower only if it is lower for every seed: if the ranges of two cells overlap, their costs may be the same.

    Args:
        points: The cells.
        direction: "min" where smaller values of the metric are better, else "max".
        cost_direction: The same for the cost: "max" for a speed.
    """

    def loss(point: TradeoffPoint) -> float:
        return point.value if direction == "min" else -point.value

    def cost_range(point: TradeoffPoint) -> svg.Limits:
        low, high = point.cost_range or (point.cost, point.cost)
        return (low, high) if cost_direction == "min" else (-high, -low)

    def beats(first: TradeoffPoint, second: TradeoffPoint) -> bool:
        if first.test != second.test:
            return False
        highest, lowest = cost_range(first)[1], cost_range(second)[0]
        return highest <= lowest and loss(first) <= loss(second) and (highest < lowest or loss(first) < loss(second))

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
    """Draw the metric against a cost: numbered dots with rings on the Pareto front, and a legend below.

    A dashed line joins the front if costs are counted; the front of measured costs is not a line. An interval that exceeds
    the frame ends with an arrow.

    Args:
        points: The cells, numbered in this order.
        title: Text above the plot.
        note: Line below the title.
        direction: "min" where smaller values of the metric are better, else "max".
        cost_direction: The same for the cost.
        axis_labels: Labels of the cost and of the metric.
        footer: Lines below the legend.
    """
    cost_limits = svg.padded_limits([cost for point in points for cost in (point.cost, *(point.cost_range or ()))])
    interval_ends = [end for point in points for end in (point.low, point.high) if end is not None]
    limits = svg.limits_with_intervals([point.value for point in points], interval_ends)
    x, y = svg.scale(cost_limits, (LEFT, RIGHT)), svg.scale(limits, (BOTTOM, TOP))
    parts = [*svg.header(title, note), *svg.x_axis(x, cost_limits, top=TOP, bottom=BOTTOM)]
    parts += svg.y_axis(y, limits, left=LEFT, right=RIGHT)
    parts.append(svg.text(RIGHT, BOTTOM + 32, axis_labels[0], size=12, anchor="end", fill=svg.FAINT))
    front = pareto_front(points, direction=direction, cost_direction=cost_direction)
    if not any(point.cost_range for point in points):
        parts.append(svg.polyline([(x(points[i].cost), y(points[i].value)) for i in front], "#999999", dash="4 3"))
    taken: list[svg.Point] = []
    for i, point in enumerate(points):
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
        parts += [svg.ring(*place, point.color, radius=8)] if i in front else []
        parts.append(svg.text(*_place_number(place, taken), str(i + 1), size=NUMBER_SIZE, anchor="middle"))
    parts += _legend(points, front, BOTTOM + 56)
    bottom = BOTTOM + 56 + LEGEND_LINE * len(points)
    for i, line in enumerate(footer):
        parts.append(svg.text(0, bottom + FOOTER_LINE * i, svg.truncate(line, size=12), size=12, fill=svg.FAINT))
    return svg.document(bottom - 6 + FOOTER_LINE * len(footer), title, parts)


def _place_number(place: svg.Point, taken: list[svg.Point]) -> svg.Point:
    """Return a position next to a dot that no other number covers (else the last candidate), and add it to `taken`."""
    candidate = place
    for dx, dy in ((13, 4), (-13, 4), (0, -11), (0, 19), (15, -9), (-15, -9), (15, 17), (-15, 17), (26, 4), (-26, 4)):
        candidate = (place[0] + dx, place[1] + dy)
        if all(abs(candidate[0] - a) > NUMBER_SIZE + 2 or abs(candidate[1] - b) > NUMBER_SIZE for a, b in taken):
            break
    taken.append(candidate)
    return candidate


def _legend(points: Sequence[TradeoffPoint], front: Sequence[int], top: float) -> list[str]:
    parts = []
    for i, point in enumerate(points):
        y = top + LEGEND_LINE * i
        parts.append(svg.dot(9, y - 4, point.color, radius=4.5))
        parts += [svg.ring(9, y - 4, point.color, radius=8)] if i in front else []
        label = svg.truncate(f"{i + 1}  {point.label}", size=12.5, width=svg.WIDTH - 24)
        parts.append(svg.text(24, y, label, size=12.5))
    return parts
