"""Plots of simulated shares: a row for each setting with its Monte-Carlo interval, and an overview of all simulations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from attnlab.report.plots import svg
from benchmarks.simulation import Kind, Quantity

PROMISED, EXCEEDED = "#1B74A8", "#C2410C"
LABELS, RIGHT, TOP = 178, svg.WIDTH - 10, 52
ROW_HEIGHT, GROUP_HEIGHT = 15, 19
LOWEST = 0.005  # left end of the logarithmic axis of false verdicts
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
ERRORS = 1.96  # Monte-Carlo standard errors on each side: 95 %


@dataclass(frozen=True)
class Dot:
    """A simulated share: its name, value and Monte-Carlo standard error, and whether a limit is promised and exceeded."""

    label: str
    value: float
    error: float
    is_promised: bool = True
    is_exceeded: bool = False


def share_plot(groups: Mapping[str, Sequence[Dot]], quantity: Quantity, *, title: str) -> str:
    """Draw one quantity of a simulation, a row for each setting, with its level and its limit as vertical lines.

    Args:
        groups: Group -> its settings. The name of a group stands above them, unless there is only one group.
        quantity: The quantity.
        title: Text above the plot.
    """
    headings = len(groups) > 1
    dots = [dot for group in groups.values() for dot in group]
    x, ticks = _axis(quantity, dots)
    bottom = TOP + len(groups) * GROUP_HEIGHT * headings + len(dots) * ROW_HEIGHT
    parts = svg.header(title, _note(dots))
    parts += _lines(x, ticks, quantity, bottom)
    y = float(TOP)
    for group, members in groups.items():
        if headings:
            y += GROUP_HEIGHT
            parts.append(svg.text(0, y - 5, svg.truncate(group, size=12), size=12, weight="bold", halo=True))
        for dot in members:
            y += ROW_HEIGHT
            parts.append(svg.text(10 * headings, y - 4, svg.truncate(dot.label, size=11, width=LABELS - 14), size=11))
            parts += _mark(dot, x, y - 8)
    return svg.document(bottom + 26, title, parts)


def overview_plot(rows: Mapping[str, Sequence[Dot]], quantity: Quantity, *, title: str) -> str:
    """Draw the false verdicts of all simulations, a row for each simulation and a dot for each setting."""
    height = 22
    bottom = TOP + height * len(rows)
    x, ticks = _axis(quantity, [])
    parts = svg.header(title, _note([dot for dots in rows.values() for dot in dots]))
    parts += _lines(x, ticks, quantity, bottom)
    for i, (label, dots) in enumerate(rows.items()):
        y = TOP + height * i + height / 2
        parts.append(svg.text(0, y + 4, svg.truncate(label, size=12, width=LABELS), size=12))
        for dot in sorted(dots, key=lambda dot: dot.is_promised):
            parts += _mark(dot, x, y, interval=False)
    return svg.document(bottom + 26, title, parts)


def _axis(quantity: Quantity, dots: Sequence[Dot]) -> tuple[Callable[[float], float], list[float]]:
    """Return the map from shares to horizontal positions, and the ticks; that of false verdicts is logarithmic."""
    if quantity.kind is Kind.FALSE:
        log = svg.scale((math.log(LOWEST), 0.0), (LABELS, RIGHT))
        return lambda share: log(math.log(min(1.0, max(LOWEST, share)))), list(TICKS)
    least = min([dot.value for dot in dots] + [line for line in (quantity.level, quantity.limit) if line is not None])
    low = 0.0 if quantity.kind is Kind.POWER else min(0.9, math.floor(10 * least) / 10)
    linear = svg.scale((low, 1.0), (LABELS, RIGHT))
    return lambda share: linear(min(1.0, max(low, share))), svg.ticks(low, 1.0)


def _lines(x: Callable[[float], float], ticks: Sequence[float], quantity: Quantity, bottom: float) -> list[str]:
    """Return the grid, the tick labels in percent, and the level (solid) and limit (dashed) of the quantity."""
    parts = []
    for tick in ticks:
        parts.append(svg.line((x(tick), TOP - 4), (x(tick), bottom), svg.GRID, width=1))
        parts.append(svg.text(x(tick), bottom + 16, f"{100 * tick:g}", size=11.5, anchor="middle", fill=svg.FAINT))
    parts.append(svg.text(LABELS - 12, bottom + 16, "%", size=11.5, anchor="end", fill=svg.FAINT))
    for share, dash in ((quantity.level, ""), (quantity.limit, "4 3")):
        if share is not None and not (dash and share == quantity.level):
            parts.append(svg.line((x(share), TOP - 4), (x(share), bottom), svg.INK, width=1.2, dash=dash))
    return parts


def _mark(dot: Dot, x: Callable[[float], float], y: float, *, interval: bool = True) -> list[str]:
    color = EXCEEDED if dot.is_exceeded else PROMISED if dot.is_promised else svg.RULE
    ends = [x(dot.value + side * ERRORS * dot.error) for side in (-1, 1)]
    parts = [svg.line((ends[0], y), (ends[1], y), color, width=1.6)] if interval else []
    if dot.is_promised:
        return [*parts, svg.dot(x(dot.value), y, color, radius=3.6)]
    return [*parts, svg.ring(x(dot.value), y, color, radius=3.1)]


def _note(dots: Sequence[Dot]) -> str:
    """Explain the marks that the plot has."""
    texts = ["dots: a limit is promised"] if any(dot.is_promised for dot in dots) else []
    texts += ["rings: not promised"] if not all(dot.is_promised for dot in dots) else []
    texts += ["red: exceeded"] if any(dot.is_exceeded for dot in dots) else []
    return "; ".join(texts)
