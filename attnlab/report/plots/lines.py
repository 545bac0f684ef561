"""Plots of lines: curves over training steps, and over levels, lengths and a swept value on a logarithmic axis.

- Curves over training steps, with their range over seeds.
- Trend: differences from the baseline over levels, with zero and the margin.
- Lengths: the metric over length, with the trained length marked.
- Rates: the metric over a swept hyperparameter, with each run, the means and the best of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from attnlab.report.plots import svg
from attnlab.report.plots.rows import MARGIN_COLOR
from attnlab.report.plots.svg import COLUMN, Label, column_height, label_column
from attnlab.stats.sweep import LearningRateCurve

DASHES = ("", "7 4", "2 3", "9 3 2 3", "12 4", "4 2 1 2")
LEFT, RIGHT, TOP, BOTTOM = 46, COLUMN - 14, 44, 274
WIDE_RIGHT = svg.WIDTH - 14  # of a plot without a column of labels
MAX_MARKERS = 10  # points of a curve that are marked
LEGEND_LINE = 19

TREND_PADDING = 16  # between the frame and the lowest and the highest level
APART = 5  # between the marks of two cells at one level
MIN_LEVEL_DISTANCE = 34  # of two levels on the axis; closer ones share one label

LENGTH_PADDING = 12  # between the frame and the shortest and the longest length
MIN_LENGTH_DISTANCE = 30  # of two lengths on the axis; closer ones share one label

RATE_PADDING = 14  # between the frame and the smallest and the largest value
MIN_RATE_DISTANCE = 44  # of two values on the axis; closer ones share one label
SEED_OFFSET = 2.5  # distance between the dots of two cells at one value


@dataclass(frozen=True)
class Curve:
    """One curve: (step, value) points in order of step, and (step, lowest, highest) where seeds differ."""

    label: str
    color: str
    points: Sequence[tuple[float, float]]
    dash: str = ""
    band: Sequence[tuple[float, float, float]] = field(default=())
    width: float = 1.7


def curve_plot(
    curves: Sequence[Curve],
    *,
    title: str,
    note: str = "",
    name: str = "curves",
    limits: svg.Limits | None = None,
) -> str:
    """Draw curves over steps, with one label per cell next to their ends. Curves of few points have markers.

    Args:
        curves: In drawing order.
        title: Text above the plot.
        note: Line below the title.
        name: Name of the clip path, unique within a page.
        limits: Limits of the vertical axis; default `late_limits`. Curves are clipped to them.
    """
    last = max((step for curve in curves for step, _ in curve.points), default=1)
    limits = limits or late_limits(curves)
    first = {(curve.label, curve.color, curve.dash): curve for curve in reversed(curves) if curve.points}
    bottom = max(BOTTOM, TOP + column_height([label for label, _, _ in first]))
    x, y = svg.scale((0, last), (LEFT, RIGHT)), svg.scale(limits, (bottom, TOP))
    parts = [*svg.header(title, note), *svg.y_axis(y, limits, left=LEFT, right=RIGHT)]
    for tick in svg.ticks(0, last, about=4):
        parts.append(svg.text(x(tick), bottom + 16, svg.tick_label(tick), size=12, anchor="middle", fill=svg.FAINT))
    parts.append(svg.text((LEFT + RIGHT) / 2, bottom + 31, "step", size=12, anchor="middle", fill=svg.FAINT))
    frame = f'<rect x="{LEFT}" y="{TOP}" width="{RIGHT + 5 - LEFT}" height="{bottom - TOP}"/>'
    parts.append(f'<clipPath id="{name}">{frame}</clipPath><g clip-path="url(#{name})">')
    for curve in (curve for curve in curves if len(curve.band) > 1):
        upper = [(x(step), y(high)) for step, _, high in curve.band]
        lower = [(x(step), y(low)) for step, low, _ in curve.band]
        parts.append(svg.polygon([*upper, *reversed(lower)], curve.color))
    for curve in curves:
        points = [(x(step), y(value)) for step, value in curve.points]
        parts.append(svg.polyline(points, curve.color, dash=curve.dash, width=curve.width))
        parts += [svg.dot(*point, curve.color, radius=3) for point in points if len(points) <= MAX_MARKERS]
    parts.append("</g>")
    labels = []
    for (label, color, dash), curve in first.items():
        step, value = curve.points[-1]
        labels.append(Label(label, (x(step), y(min(max(value, limits[0]), limits[1]))), color, dash))
    parts += label_column(labels, top=TOP, bottom=bottom)
    return svg.document(bottom + 40, title, parts)


def late_limits(curves: Sequence[Curve]) -> svg.Limits:
    """Return limits of a vertical axis that fit all but the first quarter of the steps, where values are far from the rest."""
    last = max((step for curve in curves for step, _ in curve.points), default=1)
    late = [value for curve in curves for step, value in curve.points if step >= last / 4]
    late += [end for curve in curves for step, *ends in curve.band if step >= last / 4 for end in ends]
    return svg.padded_limits(late or [value for curve in curves for _, value in curve.points])


def legend(labels: Sequence[tuple[str, str, str]], top: float) -> tuple[list[str], float]:
    """Return the parts of a legend, in two columns if the labels are short, and its height.

    Args:
        labels: (label, color, dash) of each entry.
        top: Vertical position of the first entry.
    """
    parts = []
    shown = svg.distinct((label for label, *_ in labels), partial(svg.truncate, size=12.5, width=svg.WIDTH - 30))
    columns = 2 if max((len(label) for label, _, _ in labels), default=0) <= 24 else 1
    for i, (label, color, dash) in enumerate(labels):
        left, y = (i % columns) * svg.WIDTH / 2, top + LEGEND_LINE * (i // columns)
        parts.append(svg.polyline([(left, y), (left + 24, y)], color, dash=dash, width=2.5))
        parts.append(svg.text(left + 30, y + 4, shown[label], size=12.5))
    return parts, LEGEND_LINE * math.ceil(len(labels) / columns)


@dataclass(frozen=True)
class TrendLine:
    """The differences of one cell: (level, mean, low, high) by level; `low` and `high` are None without an interval."""

    label: str
    color: str
    points: Sequence[tuple[float, float, float | None, float | None]]
    dash: str = ""


def trend_plot(lines: Sequence[TrendLine], *, title: str, note: str, axis: str, margin: float | None = None) -> str:
    """Draw each cell's difference with its interval over the levels, with one label per cell next to its last level.

    Args:
        lines: In drawing order; each has a point at least.
        title: Text above the plot.
        note: Line below the title.
        axis: Name of the levels.
        margin: Largest difference that counts as equivalent; drawn as a band around zero.
    """
    bottom = max(BOTTOM, TOP + column_height([line.label for line in lines]))
    levels = sorted({level for line in lines for level, *_ in line.points})
    limits = trend_limits(lines, margin)
    y = svg.scale(limits, (bottom, TOP))
    spread = APART * (len(lines) - 1) / 2
    x = svg.scale((math.log(levels[0]), math.log(levels[-1])), (LEFT + TREND_PADDING + spread, RIGHT - TREND_PADDING - spread))
    parts = svg.header(title, note)
    if margin is not None:
        parts.append(svg.rect(LEFT, y(margin), RIGHT - LEFT, y(-margin) - y(margin), MARGIN_COLOR, opacity=0.2))
    parts += svg.y_axis(y, limits, left=LEFT, right=RIGHT)
    places, name = [(x(math.log(level)), format_level(level)) for level in levels], ((LEFT + RIGHT) / 2, bottom + 31, axis)
    parts += svg.value_axis(places, ends=(TOP, bottom), gap=MIN_LEVEL_DISTANCE, name=name)
    parts.append(svg.line((LEFT, y(0)), (RIGHT, y(0)), svg.INK, width=1.4))
    labels = []
    for i, line in enumerate(lines):
        shift = APART * i - spread
        parts += _trend_line(line, x, y, shift=shift, limits=limits)
        level, mean, *_ = line.points[-1]
        labels.append(Label(line.label, (x(math.log(level)) + shift, y(mean)), line.color, line.dash))
    parts += label_column(labels, top=TOP, bottom=bottom)
    return svg.document(bottom + 40, title, parts)


def trend_limits(lines: Sequence[TrendLine], margin: float | None) -> svg.Limits:
    """Return limits with zero, the margin and all means inside; long intervals are cut at the frame."""
    means = [mean for line in lines for _, mean, *_ in line.points]
    ends = [end for line in lines for _, _, *interval in line.points for end in interval if end is not None]
    inside = 1.25 * (margin or 0.0)
    return svg.limits_with_intervals([*means, 0.0, -inside, inside], ends)


def _trend_line(
    line: TrendLine, x: Callable[[float], float], y: Callable[[float], float], *, shift: float, limits: svg.Limits
) -> list[str]:
    """Return the line of one cell with a mark and an interval at each level; arrows where an interval leaves the frame."""
    places = [(x(math.log(level)) + shift, mean, low, high) for level, mean, low, high in line.points]
    parts = (
        [svg.polyline([(place, y(mean)) for place, mean, *_ in places], line.color, dash=line.dash)] if len(places) > 1 else []
    )
    for place, mean, low, high in places:
        if low is not None and high is not None:
            inside = max(low, limits[0]), min(high, limits[1])
            parts.append(svg.line((place, y(inside[0])), (place, y(inside[1])), line.color, width=1.8))
            parts += [
                svg.arrow((place, y(edge)), line.color, (0, -sign)) for edge, sign in svg.ends_beyond((low, high), limits)
            ]
        parts.append(svg.rect(place - 4, y(mean) - 4, 8, 8, line.color))
    return parts


def format_level(level: float) -> str:
    """Format a level: "1,500", "0.25"."""
    return f"{level:,.0f}" if level.is_integer() else f"{level:g}"


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
    x, y = svg.scale(length_limits, (LEFT + LENGTH_PADDING, WIDE_RIGHT - LENGTH_PADDING)), svg.scale(limits, (BOTTOM, TOP))
    parts = [*svg.header(title, note), *svg.y_axis(y, limits, left=LEFT, right=WIDE_RIGHT)]
    parts += length_axis(lengths, x)
    parts += _trained_length(lengths, {curve.trained for curve in curves}, x)
    for curve in curves:
        parts += _length_curve(curve, x, y)
    ends = ["" if curve.last_length is None else f" (× up to {curve.last_length})" for curve in curves]
    labels = [(curve.name + end, curve.color, curve.dash) for curve, end in zip(curves, ends, strict=True)]
    entries, height = legend(labels, BOTTOM + 56)
    return svg.document(BOTTOM + 50 + height, title, parts + entries)


def _length_curve(curve: LengthCurve, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
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
    name = ((LEFT + WIDE_RIGHT) / 2, BOTTOM + 32, "length")
    return svg.value_axis(places, ends=(TOP, BOTTOM), gap=MIN_LENGTH_DISTANCE, name=name)


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


@dataclass(frozen=True)
class RateCurve:
    """The curve of one cell: its name, its color, and its runs."""

    name: str
    color: str
    curve: LearningRateCurve


def curve_limits(curves: Sequence[RateCurve], *, direction: str) -> svg.Limits:
    """Return limits of the metric's axis that fit the runs near the best rates.

    Runs far beyond the best rate are much worse than the others. The axis has twice the range of the runs at the best rates and
    their neighbors; at most the range of all runs.
    """
    values = [v for c in curves for seeds in c.curve.runs.values.values() for v in seeds.values()]
    near = [v for c in curves for rate in _near_best(c.curve) for v in c.curve.runs.values[rate].values()] or values
    size = max(near, default=1.0) - min(near, default=0.0)
    if direction == "min":
        return svg.padded_limits([v for v in values if v <= max(near) + size])
    return svg.padded_limits([v for v in values if v >= min(near) - size])


def _near_best(curve: LearningRateCurve) -> list[float]:
    """Return the best rate and its neighbors, of the rates at which runs completed."""
    rates = sorted(curve.runs.values)
    place = rates.index(curve.best) if curve.best in rates else len(rates)
    return rates[max(0, place - 1) : place + 2]


def rate_plot(
    curves: Sequence[RateCurve], *, title: str, note: str, label: str, limits: svg.Limits, direction: str, clip: str
) -> str:
    """Draw the runs of each cell as dots, with a line through their means and a ring at the best.

    Diverged runs are crosses, and runs beyond the frame arrows, at the worse end of the axis.

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
    x, y = svg.scale(positions, (LEFT + RATE_PADDING, WIDE_RIGHT - RATE_PADDING)), svg.scale(limits, (BOTTOM, TOP))
    places, name = [(x(math.log10(rate)), f"{rate:.3g}") for rate in rates], ((LEFT + WIDE_RIGHT) / 2, BOTTOM + 32, label)
    parts = [*svg.header(title, note), *svg.y_axis(y, limits, left=LEFT, right=WIDE_RIGHT)]
    parts += svg.value_axis(places, ends=(TOP, BOTTOM), gap=MIN_RATE_DISTANCE, name=name)
    frame = f'<rect x="{LEFT}" y="{TOP}" width="{WIDE_RIGHT - LEFT}" height="{BOTTOM - TOP}"/>'
    parts.append(f'<clipPath id="{clip}">{frame}</clipPath>')
    for i, cell in enumerate(curves):
        offset = (i - (len(curves) - 1) / 2) * SEED_OFFSET
        parts += _runs(cell, x, y, limits=limits, worse_is_up=direction == "min", offset=offset)
        parts += [f'<g clip-path="url(#{clip})">', *_line(cell, x, y), "</g>"]
    entries, height = legend([(cell.name, cell.color, "") for cell in curves], BOTTOM + 56)
    return svg.document(BOTTOM + 50 + height, title, parts + entries)


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


def _line(cell: RateCurve, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    """Return the line through the means at the rates, with a ring at the best."""
    means, best = cell.curve.means, cell.curve.best
    parts = [svg.polyline([(x(math.log10(rate)), y(mean)) for rate, mean in means.items()], cell.color)]
    return [*parts, svg.ring(x(math.log10(best)), y(means[best]), cell.color, radius=5)] if best in means else parts
