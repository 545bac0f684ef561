"""Plots in rows on a common axis, with a dot for each seed: differences and values.

- Forest plot: the difference of each cell from its baseline with its interval, zero and the margin.
- Seeds: each row shows the seeds' values, their mean and its interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

from attnlab._util.metrics import settled
from attnlab.report.plots import svg
from attnlab.stats.joint import simultaneous_interval
from attnlab.stats.paired import Difference

FAR = 6  # times the median: larger differences are arrows at the frame, so that the others can be seen
ROW_HEIGHT, TOP, PADDING = 44, 58, 14
MARGIN_COLOR = "#1D9AE1"
SEEDS_BELOW = 10  # the interval: many rings would hide it
TEXT_HEIGHT = 20  # of a row's label and figures, which no line crosses

SEED_ROW_HEIGHT, SEED_TOP = 42, 44
SEED_TEXT_HEIGHT = 19  # of a row's label, which no grid line crosses


@dataclass(frozen=True)
class ForestRow:
    """One row: the difference of each seed, their mean and 95 % interval, and the difference as text.

    `outer_low` and `outer_high` are the ends of the simultaneous interval, drawn as a thin line with caps. `names` are the
    tooltips of the values, `margin` is drawn in this row alone, and a row that is `decided` is never cut off.
    """

    label: str
    color: str
    values: Sequence[float]
    mean: float
    low: float | None
    high: float | None
    text: str
    outer_low: float | None = None
    outer_high: float | None = None
    names: Sequence[str] = field(default=(), kw_only=True)
    margin: float | None = field(default=None, kw_only=True)
    decided: bool = field(default=False, kw_only=True)


def forest_row(
    label: str,
    color: str,
    values: Mapping[int, float],
    difference: Difference,
    *,
    text: str,
    run: str = "",
    control: bool = False,
) -> ForestRow:
    """Return the row of a difference, with its intervals.

    Args:
        label, color, text: Of the row.
        values: Seed -> difference.
        difference: Over the seeds.
        run: Name of the cell in the tooltips.
        control: A control may be cut off, so that the others can be seen.
    """
    interval, outer = difference.interval, simultaneous_interval(difference) if difference.comparisons > 1 else None
    ends = (interval.low, interval.high, *((outer.low, outer.high) if outer else (None, None)))
    low, high, *outside = ends
    names = [f"{run or label} s{seed}: {settled(value):+.4g}" for seed, value in values.items()]
    decided = bool(difference.conclusion) and not control
    return ForestRow(label, color, [*values.values()], interval.mean, low, high, text, *outside, names=names, decided=decided)


def forest_plot(rows: Sequence[ForestRow], *, title: str, note: str = "", direction: str, margin: float | None = None) -> str:
    """Draw differences on a common axis around zero.

    Args:
        rows: From top to bottom.
        title: Text above the plot.
        note: Line below the title.
        direction: "min" when a negative difference is better, else "max".
        margin: Largest difference that counts as equivalent; drawn as a band around zero.
    """
    bottom = TOP + ROW_HEIGHT * len(rows)
    limits = forest_limits(rows, margin)
    x = svg.scale(limits, (PADDING, svg.WIDTH - PADDING))
    parts = svg.header(title, note)
    if margin is not None:
        parts.append(svg.rect(x(-margin), TOP - 8, x(margin) - x(-margin), bottom - TOP + 8, MARGIN_COLOR, opacity=0.2))
    bands = [(TOP + ROW_HEIGHT * i + TEXT_HEIGHT, TOP + ROW_HEIGHT * (i + 1)) for i in range(len(rows))]
    parts += svg.x_axis(x, limits, bands=bands, bottom=bottom)
    parts += svg.vertical_lines(x(0), bands, svg.INK, width=1.4)
    left, right = ("← better", "worse →") if direction == "min" else ("← worse", "better →")
    parts.append(svg.text(0, TOP - 12, left, size=12, fill=svg.FAINT))
    parts.append(svg.text(svg.WIDTH, TOP - 12, right, size=12, anchor="end", fill=svg.FAINT))
    text_width = svg.LETTER * 13 * (max(len(row.text) for row in rows) + 2)
    labels = svg.distinct((row.label for row in rows), partial(svg.truncate, size=13, width=svg.WIDTH - text_width))
    for i, row in enumerate(rows):
        parts += _row(replace(row, label=labels[row.label]), TOP + ROW_HEIGHT * i + 30, limits)
    return svg.document(bottom + 26, title, parts)


def _row(row: ForestRow, y: float, limits: svg.Limits) -> list[str]:
    x = svg.scale(limits, (PADDING, svg.WIDTH - PADDING))
    parts = [
        svg.text(0, y - 13, row.label, size=13),
        svg.text(svg.WIDTH, y - 13, row.text, size=13, anchor="end"),
    ]
    if row.margin is not None:
        ends = [x(min(max(end, limits[0]), limits[1])) for end in (-row.margin, row.margin)]
        parts.append(svg.rect(ends[0], y - 8, ends[1] - ends[0], 18, MARGIN_COLOR, opacity=0.2))
    parts += _interval(row.outer_low, row.outer_high, y, limits, row.color, width=1, cap=5)
    parts += _interval(row.low, row.high, y, limits, row.color, width=2.2)
    lows, highs = ([row.mean, *(end for end in ends if end is not None)] for ends in _ends(row))
    beyond = svg.ends_beyond((min(lows), max(highs)), limits)
    parts += [svg.arrow((x(edge) + 10 * sign, y), row.color, (sign, 0)) for edge, sign in beyond]
    if limits[0] <= row.mean <= limits[1]:
        parts.append(svg.rect(x(row.mean) - 4.5, y - 4.5, 9, 9, row.color))
    titles = row.names or [""] * len(row.values)
    inside = [(value, title) for value, title in zip(row.values, titles, strict=True) if limits[0] <= value <= limits[1]]
    return parts + [svg.ring(x(value), y + SEEDS_BELOW, row.color, radius=3, title=title) for value, title in inside]


def _ends(row: ForestRow) -> tuple[Sequence[float | None], Sequence[float | None]]:
    """Return the lower ends and the upper ends of a row's intervals."""
    return (row.low, row.outer_low), (row.high, row.outer_high)


