"""One page of several studies: each one's question, answer, verdicts and differences, with its whole report below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from attnlab._util import cost_metrics
from attnlab.report.page import Page
from attnlab.report.render import render
from attnlab.report.table import Column, Line, Table

HOW = ("task", "data", "position", "model", "train", "evaluate", "seeds", "device", "versions", "commit", "time")


def write_several(folder: Path, pages: Sequence[Page]) -> None:
    """Write `index.html` and `README.md` into `folder`; each study's report already stands in `folder/STUDY`."""
    studies = [
        {
            "page": page,
            "name": page.study,
            "table": short(page.table),
            "plots": [figure for figure in page.figures if figure.section == "effects"],
            "how": how(page),
        }
        for page in pages
    ]
    again = f"attnlab report {' '.join(page.study for page in pages)} --out reports/{folder.name}"
    fields = {"title": folder.name, "studies": studies, "again": again, "notes": shared({p.study: p.notes for p in pages})}
    for template, name in (("several.html.j2", "index.html"), ("several.md.j2", "README.md")):
        (folder / name).write_text(render(template, fields), encoding="utf-8")


def shared(notes: Mapping[str, Sequence[str]]) -> list[str]:
    """The notes of several studies (study -> its notes), each once; what is not said of all begins with whom it is said of."""
    told: dict[str, list[str]] = {}
    for study, own in notes.items():
        for note in dict.fromkeys(own):
            told.setdefault(note, []).append(study)
    return [note if len(of) == len(notes) else f"{', '.join(of)}: {note}" for note, of in told.items()]


def short(table: Table) -> Table:
    """A verdict table without its costs: parameters stay, so that matched comparisons are seen."""
    left_out = {metric.heading for metric in cost_metrics.COST_METRICS if metric.name != "parameters"} | {"state"}
    keep = [i for i, column in enumerate(table.columns) if column.heading not in left_out]
    columns: list[Column] = [table.columns[i] for i in keep]
    return Table(columns, [Line([line.cells[i] for i in keep], line.color, line.kind) for line in table.lines])


def how(page: Page) -> list[tuple[str, str]]:
    """What was done: the search in words, then what all runs share."""
    method = [("search", text) for text in page.search.paragraphs] if page.search else []
    return [*method, *((name, text) for name, text in page.protocol if name in HOW)]
