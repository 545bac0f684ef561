"""Two plots as SVG text: one dot a seed, and learning curves with their spread over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from attnlab.report.plots import svg

DASHES = ("", "7 4", "2 3", "9 3 2 3", "12 4", "4 2 1 2")


@dataclass(frozen=True)
class Dots:
    """One row of a dot plot: every seed's value, the mean, and the 95 % interval where there is one."""

    label: str
    color: str
    values: Mapping[int, float]
    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Curve:
    """One line over steps: (step, value) in order of step. `band` is (step, lowest, highest), where there is a spread."""

    label: str
    color: str
    points: Sequence[tuple[float, float]]
    dash: str = ""
    band: Sequence[tuple[float, float, float]] = field(default=())
    width: float = 1.7


def dots(rows: Sequence[Dots], *, title: str, note: str = "", joined: bool = False) -> str:
    """Draw one row a cell on a common axis.

    Args:
        rows: from top to bottom.
        title: above the plot.
        note: which direction is good, or the unit, and what the bars are.
        joined: draw a thin line from row to row through the runs of one seed, so that the pairing is seen.
    """
    height, top = 42, 44
    floor = top + height * len(rows)
    ends = [v for r in rows for v in (r.low, r.high) if v is not None]
    span = svg.around([v for r in rows for v in r.values.values()], ends)
    x = svg.scale(span, (14, svg.WIDTH - 14))
    parts = [*svg.head(title, note), *svg.across(x, span, top=top, floor=floor)]
    ys = [top + height * i + 28 for i in range(len(rows))]
    if joined:
        for seed in dict.fromkeys(seed for r in rows for seed in r.values):
            places = [(x(r.values[seed]), y) for r, y in zip(rows, ys, strict=True) if seed in r.values]
            parts += [svg.line(a, b, "#999999", width=0.8) for a, b in zip(places, places[1:], strict=False)]
    for r, y in zip(rows, ys, strict=True):
        parts.append(svg.text(0, y - 12, svg.fitting(r.label, size=13), size=13, halo=joined))
        if r.low is not None and r.high is not None:
            ends = (x(max(r.low, span[0])), y), (x(min(r.high, span[1])), y)
            parts.append(svg.line(*ends, r.color, width=4, opacity=0.3))
            on = svg.beyond((r.low, r.high), span)
            parts += [svg.arrow((x(edge) + 10 * way, y), r.color, (way, 0)) for edge, way in on]
        parts.append(svg.line((x(r.mean), y - 8), (x(r.mean), y + 8), r.color, width=2.5))
        parts += [svg.dot(x(value), y, r.color) for value in r.values.values()]
    return svg.svg(floor + 26, title, parts)


def curves(
    lines: Sequence[Curve],
    *,
    title: str,
    note: str = "",
    name: str = "curves",
    span: tuple[float, float] | None = None,
) -> str:
    """Draw curves over steps with a legend below, one entry a label.

    The vertical axis is `span`, else fitted to these lines by `late_span`; what lies outside is cut. `name`
    makes the clip path unique within a page.
    """
    labels = list(dict.fromkeys((c.label, c.color, c.dash) for c in lines))
    left, right, top, floor = 46, svg.WIDTH - 14, 44, 274
    last = max((step for c in lines for step, _ in c.points), default=1)
    span = span or late_span(lines)
    x, y = svg.scale((0, last), (left, right)), svg.scale(span, (floor, top))
    parts = [*svg.head(title, note), *svg.upward(y, span, left=left, right=right)]
    for tick in svg.ticks(0, last):
        parts.append(svg.text(x(tick), floor + 16, svg.number(tick), size=12, anchor="middle", fill=svg.FAINT))
    parts.append(svg.text((left + right) / 2, floor + 31, "step", size=12, anchor="middle", fill=svg.FAINT))
    frame = f'<rect x="{left}" y="{top}" width="{svg.WIDTH - left}" height="{floor - top}"/>'
    parts.append(f'<clipPath id="{name}">{frame}</clipPath><g clip-path="url(#{name})">')
    for c in (c for c in lines if len(c.band) > 1):
        above, below = [(x(s), y(high)) for s, _, high in c.band], [(x(s), y(low)) for s, low, _ in c.band]
        parts.append(svg.area([*above, *reversed(below)], c.color))
    parts += [svg.path([(x(s), y(v)) for s, v in c.points], c.color, dash=c.dash, width=c.width) for c in lines]
    parts.append("</g>")
    return svg.svg(floor + 44 + legend(labels, floor + 50, parts), title, parts)


def late_span(lines: Sequence[Curve]) -> tuple[float, float]:
    """Fit a vertical axis to what comes after the first quarter: the start is far from all that follows."""
    last = max((step for c in lines for step, _ in c.points), default=1)
    late = [v for c in lines for step, v in c.points if step >= last / 4]
    late += [v for c in lines for step, *ends in c.band if step >= last / 4 for v in ends]
    return svg.padded(late or [v for c in lines for _, v in c.points])


def legend(labels: Sequence[tuple[str, str, str]], top: float, parts: list[str]) -> float:
    """Add the legend to `parts`, in two columns where the labels are short, and return its height."""
    columns = 2 if max((len(label) for label, _, _ in labels), default=0) <= 24 else 1
    for i, (label, color, dash) in enumerate(labels):
        left, y = (i % columns) * svg.WIDTH / 2, top + 19 * (i // columns)
        parts.append(svg.path([(left, y), (left + 24, y)], color, dash=dash, width=2.5))
        parts.append(svg.text(left + 30, y + 4, svg.fitting(label, size=12.5, width=svg.WIDTH - 30), size=12.5))
    return 19 * math.ceil(len(labels) / columns)
