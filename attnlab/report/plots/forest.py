"""A forest plot: each cell's difference from its baseline, with its interval, zero and the margin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from attnlab.report.plots import svg

FAR = 6  # times the middle one: a difference beyond that is an arrow at the frame, so that the others can be seen
ROW, TOP = 44, 58


@dataclass(frozen=True)
class Effect:
    """One row: the differences seed by seed, their mean and 95 % interval, and the same as a figure in words."""

    label: str
    color: str
    values: Sequence[float]
    mean: float
    low: float | None
    high: float | None
    figure: str


def forest(effects: Sequence[Effect], *, title: str, note: str = "", direction: str, margin: float | None = None) -> str:
    """Draw the differences on a common axis around zero.

    Args:
        effects: from top to bottom.
        title: above the plot.
        note: what is drawn.
        direction: "min" where a negative difference is better, else "max".
        margin: what counts as equivalent; drawn as a band around zero.
    """
    floor = TOP + ROW * len(effects)
    span = reach(effects, margin)
    x = svg.scale(span, (14, svg.WIDTH - 14))
    parts = svg.head(title, note)
    if margin is not None:
        parts.append(svg.rect(x(-margin), TOP - 8, x(margin) - x(-margin), floor - TOP + 8, "#56B4E9", opacity=0.22))
    parts += svg.across(x, span, top=TOP - 8, floor=floor)
    parts.append(svg.line((x(0), TOP - 8), (x(0), floor), svg.INK, width=1.4))
    below, above = ("← better", "worse →") if direction == "min" else ("← worse", "better →")
    parts.append(svg.text(0, TOP - 12, below, size=12, fill=svg.FAINT))
    parts.append(svg.text(svg.WIDTH, TOP - 12, above, size=12, anchor="end", fill=svg.FAINT))
    for i, each in enumerate(effects):
        parts += _row(each, TOP + ROW * i + 30, span)
    return svg.svg(floor + 26, title, parts)


def _row(each: Effect, y: float, span: svg.Place) -> list[str]:
    room = svg.WIDTH - svg.LETTER * 13 * (len(each.figure) + 2)
    x = svg.scale(span, (14, svg.WIDTH - 14))
    parts = [
        svg.text(0, y - 13, svg.fitting(each.label, size=13, width=room), size=13),
        svg.text(svg.WIDTH, y - 13, each.figure, size=13, anchor="end"),
    ]
    low, high = each.low, each.high
    if low is not None and high is not None and low < span[1] and high > span[0]:
        parts.append(svg.line((x(max(low, span[0])), y), (x(min(high, span[1])), y), each.color, width=2.2))
    ends = (each.mean if low is None else low, each.mean if high is None else high)
    parts += [svg.arrow((x(edge) + 10 * way, y), each.color, (way, 0)) for edge, way in svg.beyond(ends, span)]
    if span[0] <= each.mean <= span[1]:
        parts.append(svg.rect(x(each.mean) - 4.5, y - 4.5, 9, 9, each.color))
    parts += [svg.ring(x(v), y, each.color, radius=4) for v in each.values if span[0] <= v <= span[1]]
    return parts


def reach(effects: Sequence[Effect], margin: float | None) -> svg.Place:
    """Choose the axis: zero and the margin are inside; what is far from all else is not."""
    most = FAR * max(median(abs(e.mean) for e in effects), margin or 0.0)
    near = [e.mean for e in effects if abs(e.mean) <= most]
    room = max((abs(v) for v in near), default=most) or 1.0
    ends = [v for e in effects for v in (e.low, e.high) if v is not None and abs(v) <= 3 * room]
    seen = [v for e in effects for v in e.values if abs(v) <= 3 * room]
    inside = 1.25 * (margin or 0.0)
    return svg.padded([*near, *ends, *seen, 0.0, -inside, inside])