def _interval(
    low: float | None, high: float | None, y: float, limits: svg.Limits, color: str, *, width: float, cap: float = 0
) -> list[str]:
    """Return an interval cut at the frame, with caps at the ends that lie inside."""
    if low is None or high is None or low >= limits[1] or high <= limits[0]:
        return []
    x = svg.scale(limits, (PADDING, svg.WIDTH - PADDING))
    parts = [svg.line((x(max(low, limits[0])), y), (x(min(high, limits[1])), y), color, width=width)]
    inside = [x(end) for end in (low, high) if limits[0] <= end <= limits[1]] if cap else []
    return parts + [svg.line((end, y - cap), (end, y + cap), color, width=width) for end in inside]


def forest_limits(rows: Sequence[ForestRow], margin: float | None) -> svg.Limits:
    """Return the limits of the axis: zero, the margin and rows with a verdict are inside, others far from all are not."""
    threshold = FAR * max(median(abs(row.mean) for row in rows), margin or 0.0)
    near = [row.mean for row in rows if abs(row.mean) <= threshold or row.decided]
    size = max((abs(mean) for mean in near), default=threshold) or 1.0
    ends = [end for row in rows for pair in _ends(row) for end in pair if end is not None and abs(end) <= 3 * size]
    values = [value for row in rows for value in row.values if abs(value) <= 3 * size]
    inside = 1.25 * (margin or 0.0)
    return svg.padded_limits([*near, *ends, *values, 0.0, -inside, inside])


@dataclass(frozen=True)
class SeedRow:
    """One row: label, color, seed -> value, the mean, and its 95 % interval if there is one."""

    label: str
    color: str
    values: Mapping[int, float]
    mean: float
    low: float | None = None
    high: float | None = None


def seed_plot(
    rows: Sequence[SeedRow], *, title: str, note: str = "", joined: bool = False, threshold: float | None = None
) -> str:
    """Draw rows on a common axis.

    Args:
        rows: From top to bottom.
        title: Text above the plot.
        note: Line below the title: the better direction or the unit, and the meaning of the bars.
        joined: Draw a thin line from row to row through the runs of one seed, to show the pairing.
        threshold: Value of the solve rate's threshold, drawn as a vertical line.
    """
    bottom = SEED_TOP + SEED_ROW_HEIGHT * len(rows)
    interval_ends = [end for row in rows for end in (row.low, row.high) if end is not None]
    values = [value for row in rows for value in row.values.values()]
    limits = svg.limits_with_intervals([*values, *([] if threshold is None else [threshold])], interval_ends)
    x = svg.scale(limits, (PADDING, svg.WIDTH - PADDING))
    bands = [
        (SEED_TOP + SEED_ROW_HEIGHT * i + SEED_TEXT_HEIGHT, SEED_TOP + SEED_ROW_HEIGHT * (i + 1)) for i in range(len(rows))
    ]
    parts = [*svg.header(title, note), *svg.x_axis(x, limits, bands=bands, bottom=bottom)]
    parts += [] if threshold is None else svg.vertical_lines(x(threshold), bands, svg.INK, width=1.4)
    ys = [SEED_TOP + SEED_ROW_HEIGHT * i + 28 for i in range(len(rows))]
    if joined:
        for seed in dict.fromkeys(seed for row in rows for seed in row.values):
            points = [(x(row.values[seed]), y + SEEDS_BELOW) for row, y in zip(rows, ys, strict=True) if seed in row.values]
            parts += [svg.line(a, b, svg.RULE, width=0.8) for a, b in zip(points, points[1:], strict=False)]
    labels = svg.distinct((row.label for row in rows), partial(svg.truncate, size=13))
    for row, y in zip(rows, ys, strict=True):
        parts.append(svg.text(0, y - 12, labels[row.label], size=13, halo=joined))
        if row.low is not None and row.high is not None:
            ends = (x(max(row.low, limits[0])), y), (x(min(row.high, limits[1])), y)
            parts.append(svg.line(*ends, row.color, width=4, opacity=0.3))
            beyond = svg.ends_beyond((row.low, row.high), limits)
            parts += [svg.arrow((x(edge) + 10 * sign, y), row.color, (sign, 0)) for edge, sign in beyond]
        parts.append(svg.line((x(row.mean), y - 8), (x(row.mean), y + 8), row.color, width=2.5))
        titles = {seed: f"{row.label} s{seed}: {settled(value):.6g}" for seed, value in row.values.items()}
        parts += [svg.dot(x(v), y + SEEDS_BELOW, row.color, title=titles[seed]) for seed, v in row.values.items()]
    return svg.document(bottom + 26, title, parts)
