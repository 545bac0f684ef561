"""The columns of a paper's tables: verdicts, and the compute of each cell; and its appendix.

The appendix has the hyper-parameters of every cell, compute, and the tables of the page's other sections.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnlab._util.cost_metrics import CostMetric, shown_in, significant
from attnlab._util.run_state import RunState
from attnlab.extras.paper.tabular import (
    MISSING,
    PaperColumn,
    best_cells,
    bold,
    breakable,
    decimals,
    escape,
    long_table,
    mark,
    number,
    text_table,
)
from attnlab.report.methods import ENVIRONMENT, SECTIONS, SINGLE_FIELDS, total_seconds, values_text
from attnlab.report.notes import plot_label
from attnlab.report.page import Page
from attnlab.report.section import Column, Table, TableRow
from attnlab.report.verdicts import present_costs, training_pflop
from attnlab.report.wording import SIMULTANEOUS_MARK, consistent
from attnlab.stats.compare import CellSummary, ComparisonSpec, cell_of, comparisons
from attnlab.stats.paired import Difference, Interval
from attnlab.stats.verdict import p_of_verdict
from attnlab.tracking.artifacts import ReferenceScore

ELSEWHERE = ("Learning curves", "Costs", "Methods")  # sections that other parts of the paper have
OF_PROGRAMS = ("values", "env", "files")  # sections of the columns of a study of a program
SECONDS_PER_HOUR = 3600


def verdict_columns(
    cells: Sequence[CellSummary], spec: ComparisonSpec, scores: Mapping[str, ReferenceScore]
) -> tuple[list[PaperColumn], list[int]]:
    """Return the columns of the main table, and the number of the row before which the reference scores begin.

    Args:
        cells: In the report's order; each further comparison has a row.
        spec: The comparison that the study makes.
        scores: Label -> reference score.
    """
    rows = [(comparison, comparison is cell) for cell in cells for comparison in comparisons([cell])]
    every, empty = comparisons(cells), [MISSING] * len(scores)
    compared = any(cell.baseline for cell in every)
    bolds = best_cells(cells, direction=spec.estimator.value_direction)
    names = [breakable(_row_label(cell, spec)) if first else "" for cell, first in rows]
    columns = [PaperColumn("cell", [*names, *map(escape, scores)], is_number=False)]
    values = [(cell.estimate or cell.value) if first else None for cell, first in rows]
    states = [
        spec.estimator.format(cell) if first and interval is None else ""
        for (cell, first), interval in zip(rows, values, strict=True)
    ]
    digits = decimals([*[interval.half_width for interval in values if interval]])
    texts = _interval_cells(values, digits, states=states)
    texts = [bold(text) if first and cell.name in bolds else text for (cell, first), text in zip(rows, texts, strict=True)]
    heading = spec.estimator.words.heading.replace("_", " ")
    columns.append(PaperColumn(heading, [*texts, *(number(score.value, digits) for score in scores.values())]))
    columns += _exact_ends("95 % interval", values, len(scores))
    seeds = [str(cell.seeds) if first and cell.seeds else MISSING for cell, first in rows]
    columns.append(PaperColumn("seeds", [*seeds, *empty]))
    if any(cell.further for cell in cells):
        against = [breakable(cell.baseline) for cell, _ in rows]
        columns.append(PaperColumn("compared with", [*against, *[""] * len(scores)], is_number=False))
    if compared:
        columns += _difference_columns([cell.difference for cell, _ in rows], rest=len(scores))
        marks = [mark(cell.verdict) for cell, _ in rows]
        columns.append(PaperColumn("verdict", [*marks, *[""] * len(scores)]))
    for metric in present_costs(cells, shown_in("verdict table")):
        costs = [_cost(cell, metric) if first else MISSING for cell, first in rows]
        columns.append(_cost_column(metric, [*costs, *empty]))
    return columns, [len(rows)] if scores else []


def _row_label(cell: CellSummary, spec: ComparisonSpec) -> str:
    return f"{cell.name} (baseline)" if cell.is_baseline else plot_label(cell, spec)


def _interval_cells(
    intervals: Sequence[Interval | None], digits: int, *, sign: bool = False, states: Sequence[str] = ()
) -> list[str]:
    """Return numbers with half widths; a state where there is no number."""
    words = states or [""] * len(intervals)
    return [
        (f"{{{escape(state)}}}" if state else MISSING)
        if interval is None
        else number(interval.mean, digits, half_width=interval.half_width, sign=sign)
        for interval, state in zip(intervals, words, strict=True)
    ]


def _exact_ends(heading: str, intervals: Sequence[Interval | None], rest: int) -> list[PaperColumn]:
    """Return a column of the ends of exact intervals, which lie at different distances; none if there are no exact ones."""
    if not any(interval and interval.is_exact for interval in intervals):
        return []
    known = [i for i in intervals if i and i.low is not None]
    digits = decimals([i.high - i.low for i in known if i.low is not None and i.high is not None])
    cells = [
        f"[{_end(i.low, digits)}, {_end(i.high, digits)}]" if i and i.low is not None and i.high is not None else "--"
        for i in intervals
    ]
    return [PaperColumn(heading, [*cells, *["--"] * rest], is_number=False)]


def _end(value: float, digits: int) -> str:
    return escape(number(value, digits).replace("-", "−")) if math.isfinite(value) else number(value, digits)


def _difference_columns(differences: Sequence[Difference | None], *, rest: int = 0) -> list[PaperColumn]:
    """Return the columns of differences, with the intervals that agree with the verdicts, and of the corrected p-values."""
    shown = [consistent(difference) if difference else None for difference in differences]
    intervals = [difference.interval if difference else None for difference in shown]
    digits = decimals([interval.half_width for interval in intervals if interval])
    texts = _interval_cells(intervals, digits, sign=True)
    columns = [PaperColumn("difference", [*texts, *[MISSING] * rest])]
    columns += _exact_ends("interval", intervals, rest)
    marks = [escape(SIMULTANEOUS_MARK) if a is not b else "" for a, b in zip(shown, differences, strict=True)]
    columns += [PaperColumn("", [*marks, *[""] * rest], is_number=False)] if any(marks) else []
    p_values = [_p_cell(p_of_verdict(difference)) for difference in differences]
    tested = [PaperColumn("p (Holm)", [*p_values, *[MISSING] * rest])] if {*p_values} - {MISSING} else []
    return [*columns, *tested]


def _p_cell(p: float | None) -> str:
    return MISSING if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _cost(cell: CellSummary, metric: CostMetric) -> str:
    return metric.format(cell.costs[metric.name].mean).replace(",", "") if metric.name in cell.costs else MISSING


def _cost_column(metric: CostMetric, cells: Sequence[str]) -> PaperColumn:
    """Return the column of a cost, with its unit in the second line of the heading."""
    if metric.unit and metric.heading.endswith(metric.unit):
        return PaperColumn(metric.heading.removesuffix(metric.unit).strip(), cells, metric.unit)
    return PaperColumn(metric.heading, cells)


def compute_columns(
    cells: Sequence[CellSummary], records: Sequence[Mapping[str, Any]], spec: ComparisonSpec
) -> list[PaperColumn]:
    """Return the columns of the compute of each cell: runs, FLOPs, hours, memory and processor.

    Args:
        cells: In the report's order.
        records: The compared runs.
        spec: The comparison that the study makes.
    """
    runs = [[record for record in records if cell_of(record, spec) == cell.name] for cell in cells]
    completed = [str(cell.states.get(RunState.COMPLETED, 0)) for cell in cells]
    total = [str(len(of_cell)) for of_cell in runs]
    columns = [PaperColumn("cell", [breakable(cell.name) for cell in cells], is_number=False)]
    columns += [PaperColumn("runs", total), *([PaperColumn("completed", completed)] if completed != total else [])]
    flops = [significant(cell.costs["flops_per_token"].mean) if "flops_per_token" in cell.costs else "" for cell in cells]
    columns.append(PaperColumn("FLOPs", [text.replace(",", "") or MISSING for text in flops], "per token"))
    pflop = [training_pflop(cell) for cell in cells]
    columns.append(PaperColumn("training", [_plain(text) for text in pflop], "PFLOP per run"))
    hours = [total_seconds(of_cell, "seconds") / SECONDS_PER_HOUR for of_cell in runs]
    columns.append(PaperColumn("time", [f"{value:.3f}" if value else MISSING for value in hours], "h, all runs"))
    names = ("tokens_per_s", "saved_mib", "gpu_peak_mib", "host_peak_mib", "parameters")
    metrics = [metric for metric in shown_in("cost table") if metric.name in names]
    columns += [_cost_column(m, [_cost(cell, m) for cell in cells]) for m in present_costs(cells, metrics)]
    return [column for column in columns if not column.is_number or set(column.cells) - {MISSING}]


def _plain(text: str) -> str:
    """Return a number of three significant digits without an exponent, for a column of aligned decimals."""
    return f"{float(text):.9f}".rstrip("0") if text else MISSING


@dataclass(frozen=True)
class AppendixSection:
    """A section: its title, paragraphs and table, as LaTeX."""

    title: str
    paragraphs: tuple[str, ...]
    table: str


def appendix_sections(page: Page, *, with_cells: bool) -> list[AppendixSection]:
    """Return the sections in reading order; `with_cells` adds the table of cells."""
    spec = page.results.spec
    facts = dict(page.methods)
    software = tuple(breakable(f"{name.capitalize()}: {facts[name]}.") for name in (*ENVIRONMENT, "time") if facts.get(name))
    sections = _hyper_parameters(page)
    if with_cells:
        columns, _ = verdict_columns(page.cells, spec, {})
        sections.append(AppendixSection("Cells", (), long_table(columns)))
    counted = any(training_pflop(cell) for cell in page.cells)
    about = (r"Training PFLOP: 3 $\times$ the forward pass $\times$ the tokens trained on, of one run.",) if counted else ()
    sections.append(
        AppendixSection("Compute", (*about, *software), long_table(compute_columns(page.cells, page.records, spec)))
    )
    for section in page.sections:
        if section.table is not None and not section.caption and section.title not in ELSEWHERE:
            texts = [*section.paragraphs, *section.warnings]
            sections.append(AppendixSection(escape(section.title), tuple(map(breakable, texts)), text_table(section.table)))
    return sections


def _hyper_parameters(page: Page) -> list[AppendixSection]:
    """Return the settings that all cells share, and the settings of each cell that differ."""
    spec, records = page.results.spec, page.records
    names = list(dict.fromkeys(name for record in records for name in record))
    names = [name for name in (*SINGLE_FIELDS, "command") if name in names] + [
        name for section in (*SECTIONS, *OF_PROGRAMS) for name in names if name.startswith(f"{section}.")
    ]
    runs = {cell.name: [record for record in records if cell_of(record, spec) == cell.name] for cell in page.cells}
    values = {name: {cell: values_text(of_cell, name) for cell, of_cell in runs.items() if of_cell} for name in names}
    shared = [(name, next(iter({*of_cells.values()}))) for name, of_cells in values.items() if len({*of_cells.values()}) == 1]
    rows = [TableRow(pair) for pair in shared if pair[1]]
    table = Table([Column("setting", is_text=True), Column("value in all cells", is_text=True)], rows)
    sections = [AppendixSection("Hyper-parameters", (), text_table(table))]
    own = [name for name in names if len({*values[name].values()}) > 1]
    if own:
        texts = {cell: "; ".join(f"{name} {values[name][cell]}" for name in own if values[name].get(cell)) for cell in runs}
        columns = [Column("cell", is_text=True), Column("settings that differ between cells", is_text=True)]
        rows = [TableRow([cell, text]) for cell, text in texts.items() if text]
        sections.append(AppendixSection("Hyper-parameters of single cells", (), text_table(Table(columns, rows))))
    return sections
