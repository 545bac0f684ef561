"""A plot with one dot per seed: each row shows the seeds' values, their mean and its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnlab.report.plots import svg

ROW_HEIGHT, TOP, PADDING = 42, 44, 14
TEXT_HEIGHT = 19  # of a row's label, which no grid line crosses


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
    bottom = TOP + ROW_HEIGHT * len(rows)
    interval_ends = [end for row in rows for end in (row.low, row.high) if end is not None]
    values = [value for row in rows for value in row.values.values()]
    limits = svg.limits_with_intervals([*values, *([] if threshold is None else [threshold])], interval_ends)
    x = svg.scale(limits, (PADDING, svg.WIDTH - PADDING))
    bands = [(TOP + ROW_HEIGHT * i + TEXT_HEIGHT, TOP + ROW_HEIGHT * (i + 1)) for i in range(len(rows))]
    parts = [*svg.header(title, note), *svg.x_axis(x, limits, bands=bands, bottom=bottom)]
    parts += [] if threshold is None else svg.vertical_lines(x(threshold), bands, svg.INK, width=1.4)
    ys = [TOP + ROW_HEIGHT * i + 28 for i in range(len(rows))]
    if joined:
        for seed in dict.fromkeys(seed for row in rows for seed in row.values):
            points = [(x(row.values[seed]), y) for row, y in zip(rows, ys, strict=True) if seed in row.values]
            parts += [svg.line(a, b, svg.RULE, width=0.8) for a, b in zip(points, points[1:], strict=False)]
    for row, y in zip(rows, ys, strict=True):
        parts.append(svg.text(0, y - 12, svg.truncate(row.label, size=13), size=13, halo=joined))
        if row.low is not None and row.high is not None:
            ends = (x(max(row.low, limits[0])), y), (x(min(row.high, limits[1])), y)
            parts.append(svg.line(*ends, row.color, width=4, opacity=0.3))
            beyond = svg.ends_beyond((row.low, row.high), limits)
            parts += [svg.arrow((x(edge) + 10 * sign, y), row.color, (sign, 0)) for edge, sign in beyond]
        parts.append(svg.line((x(row.mean), y - 8), (x(row.mean), y + 8), row.color, width=2.5))
        parts += [svg.dot(x(v), y, row.color, title=f"{row.label} s{seed}: {v:.6g}") for seed, v in row.values.items()]
    return svg.document(bottom + 26, title, parts)
