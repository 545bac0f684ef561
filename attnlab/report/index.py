"""A page on several studies: one answer, then the result, verdicts and differences of each with a link to its own report."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab._util import cost_metrics
from attnlab._version import __version__
from attnlab.report.answer import make_answer
from attnlab.report.page import Page
from attnlab.report.render import render
from attnlab.report.table import Column, Table, TableRow, two_columns
from attnlab.stats.contrasts import combine

FILE = "index.json"
METHODS = ("task", "data", "position", "model", "train", "evaluate", "seeds", "device", "versions", "commit", "time")


def write_index(folder: Path, pages: Sequence[Page], *, question: str = "") -> None:
    """Write `index.html`, `README.md` and the plots of the answer into `folder`.

    Args:
        folder: The report of each study is already in `folder/STUDY`.
        pages: Of the studies, in order.
        question: The question that they answer; "": that of the studies, if they state the same.
    """
    answer = make_answer(combine([page.results for page in pages]))
    for stale in folder.glob("effect*.svg"):
        stale.unlink()
    for plot in answer.plots if answer else ():
        (folder / plot.file).write_text(plot.svg, encoding="utf-8", errors="surrogateescape")
    fields = {
        "title": folder.name,
        "question": question or _shared_question(pages),
        "answer": answer,
        "studies": [_study_fields(page) for page in pages],
        "report_command": _command(folder, pages, question),
        "notes": merge_notes({page.study: page.notes for page in pages}),
    }
    for template, name in (("index.html.j2", "index.html"), ("index.md.j2", "README.md")):
        (folder / name).write_text(render(template, fields), encoding="utf-8", errors="surrogateescape")
    inputs = {"version": __version__, "studies": [page.study for page in pages], "question": question}
    (folder / FILE).write_text(json.dumps(inputs, ensure_ascii=False) + "\n", encoding="utf-8")


def load_index(folder: Path) -> tuple[list[str], str] | None:
    """Return the studies and the question of a page on several studies; None if the folder has no such page."""
    path = folder / FILE
    if not path.is_file():
        return None
    inputs = json.loads(path.read_text(encoding="utf-8"))
    return inputs["studies"], inputs["question"]


def _study_fields(page: Page) -> dict[str, Any]:
    return {
        "page": page,
        "name": page.study,
        "table": without_costs(page.table),
        "plots": page.differences,
        "methods": _methods(page),
    }


def _shared_question(pages: Sequence[Page]) -> str:
    """Return the question of the studies if those that state one state the same, else ""."""
    questions = {page.info.question for page in pages if page.info.question}
    return questions.pop() if len(questions) == 1 else ""


def _command(folder: Path, pages: Sequence[Page], question: str) -> str:
    asked = f" --question {shlex.quote(question)}" if question else ""
    return f"attnlab report {' '.join(page.study for page in pages)} --out reports/{folder.name}{asked}"


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
