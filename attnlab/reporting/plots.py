"""Two plots as SVG text: one dot a seed, and learning curves.

Written by hand so that a report is a page of its own: no script, no font to fetch, sharp at any size. Both
are drawn 420 units wide with labels above their rows, so that a phone shows them at full width with readable
text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 420
INK, FAINT, GRID = "#222222", "#666666", "#DDDDDD"
DASHES = ("", "7 4", "2 3", "9 3 2 3", "12 4", "4 2 1 2")
FONT = "system-ui, -apple-system, Segoe UI, DejaVu Sans, sans-serif"


@dataclass(frozen=True)
class Dots:
    """One row of a dot plot: every seed's value, the mean, and the 95 % interval where there is one."""

    label: str
    color: str
    values: Sequence[float]
    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Curve:
    """One run's curve: (step, value) in order of step."""

    label: str
    color: str
    points: Sequence[tuple[float, float]]
    dash: str = ""


def dots(rows: Sequence[Dots], *, title: str, note: str = "") -> str:
    """Draw one row a cell on a common axis. `note` says which direction is good, or the unit."""
    row, top, bottom = 42, 44, 26
    floor = top + row * len(rows)
    low, high = _dot_range(rows)
    x = _scale((low, high), (14, WIDTH - 14))
    parts = _head(title, note)
    for tick in _ticks(low, high):
        parts.append(_line((x(tick), top), (x(tick), floor), GRID, width=1))
        parts.append(_text(x(tick), floor + 16, _number(tick), size=12, anchor="middle", fill=FAINT))
    for i, r in enumerate(rows):
        y = top + row * i + 28
        parts.append(_text(0, y - 12, r.label, size=13))
        if r.low is not None and r.high is not None:
            ends = (x(max(r.low, low)), y), (x(min(r.high, high)), y)
            parts.append(_line(*ends, r.color, width=4, opacity=0.3))
        parts.append(_line((x(r.mean), y - 8), (x(r.mean), y + 8), r.color, width=2.5))
        parts += [_dot(x(value), y, r.color) for value in r.values]
    return _svg(floor + bottom, title, parts)


def curves(
    lines: Sequence[Curve],
    *,
    title: str,
    note: str = "",
    name: str = "curves",
    span: tuple[float, float] | None = None,
) -> str:
    """Draw curves over steps with a legend below, one entry a label.

    The vertical axis is `span`, else fitted to these lines by `late_span`; what lies outside is cut. `name`
    makes the clip path unique within a page.
    """
    labels = list(dict.fromkeys((c.label, c.color, c.dash) for c in lines))
    left, right, top, floor = 46, WIDTH - 14, 44, 274
    last = max((step for c in lines for step, _ in c.points), default=1)
    low, high = span or late_span(lines)
    x, y = _scale((0, last), (left, right)), _scale((low, high), (floor, top))
    parts = _head(title, note)
    for tick in _ticks(low, high):
        parts.append(_line((left, y(tick)), (right, y(tick)), GRID, width=1))
        parts.append(_text(left - 5, y(tick) + 4, _number(tick), size=12, anchor="end", fill=FAINT))
    for tick in _ticks(0, last):
        parts.append(_text(x(tick), floor + 16, _number(tick), size=12, anchor="middle", fill=FAINT))
    parts.append(_text((left + right) / 2, floor + 31, "step", size=12, anchor="middle", fill=FAINT))
    frame = f'<rect x="{left}" y="{top}" width="{WIDTH - left}" height="{floor - top}"/>'
    parts.append(f'<clipPath id="{name}">{frame}</clipPath><g clip-path="url(#{name})">')
    parts += [_curve([(x(step), y(v)) for step, v in c.points], c.color, dash=c.dash) for c in lines]
    parts.append("</g>")
    return _svg(floor + 44 + _legend(labels, floor + 50, parts), title, parts)


def late_span(lines: Sequence[Curve]) -> tuple[float, float]:
    """Fit a vertical axis to what comes after the first quarter: the start is far from all that follows."""
    last = max((step for c in lines for step, _ in c.points), default=1)
    late = [v for c in lines for step, v in c.points if step >= last / 4]
    return _padded(late or [v for c in lines for _, v in c.points])


def _legend(labels: Sequence[tuple[str, str, str]], top: float, parts: list[str]) -> float:
    """Add the legend to `parts`, in two columns where the labels are short, and return its height."""
    columns = 2 if max((len(label) for label, _, _ in labels), default=0) <= 24 else 1
    for i, (label, color, dash) in enumerate(labels):
        left, y = (i % columns) * WIDTH / 2, top + 19 * (i // columns)
        parts.append(_curve([(left, y), (left + 24, y)], color, dash=dash, width=2.5))
        parts.append(_text(left + 30, y + 4, label, size=12.5))
    return 19 * math.ceil(len(labels) / columns)


def _dot_range(rows: Sequence[Dots]) -> tuple[float, float]:
    """Choose the axis: all dots fit, and of the intervals at most as much again on either side.

    A 95 % interval from two seeds is 13 times as wide as they are apart; it is cut at the frame, not obeyed.
    """
    low, high = _padded([v for r in rows for v in r.values])
    ends = [v for r in rows for v in (r.low, r.high) if v is not None]
    room = high - low
    return max(min([low, *ends]), low - room / 2), min(max([high, *ends]), high + room / 2)


def _padded(values: Sequence[float]) -> tuple[float, float]:
    finite = [v for v in values if math.isfinite(v)] or [0.0]
    room = (max(finite) - min(finite)) or abs(max(finite)) * 0.05 or 1.0
    return min(finite) - 0.05 * room, max(finite) + 0.05 * room


def _scale(values: tuple[float, float], places: tuple[float, float]) -> Callable[[float], float]:
    (low, high), (start, end) = values, places
    return lambda v: start + (v - low) / ((high - low) or 1.0) * (end - start)


def _ticks(low: float, high: float, *, about: int = 5) -> list[float]:
    """Return the round numbers (1, 2 or 5 times a power of ten apart) inside the range."""
    rough = (high - low) / about or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first, final = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, final + 1)]


def _number(value: float) -> str:
    return f"{value / 1000:,.0f}k" if abs(value) >= 10_000 else f"{value:.6g}"


def _head(title: str, note: str) -> list[str]:
    return [_text(0, 15, title, weight="bold"), _text(0, 32, note, size=12, fill=FAINT)]


def _dot(x: float, y: float, color: str, *, radius: float = 3.8) -> str:
    style = f'fill="{color}" fill-opacity=".8" stroke="#fff" stroke-width=".8"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" {style}/>'


def _line(
    start: tuple[float, float], end: tuple[float, float], color: str, *, width: float, opacity: float = 1
) -> str:
    place = f'x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"'
    return f'<line {place} stroke="{color}" stroke-width="{width}" stroke-opacity="{opacity}"/>'


def _curve(points: Sequence[tuple[float, float]], color: str, *, dash: str = "", width: float = 1.7) -> str:
    if len(points) == 1:
        return _dot(*points[0], color)
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    style = f'fill="none" stroke="{color}" stroke-width="{width}" stroke-opacity=".85"'
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{path}" {style}{dashed}/>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: float = 14,
    anchor: str = "start",
    fill: str = INK,
    weight: str = "normal",
) -> str:
    style = f'font-size="{size}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}"'
    head += f' viewBox="0 0 {WIDTH} {height:.0f}" role="img"'
    body = "\n".join(['<rect width="100%" height="100%" fill="#fff"/>', *parts])
    return f'{head} aria-label="{escape(title)}" font-family="{FONT}">\n{body}\n</svg>\n'
