"""The metric over length on a logarithmic axis: one line per cell, with the trained length marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from attnlab.report.plots import svg

LEFT, RIGHT, TOP, BOTTOM = 46, svg.WIDTH - 14, 44, 274
PADDING = 12  # between the frame and the shortest and the longest length
MIN_LABEL_DISTANCE = 30  # of two lengths on the axis; closer ones share one label
LEGEND_LINE = 19


@dataclass(frozen=True)
class LengthCurve:
    """The scores of one cell by length.

    Attributes:
        name, color, dash: Label and style of the line.
        trained: Length that the cell was trained at, if known.
        values: Length -> scores of its seeds, the trained length included.
        reasons: Length -> why a score is missing.
        seeds: Number of completed seeds.
    """

    name: str
    color: str
    dash: str = ""
    trained: int | None = None
    values: Mapping[int, Sequence[float]] = field(default_factory=dict)
    reasons: Mapping[int, str] = field(default_factory=dict)
    seeds: int = 0

    def share(self, length: int) -> str:
        """Return "1 of 4" if only some of the seeds have a score, "" if all or none have."""
        n = len(self.values.get(length, ()))
        return f"{n} of {self.seeds}" if 0 < n < self.seeds else ""

    @property
    def last_length(self) -> int | None:
        """The longest length with a score, if longer ones were requested and have none; else None."""
        last = max(self.values, default=0)
        return last if last and any(length > last for length in self.reasons) else None


def length_plot(curves: Sequence[LengthCurve], *, title: str, note: str = "", limits: svg.Limits) -> str:
    """Draw each cell's mean over length, with a band from its lowest to its highest seed.

    The trained length is ringed, and marked by a vertical line if all cells share it. A line that ends before the longest
    requested length ends with a cross, and the legend names its last length.

    Args:
        curves: In drawing order.
        title: Text above the plot.
        note: Line below the title.
        limits: Limits of the vertical axis, the same for all panels of a study.
    """
    lengths = sorted({length for curve in curves for length in (*curve.values, *curve.reasons)})
    length_limits = math.log(lengths[0]), math.log(lengths[-1])
    x, y = svg.scale(length_limits, (LEFT + PADDING, RIGHT - PADDING)), svg.scale(limits, (BOTTOM, TOP))
    parts = [*svg.header(title, note), *svg.y_axis(y, limits, left=LEFT, right=RIGHT)]
    parts += length_axis(lengths, x)
    parts += _trained_length(lengths, {curve.trained for curve in curves}, x)
    for curve in curves:
        parts += _curve(curve, x, y)
    for i, curve in enumerate(curves):
        height = BOTTOM + 56 + LEGEND_LINE * i
        label = curve.name if curve.last_length is None else f"{curve.name} (× up to {curve.last_length})"
        parts.append(svg.polyline([(0, height), (24, height)], curve.color, dash=curve.dash, width=2.5))
        parts.append(svg.text(30, height + 4, svg.truncate(label, size=12.5, width=svg.WIDTH - 30), size=12.5))
    return svg.document(BOTTOM + 50 + LEGEND_LINE * len(curves), title, parts)


def _curve(curve: LengthCurve, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    """Return the band, the line with its dots, the ring and the cross of one cell."""
    parts = []
    columns = {length: (x(math.log(length)), scores) for length, scores in curve.values.items()}
    if len(columns) > 1:
        upper, lower = ([(place, y(end(scores))) for place, scores in columns.values()] for end in (max, min))
        parts.append(svg.polygon([*upper, *reversed(lower)], curve.color))
    means = {length: (place, y(sum(scores) / len(scores))) for length, (place, scores) in columns.items()}
    parts.append(svg.polyline(list(means.values()), curve.color, dash=curve.dash))
    parts += [svg.dot(*point, curve.color, radius=3) for point in means.values()]
    if curve.trained in means:
        parts.append(svg.ring(*means[curve.trained], curve.color, radius=6.5))
    if curve.last_length is not None:
        place, height = list(means.values())[-1]
        parts.append(svg.text(place + 8, height + 5, "×", size=16, fill=curve.color))
    return parts


def length_axis(lengths: Sequence[int], x: Callable[[float], float]) -> list[str]:
    """Return a vertical grid line for each length, and labels below `BOTTOM` for as many lengths as fit.

    Args:
        lengths: Ascending.
        x: Maps the logarithm of a length to a horizontal position.
    """
    places = [(x(math.log(length)), f"{length:,}") for length in lengths]
    name = ((LEFT + RIGHT) / 2, BOTTOM + 32, "length")
    return svg.value_axis(places, ends=(TOP, BOTTOM), gap=MIN_LABEL_DISTANCE, name=name)


def _trained_length(lengths: Sequence[int], trained: set[int | None], x: Callable[[float], float]) -> list[str]:
    """Return a dashed line at the trained length if all cells share it."""
    if len(trained) != 1 or (length := next(iter(trained))) is None or length not in lengths:
        return []
    place = x(math.log(length))
    anchor = "end" if place > svg.WIDTH * 0.8 else "start"
    return [
        svg.line((place, TOP), (place, BOTTOM), svg.FAINT, width=1, dash="3 3"),
        svg.text(place + (-5 if anchor == "end" else 5), TOP + 11, "trained", size=11, anchor=anchor, fill=svg.FAINT),
    ]
