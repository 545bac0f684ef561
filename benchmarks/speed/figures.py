"""Plots of the benchmark, as SVG text."""

from collections.abc import Iterator, Sequence
from statistics import median

import pandas as pd

from attnlab._util.colors import PALETTE
from attnlab.report.plots import svg
from benchmarks.speed.comparisons import SPEEDS, Measured
from benchmarks.speed.profile import GROUPS
from benchmarks.speed.ratio_plot import ratio_plot
from benchmarks.speed.ratios import against, groups, medians, on

COLORS = (PALETTE[0], PALETTE[13], *PALETTE[1:13])


def overview(figures: Measured, devices: Sequence[str]) -> str:
    """Return a plot of ``SPEEDS``: attnlab against the fastest peer of each comparison, on each device."""
    rows: dict[str, dict[str, list[float]]] = {}
    for comparison in SPEEDS:
        for device in devices:
            if values := figures[comparison, device].values:
                rows.setdefault(comparison.what, {})[device] = values
    return ratio_plot(rows, title="attnlab against the fastest peer")


def step(frame: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield (file, SVG) for each precision: attnlab's speed relative to each peer."""
    for (precision,), some in groups(against(frame), "precision"):
        label = some["name"] + ", " + some["settings"]
        yield f"step-{precision}.svg", _ratios(some.assign(label=label), f"attnlab's training step, {precision}")


def xl(frame: pd.DataFrame) -> Iterator[tuple[str, str]]:
    some = against(frame)
    if len(some):
        label = some["part"] + ", " + some["precision"] + ", " + some["settings"]
        yield "xl.svg", _ratios(some.assign(label=label), "Transformer-XL against the original")


def profile(frame: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield a plot with a bar for each device and precision, divided into groups of operations."""
    every = medians(on(frame, quantity="group_ms").assign(name=lambda f: f["item"]), "group_ms")
    bars = list(groups(every, "device", "precision"))
    colors = dict(zip(GROUPS, COLORS[1:], strict=False))
    height, top = 44, 44
    parts = svg.header("attnlab's training step", "share of its time, forward and backward")
    for i, ((device, precision), some) in enumerate(bars):
        y, at = top + height * i, 0.0
        parts.append(svg.text(0, y + 12, f"{precision}, {device}", size=13))
        values = {group: median(on(some, name=group)["value"].tolist()) for group in GROUPS}
        for group in GROUPS:
            width = svg.WIDTH * values[group] / sum(values.values())
            parts.append(svg.rect(at, y + 18, width, 18, colors[group], opacity=0.8))
            at += width
    floor = top + height * len(bars) + 8
    for i, group in enumerate(GROUPS):
        x, y = (i % 2) * svg.WIDTH / 2, floor + 20 * (i // 2)
        parts += [svg.rect(x, y, 14, 12, colors[group], opacity=0.8), svg.text(x + 20, y + 11, group, size=12.5)]
    yield "profile.svg", svg.document(floor + 20 * ((len(GROUPS) + 1) // 2) + 4, "share of a training step's time", parts)


def _ratios(some: pd.DataFrame, title: str) -> str:
    """Return a plot with a row for each ``label``."""
    rows: dict[str, dict[str, list[float]]] = {}
    for (label, device), ratios in groups(some, "label", "device"):
        rows.setdefault(label, {})[device] = ratios["ratio"].tolist()
    return ratio_plot(rows, title=title)


DRAWN = {"step": step, "xl": xl, "profile": profile}
