"""A page on several studies: the question, result, verdicts and differences of each, with a link to its own report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from attnlab._util import cost_metrics
from attnlab.report.page import Page
from attnlab.report.render import render
from attnlab.report.table import Column, Table, TableRow, two_columns

METHODS = ("task", "data", "position", "model", "train", "evaluate", "seeds", "device", "versions", "commit", "time")


def write_index(folder: Path, pages: Sequence[Page]) -> None:
    """Write `index.html` and `README.md` into `folder`; the report of each study is already in `folder/STUDY`."""
    studies = [
        {
            "page": page,
            "name": page.study,
            "table": without_costs(page.table),
            "plots": page.differences,
            "methods": _methods(page),
        }
        for page in pages
    ]
    command = f"attnlab report {' '.join(page.study for page in pages)} --out reports/{folder.name}"
    notes = merge_notes({page.study: page.notes for page in pages})
    fields = {"title": folder.name, "studies": studies, "report_command": command, "notes": notes}
    for template, name in (("index.html.j2", "index.html"), ("index.md.j2", "README.md")):
        (folder / name).write_text(render(template, fields), encoding="utf-8", errors="surrogateescape")


def merge_notes(notes: Mapping[str, Sequence[str]]) -> list[str]:
    """Merge the notes of several studies (study -> its notes); a note that not all share begins with its studies."""
    studies: dict[str, list[str]] = {}
    for study, texts in notes.items():
        for text in dict.fromkeys(texts):
            studies.setdefault(text, []).append(study)
    return [text if len(names) == len(notes) else f"{', '.join(names)}: {text}" for text, names in studies.items()]


def without_costs(table: Table) -> Table:
    """Return a verdict table without costs, except parameters, which show whether cells are matched."""
    omitted = {metric.heading for metric in cost_metrics.COST_METRICS if metric.name != "parameters"} | {"state"}
    indices = [i for i, column in enumerate(table.columns) if column.heading not in omitted]
    columns: list[Column] = [table.columns[i] for i in indices]
    return Table(columns, [TableRow([row.cells[i] for i in indices], row.color, row.kind) for row in table.rows])


def _methods(page: Page) -> Table:
    """Return a table of methods: the search, then what all runs share."""
    search = [("search", text) for text in page.search.paragraphs] if page.search else []
    return two_columns([*search, *((name, text) for name, text in page.methods if name in METHODS)])
