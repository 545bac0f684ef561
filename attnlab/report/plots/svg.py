"""Pieces of SVG text that the plots are made of.

Written by hand so that a report is a page of its own: no script, no font to fetch, sharp at any size. Every plot is
drawn 420 units wide with labels above their rows, so that a phone shows it at full width with readable text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

WIDTH = 420
INK, FAINT, GRID = "#222222", "#666666", "#DDDDDD"
FONT = "system-ui, -apple-system, Segoe UI, DejaVu Sans, sans-serif"
LETTER = 0.58  # width of a letter over its size, on average
Place = tuple[float, float]


def scale(values: Place, places: Place) -> Callable[[float], float]:
    """Map an interval of values onto an interval of the drawing."""
    (low, high), (start, end) = values, places
    return lambda v: start + (v - low) / ((high - low) or 1.0) * (end - start)


def padded(values: Sequence[float]) -> Place:
    """The range of some values with a little room, whatever they are."""
    finite = [v for v in values if math.isfinite(v)] or [0.0]
    room = (max(finite) - min(finite)) or abs(max(finite)) * 0.05 or 1.0
    return min(finite) - 0.05 * room, max(finite) + 0.05 * room


def around(values: Sequence[float], ends: Sequence[float]) -> Place:
    """An axis for values and the ends of their intervals: all values fit, and of the ends what lies half as far out again.

    A 95 % interval from two seeds is 13 times as wide as they are apart; it is cut at the frame, with an arrow, not obeyed.
    """
    low, high = padded(values)
    room = (high - low) / 2
    return max(min([low, *ends]), low - room), min(max([high, *ends]), high + room)


def beyond(ends: Place, span: Place) -> list[tuple[float, int]]:
    """At which ends of an axis an interval goes on, and whether downwards (-1) or upwards (1) in its values."""
    return [(span[0], -1)] * (ends[0] < span[0]) + [(span[1], 1)] * (ends[1] > span[1])


def ticks(low: float, high: float, *, about: int = 5) -> list[float]:
    """The round numbers (1, 2 or 5 times a power of ten apart) inside a range."""
    rough = (high - low) / about or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first, final = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, final + 1)]


def number(value: float) -> str:
    """A tick's number, short."""
    return f"{value / 1000:,.0f}k" if abs(value) >= 10_000 else f"{value:.6g}"


def fitting(words: str, *, size: float, width: float = WIDTH) -> str:
    """As much of a text as fits into a width."""
    most = int(width / (LETTER * size))
    return words if len(words) <= most else f"{words[: most - 1]}…"


def head(title: str, note: str) -> list[str]:
    """Title and note, at the top of a plot."""
    return [
        text(0, 15, fitting(title, size=14.5), weight="bold"),
        text(0, 32, fitting(note, size=11.5), size=12, fill=FAINT),
    ]


def across(x: Callable[[float], float], values: Place, *, top: float, floor: float) -> list[str]:
    """Grid lines and numbers of a horizontal axis below `floor`."""
    parts = []
    for tick in ticks(*values):
        parts.append(line((x(tick), top), (x(tick), floor), GRID, width=1))
        parts.append(text(x(tick), floor + 16, number(tick), size=12, anchor="middle", fill=FAINT))
    return parts


def upward(y: Callable[[float], float], values: Place, *, left: float, right: float) -> list[str]:
    """Grid lines and numbers of a vertical axis left of `left`."""
    parts = []
    for tick in ticks(*values):
        parts.append(line((left, y(tick)), (right, y(tick)), GRID, width=1))
        parts.append(text(left - 5, y(tick) + 4, number(tick), size=12, anchor="end", fill=FAINT))
    return parts


def dot(x: float, y: float, color: str, *, radius: float = 3.8, opacity: float = 0.8) -> str:
    style = f'fill="{color}" fill-opacity="{opacity}" stroke="#fff" stroke-width=".8"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" {style}/>'


def ring(x: float, y: float, color: str, *, radius: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="none" stroke="{color}" stroke-width="1.5"/>'


def arrow(tip: Place, color: str, towards: Place) -> str:
    """A head that says: it goes on beyond the frame. `towards` is (-1, 0) for left, (0, -1) for up."""
    (x, y), (right, down) = tip, towards
    corners = [tip, *((x - 9 * right - 6 * side * down, y - 9 * down - 6 * side * right) for side in (1, -1))]
    return f'<polygon points="{_path(corners)}" fill="{color}"/>'


def line(start: Place, end: Place, color: str, *, width: float, opacity: float = 1, dash: str = "") -> str:
    place = f'x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"'
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line {place} stroke="{color}" stroke-width="{width}" stroke-opacity="{opacity}"{dashed}/>'


def rect(x: float, y: float, width: float, height: float, fill: str, *, opacity: float = 1) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}"'
    return f'<rect {place} fill="{fill}" fill-opacity="{opacity}"/>'


def area(points: Sequence[Place], color: str) -> str:
    """A filled polygon that lets through what lies behind it."""
    return f'<polygon points="{_path(points)}" fill="{color}" fill-opacity=".16"/>'


def path(points: Sequence[Place], color: str, *, dash: str = "", width: float = 1.7) -> str:
    """A line through points; a single one becomes a dot."""
    if len(points) == 1:
        return dot(*points[0], color)
    style = f'fill="none" stroke="{color}" stroke-width="{width}" stroke-opacity=".85"'
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{_path(points)}" {style}{dashed}/>'


def _path(points: Sequence[Place]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: float = 14,
    anchor: str = "start",
    fill: str = INK,
    weight: str = "normal",
    halo: bool = False,
) -> str:
    """halo: a white edge around the letters, which keeps them legible where lines pass beneath."""
    style = f'font-size="{size:g}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}"'
    edge = ' stroke="#fff" stroke-width="4" paint-order="stroke"' if halo else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}{edge}>{escape(words)}</text>'


def svg(height: float, title: str, parts: Sequence[str]) -> str:
    """The whole drawing. `title` is what a screen reader says."""
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}"'
    opening += f' viewBox="0 0 {WIDTH} {height:.0f}" role="img"'
    body = "\n".join(['<rect width="100%" height="100%" fill="#fff"/>', *parts])
    return f'{opening} aria-label="{escape(title)}" font-family="{FONT}">\n{body}\n</svg>\n'
