"""The page that `attnlab bench` writes: tables, every round as CSV, and plots over length.

The axes of a plot are logarithmic: a power law is a straight line, and its slope the exponent. With `--decode`, the costs are
the time of a token and what is kept between tokens.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from attnlab._util.colors import colors_of
from attnlab.extras.bench.suite import fastest_dense, fit_cost_exponent, speedups
from attnlab.report.plots import svg
from attnlab.report.plots.lines import BOTTOM, DASHES, LEFT, LENGTH_PADDING, TOP, WIDE_RIGHT, Curve, legend, length_axis
from attnlab.report.section import Column, Table, TableRow, to_markdown

if TYPE_CHECKING:
    from attnlab.extras.bench.suite import BenchConfig, BenchResult

KIB, MIB = 2**10, 2**20
MEMORY, DECODING = ("saved_bytes", "peak_bytes"), ("cached", "cache_bytes", "state_bytes")  # attributes of a result
PAGE = """\
# {kind}: {title}

One attention layer with its projections{passes}: batch {config.batch}, width {config.dim}, {config.heads} heads, position
{config.position}, {config.precision}, options {options}. {time_of}, median over {config.rounds} rounds in which the cases of
one length take turns, each in a process of its own. Speed: relative to dense with its fastest backend at that length, median
(smallest to largest) of the ratios, round by round. Columns: docs/how-to/measure.md.

Measured on {device} ({threads}) with {versions}, by

    {command}

Every round is in [{csv}](<{csv}>).

{costs}

Each cost grows with this power of the length, by least squares on logarithms:

{exponents}

{pictures}

Not measured:

{omissions}"""


def costs(results: Sequence[BenchResult], *, decode: bool = False) -> Table:
    """Return a line per measured case: time, speed relative to dense, saved and peak memory, and what decoding keeps."""
    keeps = any(result.decodes for result in results)
    headings = ["length", "ms/token" if decode else "ms", "speed"]
    headings += [*(() if decode else ("saved MiB", "peak MiB")), *(("cache KiB", "state KiB") if keeps else ())]
    lines, colors = [], colors_of(result.case.label for result in results)
    for result in results:
        if result.seconds:
            case = result.case
            sizes = [] if decode else [f"{size / MIB:.4g}" for size in (result.saved_bytes, result.peak_bytes)]
            sizes += kept_sizes(result) if keeps else []
            speed = format_speed(result, fastest_dense(results, case.length))
            cells = [case.label, case.backend, f"{case.length:,}", f"{result.time * 1e3:.4g}", speed, *sizes]
            lines.append(TableRow(cells, colors[case.label]))
    return Table([Column("variant", is_text=True), Column("backend", is_text=True), *map(Column, headings)], lines)


def kept_sizes(result: BenchResult) -> list[str]:
    """Return the cells on what decoding keeps of a sequence."""
    return [f"{size / KIB:,.4g}" for size in (result.cache_bytes, result.state_bytes)] if result.cached else ["no", ""]


def format_speed(result: BenchResult, base: BenchResult | None) -> str:
    if base is None or not base.seconds:
        return ""
    speeds = speedups(result, base)
    return f"{median(speeds):.2f} ({min(speeds):.2f} to {max(speeds):.2f})"


def exponents(results: Sequence[BenchResult], *, decode: bool = False) -> Table:
    """Return the power of the length with which each variant's costs grow, by backend."""
    lines, colors = [], colors_of(result.case.label for result in results)
    for (label, backend), group in grouped(results).items():
        if len(group) > 1:
            sizes = [{result.case.length: result.time for result in group}]
            if decode:
                sizes.append({result.case.length: result.cache_bytes + result.state_bytes for result in group if result.cached})
            else:
                sizes.append({result.case.length: result.saved_bytes for result in group})
                sizes.append({result.case.length: result.peak_bytes for result in group})
            powers = [f"{fit_cost_exponent(by_length):.2f}" if any(by_length.values()) else "" for by_length in sizes]
            lines.append(TableRow([label, backend, *powers], colors[label]))
    headings = ("time exponent", *(("cache and state",) if decode else ("saved", "peak")))
    return Table([Column("variant", is_text=True), Column("backend", is_text=True), *map(Column, headings)], lines)


def omissions(results: Sequence[BenchResult]) -> list[str]:
    """Return a line per variant, backend and reason for the cases without a measurement, with their lengths."""
    lengths: dict[tuple[str, str, str], list[str]] = {}
    for result in results:
        if result.reason:
            lengths.setdefault((result.case.label, result.case.backend, result.reason), []).append(f"{result.case.length:,}")
    return [f"{label} {backend} at {'; '.join(at)} ({reason})" for (label, backend, reason), at in lengths.items()]


def grouped(results: Sequence[BenchResult]) -> dict[tuple[str, str], list[BenchResult]]:
    """Return the measured cases by variant and backend."""
    groups: dict[tuple[str, str], list[BenchResult]] = {}
    for result in results:
        if result.seconds:
            groups.setdefault((result.case.label, result.case.backend), []).append(result)
    return groups


