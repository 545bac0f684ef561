"""A column of labels next to a plot: each is joined to its mark by a thin line, and no two overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnlab.report.plots import svg

SIZE = 11.5  # of the font
LINE = 13.5  # height of a line of text
GAP = 3  # between two labels
LEFT, SWATCH = 276, 16  # of the column, and the width of the sample of a line's style
MAX_LINES = 3


@dataclass(frozen=True)
class Label:
    """A label: its text, the place of its mark, and the style of the mark."""

    text: str
    mark: svg.Point
    color: str
    dash: str = ""


def wrap(text: str, width: float) -> list[str]:
    """Return a text as at most `MAX_LINES` lines, broken at spaces and truncated to a width."""
    most = int(width / (svg.LETTER * SIZE))
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], " ".join(lines[MAX_LINES - 1 :])]
    return [svg.truncate(line, size=SIZE, width=width) for line in lines]


def column_height(labels: Sequence[str]) -> float:
    """Return the least height of a column of labels."""
    return sum(_height(wrap(label, _text_width())) for label in labels)


def label_column(labels: Sequence[Label], *, top: float, bottom: float) -> list[str]:
    """Draw labels from top to bottom in the order of their marks, each as close to its mark as the others allow."""
    order = sorted(range(len(labels)), key=lambda i: labels[i].mark[1])
    lines = {i: wrap(labels[i].text, _text_width()) for i in order}
    heights = [_height(lines[i]) for i in order]
    tops = spread([labels[i].mark[1] - height / 2 for i, height in zip(order, heights, strict=True)], heights, top, bottom)
    parts = []
    for i, y, height in zip(order, tops, heights, strict=True):
        label, middle = labels[i], y + height / 2
        parts.append(svg.line(label.mark, (LEFT - 3, middle), svg.RULE, width=0.7))
        parts.append(svg.line((LEFT, middle), (LEFT + SWATCH, middle), label.color, width=3, dash=label.dash))
        parts += [
            svg.text(LEFT + SWATCH + 4, y + GAP / 2 + LINE * (n + 0.78), line, size=SIZE) for n, line in enumerate(lines[i])
        ]
    return parts


def spread(tops: Sequence[float], heights: Sequence[float], top: float, bottom: float) -> list[float]:
    """Move intervals apart, in their order, so that none overlap and all lie between two limits if they fit.

    Args:
        tops: Upper ends, ascending.
        heights: Heights of the intervals.
        top, bottom: Limits.
    """
    placed: list[float] = []
    end = top
    for start, height in zip(tops, heights, strict=True):
        placed.append(max(start, end))
        end = placed[-1] + height
    limit = max(bottom, top + sum(heights))
    for i in range(len(placed) - 1, -1, -1):
        placed[i] = min(placed[i], limit - heights[i])
        limit = placed[i]
    return placed


def _height(lines: Sequence[str]) -> float:
    return LINE * len(lines) + GAP


def _text_width() -> float:
    return svg.WIDTH - LEFT - SWATCH - 4
