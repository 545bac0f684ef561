"""What layers cost, as a table on the terminal and as files: `attnlab bench`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from attnlab._util.colors import color_of
from attnlab.cli.printing import near, show
from attnlab.report.plots.curves import DASHES, Curve
from attnlab.report.plots.growth import growth_plot
from attnlab.report.table import Column, Line, Table, markdown

if TYPE_CHECKING:
    from attnlab.testing.benchmark.suite import Bench, Measured

MIB = 2**20
FIELDS = ("variant", "backend", "length", "round", "seconds", "saved_bytes", "peak_bytes", "reason")
PAGE = """\
# What a layer costs: {title}

One attention layer with its projections, forward and backward: batch {asked.batch}, width {asked.dim}, {asked.heads} heads,
position {asked.position}, {asked.precision}, options {options}. Each case has a process of its own; those of one length took
turns, {asked.rounds} rounds. Process settings: matmul_precision {asked.machine.matmul_precision}, reuse_memory
{asked.machine.reuse_memory}; "as shipped": highest and False, as PyTorch comes.

Measured on {device} ({threads} threads) with {versions}, by

    {command}

Every round is in [{csv}](<{csv}>).

{figures}

ms: median over rounds. Speed: how many times as fast as dense on its fastest backend at that length, and as dense as shipped
where that was measured: median (smallest to largest) of the ratios round by round. Saved: what autograd keeps for the backward
pass, parameters not counted. Peak: the most that a pass held beyond parameters and input.

The power of the length with which each cost grows, by least squares on logarithms:

{growth}

![time](<{time}>) ![saved bytes](<{saved}>)

Not measured:

{left_out}"""


def print_bench(asked: Bench, *, out: str | None, command: str) -> int:
    """Measure, print, and write `OUT.csv`, `OUT.md` and two plots.

    Args:
        out: default `reports/bench/NAMES`.
        command: what was typed, for the page.

    Returns:
        1 where nothing of a variant was measured for an error of its own, else 0.
    """
    from attnlab.testing.benchmark.suite import bench, broken

    found = bench(asked, report=_progress)
    for table in (figures(found), exponents(found)):
        show([column.heading for column in table.columns], [list(line.cells) for line in table.lines])
        print()
    for said in left_out(found):
        print(f"not measured: {said}")
    place = Path(out or f"reports/bench/{'-'.join(name.rpartition(':')[2] for name in asked.variants)}")
    write(place, found, asked=asked, command=command)
    print(f"written: {near(place)}.md, .csv, -time.svg, -saved.svg")
    return 1 if broken(found) else 0


def _progress(each: Measured) -> None:
    if sys.stderr.isatty():
        case, said = each.case, each.reason or f"{each.time * 1e3:.1f} ms"
        print(f"{case.label} {case.backend} at {case.length:,}: {said}", file=sys.stderr, flush=True)


def figures(found: Sequence[Measured]) -> Table:
    """A line for each case that was measured."""
    from attnlab.testing.benchmark.suite import SHIPPED, fastest_dense

    shipped = {each.case.length: each for each in found if each.case.label == SHIPPED}
    heads = [Column("variant", words=True), Column("backend", words=True), *map(Column, ("length", "ms", "speed"))]
    heads += [Column("speed over shipped")] if shipped else []
    lines = []
    for each in found:
        n = each.case.length
        if each.seconds:
            bases = [fastest_dense(found, n), *([shipped.get(n)] if shipped else [])]
            cells = [each.case.label, each.case.backend, f"{n:,}", f"{each.time * 1e3:.4g}", *(_speed(each, b) for b in bases)]
            cells += [f"{size / MIB:.4g}" for size in (each.saved_bytes, each.peak_bytes)]
            lines.append(Line(cells, color_of(each.case.label)))
    return Table([*heads, Column("saved MiB"), Column("peak MiB")], lines)


def _speed(each: Measured, base: Measured | None) -> str:
    from attnlab.testing.benchmark.suite import ratios

    if base is None or not base.seconds:
        return ""
    found = ratios(each, base)
    return f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def exponents(found: Sequence[Measured]) -> Table:
    """With which power of the length each variant's costs grow, by backend."""
    from attnlab.testing.benchmark.suite import growth

    lines = []
    for (label, backend), group in _groups(found).items():
        costs = ([each.time for each in group], [each.saved_bytes for each in group], [each.peak_bytes for each in group])
        if len(group) > 1:
            powers = [growth({each.case.length: c for each, c in zip(group, cost, strict=True)}) for cost in costs]
            lines.append(Line([label, backend, *(f"{power:.2f}" for power in powers)], color_of(label)))
    words = [Column("variant", words=True), Column("backend", words=True)]
    return Table([*words, Column("time grows with"), Column("saved"), Column("peak")], lines)