def write(path: Path, results: Sequence[BenchResult], *, config: BenchConfig, command: str) -> list[str]:
    """Write the page, the rounds as CSV, and the plots; return the suffixes of the files.

    Args:
        path: of the files, without their suffixes.
        command: the command line, for the page.
    """
    import torch

    from attnlab.tracking.tags import device_name, versions
    from attnlab.training.device import resolve_device

    path.parent.mkdir(parents=True, exist_ok=True)
    pictures = {f"-{kind}.svg": picture for kind, picture in plots(results, decode=config.decode).items()}
    write_rounds(path.with_name(f"{path.name}.csv"), results)
    for suffix, picture in pictures.items():
        path.with_name(f"{path.name}{suffix}").write_text(picture, encoding="utf-8")
    threads = config.machine.threads or torch.get_num_threads()
    page = PAGE.format(
        kind="Decoding" if config.decode else "Cost of a layer",
        title=", ".join(dict.fromkeys(result.case.label for result in results)),
        passes=", decoding a token" if config.decode else ", forward and backward",
        config=config,
        options=dict(config.options) or "recommended for the length",
        time_of="CPU time of the process" if config.cpu_time else "Time",
        device=device_name(resolve_device(config.machine.device)),
        threads="1 thread" if threads == 1 else f"{threads} threads",
        versions=versions(),
        command=command,
        csv=f"{path.name}.csv",
        costs=to_markdown(costs(results, decode=config.decode)),
        exponents=to_markdown(exponents(results, decode=config.decode)),
        pictures=" ".join(f"![{suffix[1:-4]}](<{path.name}{suffix}>)" for suffix in pictures),
        omissions="".join(f"- {omission}\n" for omission in omissions(results)) or "Nothing.\n",
    )
    path.with_name(f"{path.name}.md").write_text(page, encoding="utf-8")
    return [".md", ".csv", *pictures]


def write_rounds(path: Path, results: Sequence[BenchResult]) -> None:
    """Write a row per round; a case without a measurement has one row with its reason."""
    figures = [*MEMORY, *(DECODING if any(result.decodes for result in results) else ())]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["variant", "backend", "length", "round", "seconds", *figures, "reason"])
        for result in results:
            case = [result.case.label, result.case.backend, result.case.length]
            sizes = [getattr(result, name) for name in figures]
            writer.writerows([*case, i, f"{seconds:.6g}", *sizes, ""] for i, seconds in enumerate(result.seconds, 1))
            if result.reason:
                writer.writerow([*case, "", "", *[""] * len(figures), result.reason])


def plots(results: Sequence[BenchResult], *, decode: bool = False) -> dict[str, str]:
    """Return the SVG plots of time and of saved bytes over length; when decoding, of the time of a token."""
    colors = colors_of(result.case.label for result in results)
    dashes = dict(zip(dict.fromkeys(result.case.backend for result in results), DASHES, strict=False))

    def plot(title: str, cost: Callable[[BenchResult], float]) -> str:
        lines = [
            Curve(
                f"{label} {backend}{' (no cache)' if decode and not group[0].cached else ''}",
                colors[label],
                [(result.case.length, cost(result)) for result in group],
                dashes[backend],
            )
            for (label, backend), group in grouped(results).items()
        ]
        note = "decoding" if decode else "forward and backward"
        return growth_plot(lines, title=title, note=f"{note} of one layer; lower is better")

    if decode:
        return {"time": plot("milliseconds a token over length", lambda result: result.time * 1e3)}
    return {
        "time": plot("milliseconds over length", lambda result: result.time * 1e3),
        "saved": plot("MiB saved for backward over length", lambda result: result.saved_bytes / MIB),
    }


def growth_plot(curves: Sequence[Curve], *, title: str, note: str = "") -> str:
    """Draw each curve through its (length, cost) points, all above 0; a curve without points is only in the legend."""
    points = [point for curve in curves for point in curve.points]
    if not points:
        return svg.document(TOP, title, svg.header(title, "no data"))
    lengths = sorted({int(length) for length, _ in points})
    length_limits = math.log(lengths[0]), math.log(lengths[-1])
    limits = svg.padded_limits([math.log(cost) for _, cost in points])
    x, y = svg.scale(length_limits, (LEFT + LENGTH_PADDING, WIDE_RIGHT - LENGTH_PADDING)), svg.scale(limits, (BOTTOM, TOP))
    parts = [*svg.header(title, note), *_logarithmic_y_axis(y, limits), *length_axis(lengths, x)]
    for curve in curves:
        places = [(x(math.log(length)), y(math.log(cost))) for length, cost in curve.points]
        parts += [svg.polyline(places, curve.color, dash=curve.dash)] if places else []
        parts += [svg.dot(*place, curve.color, radius=3) for place in places]
    entries, height = legend([(curve.label, curve.color, curve.dash) for curve in curves], BOTTOM + 56)
    return svg.document(BOTTOM + 50 + height, title, [*parts, *entries])


def _logarithmic_y_axis(y: Callable[[float], float], limits: svg.Limits) -> list[str]:
    """Return grid lines at powers of ten, and at 2 and 5 times them if there are few."""
    low, high = (math.exp(end) for end in limits)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    tens = [10.0**p for p in powers if low <= 10.0**p <= high]
    ticks = tens if len(tens) > 3 else [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
    parts = []
    for tick in ticks:
        height = y(math.log(tick))
        parts.append(svg.line((LEFT, height), (WIDE_RIGHT, height), svg.GRID, width=1))
        parts.append(svg.text(LEFT - 5, height + 4, svg.tick_label(tick), size=12, anchor="end", fill=svg.FAINT))
    return parts
