"""A heat map of two axes of a grid: the metric's mean in each square, as a figure on a shade."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnlab.report.plots import svg

TOP, ROW = 64, 50
BEST, WORST = (0x2C, 0x6F, 0xA6), (0xF3, 0xF6, 0xF9)  # one hue, dark where it is good: reads without colour, too


def heat(
    values: Mapping[tuple[str, str], float | str],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    note: str = "",
    direction: str,
    span: tuple[float, float],
) -> str:
    """Draw a square for each pair; a word (a state) where there is no value, nothing where there is no cell.

    Args:
        values: (row, column) -> the mean, or a word.
        rows: from top to bottom; their labels stand above their squares.
        columns: from left to right.
        title: above the plot.
        note: which axes these are.
        direction: "min" where smaller values are better, else "max".
        span: the smallest and the largest value, the same in every heat map of a study.
    """
    width = svg.WIDTH / len(columns)
    size = min(12.5, width / (svg.LETTER * max(len(column) for column in columns)))
    parts = svg.head(title, note)
    for j, column in enumerate(columns):
        parts.append(svg.text(width * (j + 0.5), TOP - 10, column, size=max(size, 7), anchor="middle", fill=svg.FAINT))
    for i, row in enumerate(rows):
        y = TOP + ROW * i
        parts.append(svg.text(0, y + 13, svg.fitting(row, size=12.5), size=12.5))
        for j, column in enumerate(columns):
            found = values.get((row, column))
            if found is not None:
                parts += _square(width * j + 1, y + 18, width - 2, found, span=span, direction=direction)
    return svg.svg(TOP + ROW * len(rows) + 4, title, parts)


def _square(x: float, y: float, width: float, found: float | str, *, span: svg.Place, direction: str) -> list[str]:
    if isinstance(found, str):
        words = svg.fitting(found, size=11, width=width)
        label = svg.text(x + width / 2, y + 17, words, size=11, anchor="middle", fill=svg.FAINT)
        return [svg.rect(x, y, width, 26, "#EEEEEE"), label]
    share = (found - span[0]) / ((span[1] - span[0]) or 1.0)
    good = 1 - share if direction == "min" else share
    shade = "#" + "".join(f"{round(w + (b - w) * good):02X}" for b, w in zip(BEST, WORST, strict=True))
    figure = f"{found:.4f}" if width > 60 else f"{found:.3g}"
    ink = "#FFFFFF" if good > 0.55 else svg.INK
    return [svg.rect(x, y, width, 26, shade), svg.text(x + width / 2, y + 17, figure, size=12.5, anchor="middle", fill=ink)]
