"""A page on several studies: one answer, then the result, verdicts and differences of each with a link to its own report."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnlab._util import cost_metrics
from attnlab._version import __version__
from attnlab.errors import UserError
from attnlab.report.answer import answer_of
from attnlab.report.page import Page
from attnlab.report.render import render
from attnlab.report.stored import read_object
from attnlab.report.summary import Strong
from attnlab.report.table import Column, Table, TableRow, two_columns

FILE = "index.json"
METHODS = (
    "task",
    "data",
    "data_sizes",
    "position",
    "model",
    "train",
    "evaluate",
    "seeds",
    "device",
    "versions",
    "commit",
    "time",
)


def write_index(
    folder: Path, pages: Sequence[Page], *, question: str = "", title: str = "", left_out: Sequence[str] = ()
) -> None:
    """Write `index.html`, `README.md` and the plots of the answer into `folder`.

    Args:
        folder: The report of each study is already in `folder/STUDY`.
        pages: Of the studies, or of the tasks of one study, in order.
        question: The question that they answer; "": that of the studies, if they state the same.
        title: Of the page; the folder's name by default.
        left_out: Names of further studies in the store that judged the same comparisons.
    """
    of_tasks = len({page.study for page in pages}) == 1
    results = [replace(page.results, name=_name(page, of_tasks=of_tasks)) for page in pages]
    others = [
        {choice: replace(table, name=result.name) for choice, table in page.others.items()}
        for page, result in zip(pages, results, strict=True)
    ]
    answer = answer_of(results, others, of_tasks=of_tasks)
    if answer and (chosen := [_name(page, of_tasks=of_tasks) for page in pages if page.summary.records]):
        note = [Strong(f"See the results below on the choice of records in {', '.join(chosen)}.")]
        answer = replace(answer, paragraphs=[*answer.paragraphs, note])
    if answer and left_out:
        note = [f"Studies that judged the same comparisons and are not on this page: {', '.join(left_out)}."]
        answer = replace(answer, paragraphs=[*answer.paragraphs, note])
    for stale in folder.glob("effect*.svg"):
        stale.unlink()
    for plot in answer.plots if answer else ():
        (folder / plot.file).write_text(plot.svg, encoding="utf-8", errors="surrogateescape")
    fields = {
        "title": title or folder.name,
        "of_tasks": of_tasks,
        "question": question or _shared_question(pages),
        "answer": answer,
        "studies": [_study_fields(page, of_tasks=of_tasks) for page in pages],
        "report_command": _command(folder, pages, question),
        "notes": merge_notes({_name(page, of_tasks=of_tasks): page.notes for page in pages}),
    }
    for template, name in (("index.html.j2", "index.html"), ("index.md.j2", "README.md")):
        (folder / name).write_text(render(template, fields), encoding="utf-8", errors="surrogateescape")
    inputs = {
        "version": __version__,
        "folders": [_folder(page, of_tasks=of_tasks) for page in pages],
        "question": question,
        "title": title,
        **({"left_out": list(left_out)} if left_out else {}),
    }
    (folder / FILE).write_text(json.dumps(inputs, ensure_ascii=False) + "\n", encoding="utf-8")


def load_index(folder: Path) -> tuple[list[str], dict[str, Any]] | None:
    """Return the folders of the pages below a page on several, and the options of `write_index`; None without such a page."""
    path = folder / FILE
    if not path.exists():
        return None
    inputs = read_object(path)
    try:
        left_out = inputs.get("left_out", [])
        return inputs["folders"], {"question": inputs["question"], "title": inputs["title"], "left_out": left_out}
    except KeyError as error:
        raise UserError(f"expected the stored inputs of a page on several studies, which have {error}", str(path)) from None


def _name(page: Page, *, of_tasks: bool) -> str:
    """Return the name of a study or a task on the page, and of a task of one of several studies with the study."""
    return f"{page.study} {page.name}" if page.info.task and not of_tasks else page.name


def _folder(page: Page, *, of_tasks: bool) -> str:
    """Return the folder of a study's or task's page, relative to that of the page on all of them."""
    return f"{page.study}/{page.folder}" if page.info.task and not of_tasks else page.folder


def _study_fields(page: Page, *, of_tasks: bool) -> dict[str, Any]:
    return {
        "page": page,
        "name": _name(page, of_tasks=of_tasks),
        "folder": _folder(page, of_tasks=of_tasks),
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
    studies = list(dict.fromkeys(page.study for page in pages))
    out = f" --out reports/{folder.name}" if len(studies) > 1 else ""
    return f"attnlab report {' '.join(studies)}{out}{asked}"


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
