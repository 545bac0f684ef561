"""A heat map of two axes of a grid: the mean of the metric in each square."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnlab._util.colors import contrast
from attnlab.report.plots import svg

TOP, ROW_HEIGHT, SQUARE_HEIGHT = 64, 50, 26
BEST, WORST = (0x2C, 0x6F, 0xA6), (0xF3, 0xF6, 0xF9)  # one hue, dark for good values: readable without color, too


def heat_map(
    values: Mapping[tuple[str, str], float | str],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    note: str = "",
    direction: str,
    limits: svg.Limits,
) -> str:
    """Draw a square for each (row, column) pair with a cell.

    Args:
        values: (row, column) -> the mean, or a state as text where there is no value.
        rows: From top to bottom; their labels are above their squares.
        columns: From left to right.
        title: Text above the plot.
        note: Line below the title.
        direction: "min" when smaller values are better, else "max".
        limits: The smallest and the largest value, the same for all heat maps of a study.
    """
    width = svg.WIDTH / len(columns)
    size = min(12.5, width / (svg.LETTER * max(len(column) for column in columns)))
    parts = svg.header(title, note)
    for j, column in enumerate(columns):
        parts.append(svg.text(width * (j + 0.5), TOP - 10, column, size=max(size, 7), anchor="middle", fill=svg.FAINT))
    for i, row in enumerate(rows):
        y = TOP + ROW_HEIGHT * i
        parts.append(svg.text(0, y + 13, svg.truncate(row, size=12.5), size=12.5))
        for j, column in enumerate(columns):
            value = values.get((row, column))
            if value is not None:
                parts += _square(width * j + 1, y + 18, width - 2, value, limits=limits, direction=direction)
    return svg.document(TOP + ROW_HEIGHT * len(rows) + 4, title, parts)


def _square(x: float, y: float, width: float, value: float | str, *, limits: svg.Limits, direction: str) -> list[str]:
    if isinstance(value, str):
        state = svg.truncate(value, size=11, width=width)
        label = svg.text(x + width / 2, y + 17, state, size=11, anchor="middle", fill=svg.FAINT, fixed=True)
        return [svg.rect(x, y, width, SQUARE_HEIGHT, "#EEEEEE", fixed=True), label]
    share = (value - limits[0]) / ((limits[1] - limits[0]) or 1.0)
    goodness = 1 - share if direction == "min" else share
    color = "#" + "".join(f"{round(w + (b - w) * goodness):02X}" for b, w in zip(BEST, WORST, strict=True))
    text = f"{value:.4f}" if width > 60 else f"{value:.3g}"
    ink = max(svg.PAPER, svg.INK, key=lambda ink: contrast(ink, color))
    label = svg.text(x + width / 2, y + 17, text, size=12.5, anchor="middle", fill=ink, fixed=True)
    return [svg.rect(x, y, width, SQUARE_HEIGHT, color, fixed=True), label]
