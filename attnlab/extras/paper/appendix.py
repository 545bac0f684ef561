"""The appendix of a paper: hyper-parameters of every cell, compute, and the tables of the page's other sections."""

from __future__ import annotations

from dataclasses import dataclass

from attnlab.extras.paper.tables import compute_columns, verdict_columns
from attnlab.extras.paper.tabular import long_table, text_table
from attnlab.extras.paper.text import breakable, escape
from attnlab.report.methods import ENVIRONMENT, SECTIONS, SINGLE_FIELDS, values_text
from attnlab.report.page import Page
from attnlab.report.table import Column, Table, TableRow
from attnlab.report.verdicts import training_pflop
from attnlab.stats.compare import cell_of

ELSEWHERE = ("Learning curves", "Costs", "Methods")  # sections that other parts of the paper have
OF_PROGRAMS = ("values", "env", "files")  # sections of the columns of a study of a program


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
