"""Building blocks of SVG plots, as text.

Plots are written by hand so that a report is self-contained: no script, no fonts to load, sharp at any size. Every plot is 420
units wide with labels above their rows, so that a phone shows it at full width with readable text. A plot has a style sheet
for dark mode that replaces each color.

Labels can stand in a column next to a plot: each is joined to its mark by a thin line, and no two overlap.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from os.path import commonprefix

from attnlab._util.colors import DARK_PAPER, WHITE, on_dark
from attnlab._util.text import escape_controls

WIDTH = 420
INK, FAINT, GRID, RULE, PAPER = "#222222", "#666666", "#DDDDDD", "#8C8C8C", WHITE
DARK = {INK: "#E6E6E6", FAINT: "#A5A5A5", GRID: "#3A3F43", RULE: "#848484", PAPER: DARK_PAPER}  # the same on dark paper
FONT = "system-ui, -apple-system, Segoe UI, DejaVu Sans, sans-serif"
TITLE_SIZE = 14.5
LETTER = 0.58  # average width of a letter, relative to the font size
Point = tuple[float, float]
SMALLEST = 1e-290  # range of values; steps between ticks of smaller ones are no floats
Limits = tuple[float, float]  # of an axis, in the units of its values

COLUMN, SWATCH = 276, 16  # left end of a column of labels, and the width of the sample of a line's style
LABEL_SIZE = 11.5  # of the font
LABEL_LINE = 13.5  # height of a line of text
LABEL_GAP = 3  # between two labels
MAX_LABEL_LINES = 3


def scale(values: Limits, places: Limits) -> Callable[[float], float]:
    """Return the linear function that maps an interval of values to an interval of the drawing."""
    (low, high), (start, end) = values, places
    return lambda v: start + (v - low) / ((high - low) or 1.0) * (end - start)


def padded_limits(values: Sequence[float]) -> Limits:
    """Return the range of the finite values with 5 % padding; a range of positive width for any input."""
    finite = [v for v in values if math.isfinite(v)] or [0.0]
    size = max((max(finite) - min(finite)) or abs(max(finite)) * 0.05 or 1.0, SMALLEST)
    return min(finite) - 0.05 * size, max(finite) + 0.05 * size


def limits_with_intervals(values: Sequence[float], ends: Sequence[float]) -> Limits:
    """Return limits that fit all values, and ends of intervals at most half the values' range beyond them.

    A 95 % interval from two seeds is 13 times as wide as their distance; it is cut at the frame, with an arrow.
    """
    low, high = padded_limits(values)
    room = (high - low) / 2
    return max(min([low, *ends]), low - room), min(max([high, *ends]), high + room)


def ends_beyond(ends: Limits, limits: Limits) -> list[tuple[float, int]]:
    """Return (limit, sign) for each end of an interval beyond the limits, with sign -1 below and 1 above."""
    return [(limits[0], -1)] * (ends[0] < limits[0]) + [(limits[1], 1)] * (ends[1] > limits[1])


def ticks(low: float, high: float, *, about: int = 5) -> list[float]:
    """Return round numbers inside a range, 1, 2 or 5 times a power of ten apart."""
    rough = (high - low) / about or 1.0
    exponent = math.floor(math.log10(rough))
    power = 10.0**exponent
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first, final = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, max(12, 2 - exponent)) for i in range(first, final + 1)]


def tick_label(value: float) -> str:
    """Return the label of a tick: "12k", "0.25"."""
    return f"{value / 1000:,.0f}k" if abs(value) >= 10_000 else f"{value:.6g}"


def truncate(label: str, *, size: float, width: float = WIDTH) -> str:
    """Truncate a label to a width, with an ellipsis."""
    most = int(width / (LETTER * size))
    return label if len(label) <= most else f"{label[: most - 1]}…"


def distinct(labels: Iterable[str], shorten: Callable[[str], str]) -> dict[str, str]:
    """Return how each label is shown: shortened, without the common beginning of labels that would then look the same."""
    shown = {label: shorten(label) for label in labels}
    for same in set(shown.values()):
        alike = [label for label in shown if shown[label] == same]
        if len(alike) > 1:
            start = len(commonprefix(alike))
            word = alike[0].rfind(" ", 0, start) + 1
            rests = {label: f"…{label[word if word > 1 else start :]}" for label in alike}
            shorter = distinct(rests.values(), shorten)
            shown |= {label: shorter[rest] for label, rest in rests.items()}
    return shown


def fits_title(title: str) -> bool:
    """Return True when a title is not truncated."""
    return truncate(title, size=TITLE_SIZE) == title


def header(title: str, note: str) -> list[str]:
    """Return the title and the note at the top of a plot."""
    return [
        text(0, 15, truncate(title, size=TITLE_SIZE), weight="bold"),
        text(0, 32, truncate(note, size=11.5), size=12, fill=FAINT),
    ]


def x_axis(x: Callable[[float], float], limits: Limits, *, bands: Sequence[Limits], bottom: float) -> list[str]:
    """Return vertical grid lines and their labels.

    Args:
        x: Maps a value to a horizontal position.
        limits: Of the axis.
        bands: Upper and lower ends of the parts of the plot that the lines cross; they leave out lines of text.
        bottom: Lower end of the plot; the labels are below it.
    """
    places = ticks(*limits)
    lines = [line for tick in places for line in vertical_lines(x(tick), bands, GRID, width=1)]
    for tick in places:
        label = tick_label(tick)
        half = LETTER * 12 * len(label) / 2  # a label at the edge moves inside
        place = min(max(x(tick), half), WIDTH - half)
        lines.append(text(place, bottom + 16, label, size=12, anchor="middle", fill=FAINT))
    return lines


def vertical_lines(x: float, bands: Sequence[Limits], color: str, *, width: float) -> list[str]:
    """Return a vertical line in each of the bands."""
    return [line((x, top), (x, bottom), color, width=width) for top, bottom in bands]


def y_axis(y: Callable[[float], float], limits: Limits, *, left: float, right: float) -> list[str]:
    """Return horizontal grid lines, and their labels left of `left`."""
    places = ticks(*limits)
    lines = [line((left, y(tick)), (right, y(tick)), GRID, width=1) for tick in places]
    return lines + [text(left - 5, y(tick) + 4, tick_label(tick), size=12, anchor="end", fill=FAINT) for tick in places]


def value_axis(places: Sequence[tuple[float, str]], *, ends: Limits, gap: float, name: tuple[float, float, str]) -> list[str]:
    """Return a vertical grid line at each place, labels below them for as many places as fit, and the name of the axis.

    Args:
        places: (horizontal position, label), ascending.
        ends: Upper and lower ends of the lines.
        gap: Smallest distance of two labels.
        name: Position and text.
    """
    lines = [line((place, ends[0]), (place, ends[1]), GRID, width=1) for place, _ in places]
    labels, last = [], -math.inf
    for place, label in places:
        if place - last > gap:
            labels.append(text(place, ends[1] + 16, label, size=12, anchor="middle", fill=FAINT))
            last = place
    return [*lines, *labels, text(*name, size=12, anchor="middle", fill=FAINT)]


def dot(x: float, y: float, color: str, *, radius: float = 3.8, opacity: float = 0.8, title: str = "") -> str:
    """Return a filled circle; `title` is its tooltip."""
    style = f'fill="{color}" fill-opacity="{opacity}" stroke="{PAPER}" stroke-width=".8"'
    return _with_title(f'<circle cx="{_place(x)}" cy="{_place(y)}" r="{radius}" {style}', title)


def ring(x: float, y: float, color: str, *, radius: float, title: str = "") -> str:
    """Return an open circle; `title` is its tooltip."""
    pointer = ' pointer-events="all"' if title else ""
    style = f'fill="none" stroke="{color}" stroke-width="1.5"{pointer}'
    return _with_title(f'<circle cx="{_place(x)}" cy="{_place(y)}" r="{radius}" {style}', title)


def _with_title(opening: str, title: str) -> str:
    return f"{opening}><title>{escape(escape_controls(title))}</title></circle>" if title else f"{opening}/>"


def arrow(tip: Point, color: str, direction: Point) -> str:
    """Return an arrowhead, for an interval that exceeds the frame; `direction` is (-1, 0) for left, (0, -1) for up."""
    (x, y), (right, down) = tip, direction
    corners = [tip, *((x - 9 * right - 6 * side * down, y - 9 * down - 6 * side * right) for side in (1, -1))]
    return f'<polygon points="{_coordinates(corners)}" fill="{color}"/>'


def line(start: Point, end: Point, color: str, *, width: float, opacity: float = 1, dash: str = "") -> str:
    """Return a straight line."""
    (x1, y1), (x2, y2) = (map(_place, point) for point in (start, end))
    style = f'stroke="{color}" stroke-width="{width}"' + (f' stroke-opacity="{opacity}"' if opacity != 1 else "")
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" {style}{dashed}/>'


def rect(x: float, y: float, width: float, height: float, fill: str, *, opacity: float = 1) -> str:
    """Return a filled rectangle."""
    place = f'x="{_place(x)}" y="{_place(y)}" width="{_place(max(width, 0))}" height="{_place(height)}"'
    style = f'fill="{fill}"' + (f' fill-opacity="{opacity}"' if opacity != 1 else "")
    return f"<rect {place} {style}/>"


def polygon(points: Sequence[Point], color: str) -> str:
    """Return a translucent filled polygon."""
    return f'<polygon points="{_coordinates(points)}" fill="{color}" fill-opacity=".16"/>'


def polyline(points: Sequence[Point], color: str, *, dash: str = "", width: float = 1.7) -> str:
    """Return a line through points; a single point becomes a dot."""
    if len(points) == 1:
        return dot(*points[0], color)
    style = f'fill="none" stroke="{color}" stroke-width="{width}" stroke-opacity=".85"'
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{_coordinates(points)}" {style}{dashed}/>'


def _coordinates(points: Sequence[Point]) -> str:
    return " ".join(f"{_place(x)},{_place(y)}" for x, y in points)


def _place(coordinate: float) -> str:
    """Format a coordinate with at most one decimal: finer than a screen shows."""
    written = f"{round(coordinate, 6):.1f}".removesuffix(".0")  # in two steps, as `settled` rounds
    return "0" if written == "-0" else written


def text(
    x: float,
    y: float,
    label: str,
    *,
    size: float = 14,
    anchor: str = "start",
    fill: str = INK,
    weight: str = "normal",
    halo: bool = False,
) -> str:
    """Return a line of text.

    Args:
        x, y: Of its baseline, at the `anchor`.
        label: The text.
        size: Of the font.
        anchor: "start", "middle" or "end".
        fill: Color.
        weight: Of the font.
        halo: Add an outline in the color of the paper, which keeps it legible above lines.
    """
    style = f'font-size="{size:g}" fill="{fill}"'
    style += f' text-anchor="{anchor}"' if anchor != "start" else ""
    style += f' font-weight="{weight}"' if weight != "normal" else ""
    style += f' stroke="{PAPER}" stroke-width="4" paint-order="stroke"' if halo else ""
    return f'<text x="{_place(x)}" y="{_place(y)}" {style}>{escape(escape_controls(label))}</text>'


def document(height: float, title: str, parts: Sequence[str]) -> str:
    """Return the complete SVG document; `title` is its label for screen readers."""
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}"'
    opening += f' viewBox="0 0 {WIDTH} {height:.0f}" role="img"'
    body = "\n".join([f'<rect width="100%" height="100%" fill="{PAPER}"/>', *parts])
    return (
        f'{opening} aria-label="{escape(escape_controls(title))}" font-family="{FONT}">\n{_dark_mode(body)}\n{body}\n</svg>\n'
    )


def _dark_mode(body: str) -> str:
    """Return a style sheet that replaces each color of a drawing in dark mode."""
    rules = []
    for attribute, color in sorted(set(re.findall(r'(fill|stroke)="(#[0-9A-F]{6})"', body))):
        rules.append(f'[{attribute}="{color}"]{{{attribute}:{DARK.get(color) or on_dark(color)}}}')
    return f"<style>@media screen and (prefers-color-scheme:dark){{{''.join(rules)}}}</style>"


@dataclass(frozen=True)
class Label:
    """A label: its text, the place of its mark, and the style of the mark."""

    text: str
    mark: Point
    color: str
    dash: str = ""


def wrap(text: str, width: float) -> list[str]:
    """Return a text as at most `MAX_LABEL_LINES` lines, broken at spaces and truncated to a width."""
    most = int(width / (LETTER * LABEL_SIZE))
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    if len(lines) > MAX_LABEL_LINES:
        lines = [*lines[: MAX_LABEL_LINES - 1], " ".join(lines[MAX_LABEL_LINES - 1 :])]
    return [truncate(line, size=LABEL_SIZE, width=width) for line in lines]


def column_height(labels: Sequence[str]) -> float:
    """Return the least height of a column of labels."""
    return sum(_height(wrap(label, _text_width())) for label in labels)


def label_column(labels: Sequence[Label], *, top: float, bottom: float) -> list[str]:
    """Draw labels from top to bottom in the order of their marks, each as close to its mark as the others allow."""
    order = sorted(range(len(labels)), key=lambda i: labels[i].mark[1])
    shown = distinct((label.text for label in labels), lambda label: "\n".join(wrap(label, _text_width())))
    lines = {i: shown[labels[i].text].split("\n") for i in order}
    heights = [_height(lines[i]) for i in order]
    tops = spread([labels[i].mark[1] - height / 2 for i, height in zip(order, heights, strict=True)], heights, top, bottom)
    parts = []
    for i, y, height in zip(order, tops, heights, strict=True):
        label, middle = labels[i], y + height / 2
        parts.append(line(label.mark, (COLUMN - 3, middle), RULE, width=0.7))
        parts.append(line((COLUMN, middle), (COLUMN + SWATCH, middle), label.color, width=3, dash=label.dash))
        parts += [
            text(COLUMN + SWATCH + 4, y + LABEL_GAP / 2 + LABEL_LINE * (n + 0.78), line, size=LABEL_SIZE)
            for n, line in enumerate(lines[i])
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
    return LABEL_LINE * len(lines) + LABEL_GAP


def _text_width() -> float:
    return WIDTH - COLUMN - SWATCH - 4
