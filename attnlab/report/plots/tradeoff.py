"""The metric against what it costs, with the Pareto front marked: cells that no other one beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnlab.report.plots import svg

LEFT, TOP, FLOOR = 46, 44, 274
NUMBER = 11  # size of the figures beside the dots


@dataclass(frozen=True)
class Spot:
    """One cell: its cost and its metric (means over seeds), and the metric's 95 % interval where there is one.

    `costs` are the lowest and the highest cost of its seeds where it is measured, None where it is counted.
    """

    label: str
    color: str
    cost: float
    value: float
    low: float | None = None
    high: float | None = None
    costs: svg.Place | None = None


def front(spots: Sequence[Spot], *, direction: str, cheap: str = "min") -> list[int]:
    """Which spots lie on the Pareto front, by increasing cost.

    One that is as good in the metric and cheaper beats another. A measured cost is less only where it is so in each of its
    seeds: where those of two cells overlap, the costs may well be the same.

    Args:
        spots: the cells.
        direction: "min" where smaller values of the metric are better, else "max".
        cheap: the same for the cost: "max" for a speed.
    """

    def loss(spot: Spot) -> float:
        return spot.value if direction == "min" else -spot.value

    def dear(spot: Spot) -> svg.Place:
        least, most = spot.costs or (spot.cost, spot.cost)
        return (least, most) if cheap == "min" else (-most, -least)

    def beats(other: Spot, one: Spot) -> bool:
        most, least = dear(other)[1], dear(one)[0]
        return most <= least and loss(other) <= loss(one) and (most < least or loss(other) < loss(one))

    return sorted((i for i, one in enumerate(spots) if not any(beats(s, one) for s in spots)), key=lambda i: spots[i].cost)


def tradeoff(
    spots: Sequence[Spot],
    *,
    title: str,
    note: str = "",
    direction: str,
    cheap: str,
    names: tuple[str, str],
    foot: Sequence[str] = (),
) -> str:
    """Draw metric against cost: numbered dots, the front ringed, a legend below.

    The front is joined by a line where costs are counted; where they are measured it is no line. An interval that goes on
    beyond the frame ends in an arrow.

    Args:
        spots: the cells, numbered in this order.
        title: above the plot.
        note: what is good.
        direction: of the metric, "min" or "max".
        cheap: of the cost, "min" or "max".
        names: of the cost and of the metric, along the axes.
        foot: lines below the legend: what is ringed, what the bars are.
    """
    wide = svg.padded([v for s in spots for v in (s.cost, *(s.costs or ()))])
    high = svg.around([s.value for s in spots], [v for s in spots for v in (s.low, s.high) if v is not None])
    x, y = svg.scale(wide, (LEFT, svg.WIDTH - 14)), svg.scale(high, (FLOOR, TOP))
    parts = [*svg.head(title, note), *svg.across(x, wide, top=TOP, floor=FLOOR)]
    parts += svg.upward(y, high, left=LEFT, right=svg.WIDTH - 14)
    parts.append(svg.text(svg.WIDTH - 14, FLOOR + 32, names[0], size=12, anchor="end", fill=svg.FAINT))
    best = front(spots, direction=direction, cheap=cheap)
    if not any(spot.costs for spot in spots):
        parts.append(svg.path([(x(spots[i].cost), y(spots[i].value)) for i in best], "#999999", dash="4 3"))
    taken: list[svg.Place] = []
    for i, spot in enumerate(spots):
        place = x(spot.cost), y(spot.value)
        if spot.low is not None and spot.high is not None:
            ends = (place[0], y(max(spot.low, high[0]))), (place[0], y(min(spot.high, high[1])))
            parts.append(svg.line(*ends, spot.color, width=3, opacity=0.3))
            on = svg.beyond((spot.low, spot.high), high)
            parts += [svg.arrow((place[0], y(edge)), spot.color, (0, -way)) for edge, way in on]
        if spot.costs is not None:
            least, most = map(x, spot.costs)
            parts.append(svg.line((least, place[1]), (most, place[1]), spot.color, width=3, opacity=0.3))
        parts.append(svg.dot(*place, spot.color, radius=4.5))
        parts += [svg.ring(*place, spot.color, radius=8)] if i in best else []
        beside = _free(place, taken)
        parts.append(svg.text(*beside, str(i + 1), size=NUMBER, anchor="middle"))
    below = FLOOR + 56 + _legend(spots, best, FLOOR + 56, parts)
    parts += [svg.text(0, below + 18 * i, svg.fitting(line, size=12), size=12, fill=svg.FAINT) for i, line in enumerate(foot)]
    return svg.svg(below - 6 + 18 * len(foot), title, parts)


def _free(place: svg.Place, taken: list[svg.Place]) -> svg.Place:
    """A place for a number beside its dot where no other number stands; the last one tried where there is none."""
    found = place
    for dx, dy in ((13, 4), (-13, 4), (0, -11), (0, 19), (15, -9), (-15, -9), (15, 17), (-15, 17), (26, 4), (-26, 4)):
        found = (place[0] + dx, place[1] + dy)
        if all(abs(found[0] - a) > NUMBER + 2 or abs(found[1] - b) > NUMBER for a, b in taken):
            break
    taken.append(found)
    return found


def _legend(spots: Sequence[Spot], best: Sequence[int], top: float, parts: list[str]) -> float:
    for i, spot in enumerate(spots):
        y = top + 20 * i
        parts.append(svg.dot(9, y - 4, spot.color, radius=4.5))
        parts += [svg.ring(9, y - 4, spot.color, radius=8)] if i in best else []
        parts.append(svg.text(24, y, svg.fitting(f"{i + 1}  {spot.label}", size=12.5, width=svg.WIDTH - 24), size=12.5))
    return 20 * len(spots)
