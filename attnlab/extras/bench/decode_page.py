"""The page that `attnlab bench --decode` writes: tables, every round as CSV, and a plot over length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab._util.colors import color_of
from attnlab.extras.bench.page import DECODING, KEPT, format_speed, grouped, growth_plot, kept_sizes, page_fields, write_rounds
from attnlab.extras.bench.suite import fastest_dense, fit_cost_exponent
from attnlab.report.plots.curves import DASHES, Curve
from attnlab.report.table import Column, Table, TableRow, to_markdown

if TYPE_CHECKING:
    from attnlab.extras.bench.suite import BenchConfig, BenchResult

PAGE = """\
# Decoding: {title}

One attention layer with its projections in the causal role, without gradients: batch {config.batch}, width {config.dim},
{config.heads} heads, position {config.position}, {config.precision}, options {options}. Each case has its own process; the
cases of one length take turns, for {config.rounds} rounds, after a warm-up. Process settings: matmul_precision
{config.machine.matmul_precision}, reuse_memory {config.machine.reuse_memory}.

Measured on {device} ({threads}) with {versions}, by

    {command}

Every round is in [{csv}](<{csv}>).

{costs}

ms/token: median over rounds of the {time_of} for one token of each sequence, averaged over the last eighth of the length, after
the earlier positions were read in one call. Speed: relative to dense with its fastest backend at that length: median (smallest
to largest) of the ratios, round by round. Cache: the keys and values that the layer keeps of one sequence, which grow with its
length or up to a window. State: the recurrent states that it keeps, which do not grow. Cache "no": the variant declares no
cache, and each token takes a forward pass over the whole sequence.

Each cost grows with this power of the length, by least squares on logarithms:

{exponents}

![time](<{time}>)

Not measured:

{omissions}"""


def costs(results: Sequence[BenchResult]) -> Table:
    """Return a line per measured case: time of a token, speed relative to dense, and the bytes that are kept."""
    headings = ("length", "ms/token", "speed", *KEPT)
    columns = [Column("variant", is_text=True), Column("backend", is_text=True), *map(Column, headings)]
    rows = []
    for result in results:
        if result.seconds:
            case = result.case
            speed = format_speed(result, fastest_dense(results, case.length))
            cells = [case.label, case.backend, f"{case.length:,}", f"{result.time * 1e3:.4g}", speed, *kept_sizes(result)]
            rows.append(TableRow(cells, color_of(case.label)))
    return Table(columns, rows)


def exponents(results: Sequence[BenchResult]) -> Table:
    """Return the power of the length with which the time of a token and the bytes that are kept grow, by backend."""
    rows = []
    for (label, backend), group in grouped(results).items():
        if len(group) > 1:
            times = {result.case.length: result.time for result in group}
            kept = {result.case.length: result.cache_bytes + result.state_bytes for result in group if result.cached}
            powers = [f"{fit_cost_exponent(times):.2f}", f"{fit_cost_exponent(kept):.2f}" if any(kept.values()) else ""]
            rows.append(TableRow([label, backend, *powers], color_of(label)))
    columns = [Column("variant", is_text=True), Column("backend", is_text=True)]
    return Table([*columns, Column("time exponent"), Column("cache and state")], rows)


def write(path: Path, results: Sequence[BenchResult], *, config: BenchConfig, command: str) -> list[str]:
    """Write the page, the rounds as CSV, and the plot; return the suffixes of the files.

    Args:
        path: of the files, without their suffixes.
        command: the command line, for the page.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    names = {"csv": f"{path.name}.csv", "time": f"{path.name}-time.svg"}
    write_rounds(path.with_name(names["csv"]), results, DECODING)
    path.with_name(names["time"]).write_text(plot(results), encoding="utf-8")
    page = PAGE.format(
        **page_fields(results, config, command),
        costs=to_markdown(costs(results)),
        exponents=to_markdown(exponents(results)),
        **names,
    )
    path.with_name(f"{path.name}.md").write_text(page, encoding="utf-8")
    return [".md", ".csv", "-time.svg"]


def plot(results: Sequence[BenchResult]) -> str:
    """Return the SVG plot of the time of a token over length."""
    dashes = dict(zip(dict.fromkeys(result.case.backend for result in results), DASHES, strict=False))
    curves = [
        Curve(
            f"{label} {backend}{'' if group[0].cached else ' (no cache)'}",
            color_of(label),
            [(result.case.length, result.time * 1e3) for result in group],
            dashes[backend],
        )
        for (label, backend), group in grouped(results).items()
    ]
    return growth_plot(curves, title="milliseconds a token over length", note="decoding of one layer; lower is better")
