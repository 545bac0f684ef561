"""Plots of the benchmark, as SVG text."""

from collections.abc import Iterator
from statistics import median

import pandas as pd

from attnlab._util.colors import BUILT_IN
from attnlab.report.plots import svg
from attnlab.report.plots.seeds import SeedRow, seed_plot
from benchmarks.speed.profile import GROUPS
from benchmarks.speed.ratios import against, groups, medians, on

COLORS = list(BUILT_IN.values())
NOTE = "times as fast; one dot per round, the bar is the median"


def step(frame: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield (file, SVG) for each device and precision: attnlab's speed relative to each peer."""
    for (device, precision), some in groups(against(frame), "device", "precision"):
        yield f"step-{device}-{precision}.svg", _ratios(some, f"attnlab's training step, {precision}, {device}")


def xl(frame: pd.DataFrame) -> Iterator[tuple[str, str]]:
    for (device,), some in groups(against(frame), "device"):
        label = some["part"] + ", " + some["precision"]
        yield f"xl-{device}.svg", _ratios(some.assign(name=label), f"Transformer-XL against the original, {device}")


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
    """Return a plot with a row for each case and settings."""
    rows = []
    for i, ((name, settings), case) in enumerate(groups(some, "name", "settings")):
        values = {int(r): float(v) for r, v in zip(case["round"], case["ratio"], strict=True)}
        rows.append(SeedRow(f"{name}, {settings}", COLORS[i % len(COLORS)], values, median(values.values())))
    return seed_plot(rows, title=title, note=NOTE)


DRAWN = {"step": step, "xl": xl, "profile": profile}
