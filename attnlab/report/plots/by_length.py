"""The metric over length, on a logarithmic axis: one line a cell, the trained length marked, a cross where one cannot go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from attnlab.report.plots import svg

LEFT, RIGHT, TOP, FLOOR = 46, svg.WIDTH - 14, 44, 274
MARGIN = 12  # between the frame and the shortest and the longest length
CLOSE = 30  # lengths that stand closer than this have one label


@dataclass(frozen=True)
class Reach:
    """One cell: its scores by length, with those of the trained length, and why it has none at others.

    `values` maps a length to the scores of its seeds, `reasons` a length to what was said of it; `seeds` have completed.
    """

    name: str
    color: str
    dash: str = ""
    trained: int | None = None
    values: Mapping[int, Sequence[float]] = field(default_factory=dict)
    reasons: Mapping[int, str] = field(default_factory=dict)
    seeds: int = 0

    def share(self, length: int) -> str:
        """ "1 of 4" where only some of the seeds have a score, "" where all have one, or none."""
        n = len(self.values.get(length, ()))
        return f"{n} of {self.seeds}" if 0 < n < self.seeds else ""

    @property
    def stops(self) -> int | None:
        """The last length that it has, where it was asked for longer ones and cannot."""
        last = max(self.values, default=0)
        return last if last and any(length > last for length in self.reasons) else None


def by_length(lines: Sequence[Reach], *, title: str, note: str = "", span: svg.Place) -> str:
    """Draw each cell's mean over length, on a logarithmic axis, with the band that its seeds fill.

    The trained length is ringed, and marked across the plot where all cells share it. A line that goes no further although
    it was asked to ends in a cross, and its legend says where.

    Args:
        span: the vertical axis, the same in every panel of a study.
    """
    lengths = sorted({length for reach in lines for length in (*reach.values, *reach.reasons)})
    ends = math.log(lengths[0]), math.log(lengths[-1])
    place, y = svg.scale(ends, (LEFT + MARGIN, RIGHT - MARGIN)), svg.scale(span, (FLOOR, TOP))
    parts = [*svg.head(title, note), *svg.upward(y, span, left=LEFT, right=RIGHT)]
    parts += length_axis(lengths, place)
    parts += _trained(lengths, {reach.trained for reach in lines}, place)
    for reach in lines:
        at = {length: (place(math.log(length)), values) for length, values in reach.values.items()}
        if len(at) > 1:
            above, below = ([(x, y(edge(values))) for x, values in at.values()] for edge in (max, min))
            parts.append(svg.area([*above, *reversed(below)], reach.color))
        means = {length: (x, y(sum(values) / len(values))) for length, (x, values) in at.items()}
        parts.append(svg.path(list(means.values()), reach.color, dash=reach.dash))
        parts += [svg.dot(*spot, reach.color, radius=3) for spot in means.values()]
        if reach.trained in means:
            parts.append(svg.ring(*means[reach.trained], reach.color, radius=6.5))
        if reach.stops is not None:
            x, height = list(means.values())[-1]
            parts.append(svg.text(x + 8, height + 5, "×", size=16, fill=reach.color))
    for i, reach in enumerate(lines):
        stops, height = reach.stops, FLOOR + 56 + 19 * i
        label = reach.name if stops is None else f"{reach.name} (× no further than {stops})"
        parts.append(svg.path([(0, height), (24, height)], reach.color, dash=reach.dash, width=2.5))
        parts.append(svg.text(30, height + 4, svg.fitting(label, size=12.5, width=svg.WIDTH - 30), size=12.5))
    return svg.svg(FLOOR + 50 + 19 * len(lines), title, parts)


def length_axis(lengths: Sequence[int], place: Callable[[float], float]) -> list[str]:
    """The lengths below a plot whose floor is at `FLOOR`, as many of them as have room; `place` maps their logarithms."""
    parts, last = [], -math.inf
    for length in lengths:
        x = place(math.log(length))
        parts.append(svg.line((x, TOP), (x, FLOOR), svg.GRID, width=1))
        if x - last > CLOSE:
            parts.append(svg.text(x, FLOOR + 16, f"{length:,}", size=12, anchor="middle", fill=svg.FAINT))
            last = x
    parts.append(svg.text((LEFT + RIGHT) / 2, FLOOR + 32, "length", size=12, anchor="middle", fill=svg.FAINT))
    return parts


def _trained(lengths: Sequence[int], trained: set[int | None], place: Callable[[float], float]) -> list[str]:
    """A line where all cells were trained."""
    if len(trained) != 1 or (length := next(iter(trained))) is None or length not in lengths:
        return []
    x = place(math.log(length))
    anchor = "end" if x > svg.WIDTH * 0.8 else "start"
    return [
        svg.line((x, TOP), (x, FLOOR), svg.FAINT, width=1, dash="3 3"),
        svg.text(x + (-5 if anchor == "end" else 5), TOP + 11, "trained", size=11, anchor=anchor, fill=svg.FAINT),
    ]
