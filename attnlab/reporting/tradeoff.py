"""The metric against what it costs, with the Pareto front marked: cells that no other one beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnlab.reporting import svg

LEFT, TOP, FLOOR = 46, 44, 274
NUMBER = 11  # size of the figures beside the dots


@dataclass(frozen=True)
class Spot:
    """One cell: its cost and its metric (means over seeds), and the metric's 95 % interval where there is one."""

    label: str
    color: str
    cost: float
    value: float
    low: float | None = None
    high: float | None = None


def front(spots: Sequence[Spot], *, direction: str, cheap: str = "min") -> list[int]:
    """Which spots lie on the Pareto front, by increasing cost.

    Args:
        spots: the cells.
        direction: "min" where smaller values of the metric are better, else "max".
        cheap: the same for the cost: "max" for a speed.
    """

    def key(spot: Spot) -> tuple[float, float]:
        return (spot.cost if cheap == "min" else -spot.cost, spot.value if direction == "min" else -spot.value)

    def beaten(one: tuple[float, float]) -> bool:
        return any(other != one and other[0] <= one[0] and other[1] <= one[1] for other in map(key, spots))

    return sorted((i for i, spot in enumerate(spots) if not beaten(key(spot))), key=lambda i: spots[i].cost)


def tradeoff(spots: Sequence[Spot], *, title: str, note: str = "", direction: str, cheap: str, names: tuple[str, str]) -> str:
    """Draw metric against cost: numbered dots, the front ringed and joined, a legend below.

    Args:
        spots: the cells, numbered in this order.
        title: above the plot.
        note: what is good.
        direction: of the metric, "min" or "max".
        cheap: of the cost, "min" or "max".
        names: of the cost and of the metric, along the axes.
    """
    wide, high = svg.padded([s.cost for s in spots]), svg.padded([s.value for s in spots])
    x, y = svg.scale(wide, (LEFT, svg.WIDTH - 14)), svg.scale(high, (FLOOR, TOP))
    parts = [*svg.head(title, note), *svg.across(x, wide, top=TOP, floor=FLOOR)]
    parts += svg.upward(y, high, left=LEFT, right=svg.WIDTH - 14)
    parts.append(svg.text(svg.WIDTH - 14, FLOOR + 32, names[0], size=12, anchor="end", fill=svg.FAINT))
    best = front(spots, direction=direction, cheap=cheap)
    parts.append(svg.path([(x(spots[i].cost), y(spots[i].value)) for i in best], "#999999", dash="4 3"))
    taken: list[svg.Place] = []
    for i, spot in enumerate(spots):
        place = x(spot.cost), y(spot.value)
        if spot.low is not None and spot.high is not None:
            ends = (place[0], y(max(spot.low, high[0]))), (place[0], y(min(spot.high, high[1])))
            parts.append(svg.line(*ends, spot.color, width=3, opacity=0.3))
        parts.append(svg.dot(*place, spot.color, radius=4.5))
        parts += [svg.ring(*place, spot.color, radius=8)] if i in best else []
        beside = _free(place, taken)
        parts.append(svg.text(*beside, str(i + 1), size=NUMBER, anchor="middle"))
    return svg.svg(FLOOR + 50 + _legend(spots, best, FLOOR + 56, parts), title, parts)


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