def left_out(found: Sequence[Measured]) -> list[str]:
    """What was not measured, at which lengths, and why."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for each in found:
        if each.reason:
            reasons.setdefault((each.case.label, each.case.backend, each.reason), []).append(f"{each.case.length:,}")
    return [f"{label} {backend} at {'; '.join(at)} ({why})" for (label, backend, why), at in reasons.items()]


def _groups(found: Sequence[Measured]) -> dict[tuple[str, str], list[Measured]]:
    """What was measured of each variant with each backend."""
    groups: dict[tuple[str, str], list[Measured]] = {}
    for each in found:
        if each.seconds:
            groups.setdefault((each.case.label, each.case.backend), []).append(each)
    return groups


def write(place: Path, found: Sequence[Measured], *, asked: Bench, command: str) -> None:
    """Write the page, the rounds as CSV and the plots beside each other; their names begin with `place`."""
    import torch

    from attnlab.tracking.tags import device_name, versions
    from attnlab.training.device import resolve_device

    place.parent.mkdir(parents=True, exist_ok=True)
    names = {kind: f"{place.name}{end}" for kind, end in (("csv", ".csv"), ("time", "-time.svg"), ("saved", "-saved.svg"))}
    device = resolve_device(asked.machine.device)
    _write_rounds(place.with_name(names["csv"]), found)
    for kind, svg in plots(found).items():
        place.with_name(names[kind]).write_text(svg)
    page = PAGE.format(
        title=", ".join(dict.fromkeys(each.case.label for each in found)),
        asked=asked,
        device=device_name(device),
        versions=versions(),
        command=command,
        threads=torch.get_num_threads(),
        options=dict(asked.options) or "as suits the length",
        figures=markdown(figures(found)),
        growth=markdown(exponents(found)),
        left_out="".join(f"- {said}\n" for said in left_out(found)) or "Nothing.\n",
        **names,
    )
    place.with_name(f"{place.name}.md").write_text(page)


def _write_rounds(path: Path, found: Sequence[Measured]) -> None:
    """A row a round; what was not measured has one row with its reason."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        for each in found:
            which, memory = (each.case.label, each.case.backend, each.case.length), (each.saved_bytes, each.peak_bytes)
            writer.writerows([*which, i, f"{s:.6g}", *memory, ""] for i, s in enumerate(each.seconds, 1))
            writer.writerows([[*which, "", "", "", "", each.reason]] if each.reason else [])


def plots(found: Sequence[Measured]) -> dict[str, str]:
    """The SVG of time, and of saved bytes, over length."""
    dashes = {backend: dash for backend, dash in zip(dict.fromkeys(each.case.backend for each in found), DASHES, strict=False)}

    def drawn(title: str, cost: Callable[[Measured], float]) -> str:
        lines = [
            Curve(f"{label} {backend}", color_of(label), [(each.case.length, cost(each)) for each in group], dashes[backend])
            for (label, backend), group in _groups(found).items()
        ]
        return growth_plot(lines, title=title, note="forward and backward of one layer; lower is better")

    return {
        "time": drawn("milliseconds over length", lambda each: each.time * 1e3),
        "saved": drawn("MiB saved for backward over length", lambda each: each.saved_bytes / MIB),
    }
