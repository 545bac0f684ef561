"""Reports of studies: pages that can be read offline and on a phone, the same as Markdown, plots and tables.

Everything comes from MLflow (through `attnlab.tracking`). `attnlab.stats` makes the cell summaries, `attnlab.report.summary`
the two sentences at the top, and `attnlab.report.page` the page.

A page on several studies has one answer, then the result, verdicts and differences of each with a link to its own report.
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util import cost_metrics
from attnlab._version import __version__
from attnlab.errors import UserError
from attnlab.report.answer import make_answer
from attnlab.report.conclusion import publish
from attnlab.report.page import Page, make_page, task_folder, write_page
from attnlab.report.render import render
from attnlab.report.section import Column, Table, TableRow, two_columns
from attnlab.report.stored import read_object, rounded, save
from attnlab.stats.cells import CellSummary, split_tasks
from attnlab.stats.compared import Compared
from attnlab.stats.items import ItemReader, split_uncertainty
from attnlab.study.comparison import StudyInfo, compare_info, load_judged
from attnlab.tracking.client import snapshot
from attnlab.tracking.runs import study_name

if TYPE_CHECKING:
    import pandas

    from attnlab.tracking.artifacts import AttentionMap

FILE = "index.json"
REPORTS = Path("runs/reports")  # of one's own studies; results that a repository keeps are written elsewhere with `out`
METHODS = {
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
}

logger = logging.getLogger(__name__)


def write_index(folder: Path, pages: Sequence[Page], *, question: str = "", title: str = "") -> None:
    """Write `index.html`, `README.md` and the plots of the answer into `folder`.

    Args:
        folder: The report of each study is already in `folder/STUDY`.
        pages: Of the studies, or of the tasks of one study, in order.
        question: The question that they answer; "": the one that all the studies state, if they agree.
        title: Of the page; the folder's name by default.
    """
    of_tasks = len({page.study for page in pages}) == 1
    results = [replace(page.results, name=_name(page, of_tasks=of_tasks)) for page in pages]
    answer = make_answer(results, noun="task" if of_tasks else "study")
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
    folders = [_folder(page, of_tasks=of_tasks) for page in pages]
    inputs = {"version": __version__, "folders": folders, "question": question, "title": title}
    (folder / FILE).write_text(json.dumps(inputs, ensure_ascii=False) + "\n", encoding="utf-8")


def load_index(folder: Path) -> tuple[list[str], dict[str, Any]] | None:
    """Return the folders of the pages below a page on several, and the options of `write_index`; None without such a page."""
    path = folder / FILE
    if not path.exists():
        return None
    inputs = read_object(path)
    try:
        return inputs["folders"], {"question": inputs["question"], "title": inputs["title"]}
    except KeyError as error:
        raise UserError(f"expected the stored inputs of a page on several studies, which have {error}", str(path)) from None


def _name(page: Page, *, of_tasks: bool) -> str:
    """Return the name of a study or a task on the page, and of a task of one of several studies with the study."""
    return f"{page.study} {page.name}" if page.info.task and not of_tasks else page.name


def _folder(page: Page, *, of_tasks: bool) -> str:
    """Return the folder of a study's or task's page, relative to the folder of the page on all of them."""
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
    questions = {page.info.spec.question for page in pages if page.info.spec.question}
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


def write_report(
    study: str | Path | Sequence[str], root: str | Path | None = None, out: str | Path | None = None, *, question: str = ""
) -> Path:
    """Write the report of a study, store a copy in the study's MLflow experiment, and return its folder.

    With several studies, each report is in a subfolder, and a page above them has one answer and the main results of all.

    Args:
        study: Name of the study, or its YAML file; or several.
        root: Folder of the runs; default `ATTNLAB_RUNS`, else `runs`.
        out: Folder of the report; default `runs/reports/STUDY`. Required for several studies.
        question: Shown at the top of the page instead of the study's `question`.

    Raises:
        UserError: The study does not exist or has no runs, or there are several studies without `out`.
    """
    studies = [study] if isinstance(study, str | Path) else study
    names = list(dict.fromkeys(map(study_name, studies)))
    if len(names) == 1:
        folder = Path(out or REPORTS / names[0])
        _report_one(names[0], folder, root, question=question)
        return folder
    if out is None:
        raise UserError(f"expected --out FOLDER for the page of several studies ({', '.join(names)}), got none")
    folder = Path(out)
    pages = [page for name in names for page in _report_one(name, folder / name, root)]
    write_index(folder, pages, question=question)
    return folder


def _report_one(study: str, folder: Path, root: str | Path | None, *, question: str = "") -> list[Page]:
    """Write the report of one study, and return its page, or one for each of its tasks."""
    with snapshot():
        info, runs = load_judged(study, root)
        info = replace(info, spec=replace(info.spec, question=question or info.spec.question))
        return write_judged(folder, info, runs, compare_info(info, runs), root)


def write_judged(
    folder: Path, info: StudyInfo, runs: pandas.DataFrame, compared: Compared, root: str | Path | None = None
) -> list[Page]:
    """Write the report of a study that `load_judged` has read, and return its page, or one for each of its tasks."""
    from attnlab.tracking.artifacts import item_reader, load_attention_maps
    from attnlab.tracking.runs import load_curves

    study = info.spec.study
    with snapshot():
        curves, maps = load_curves(study, root), load_attention_maps(study, root)
        items = item_reader(study, root)
        pages = _write_study(folder, info, cells=compared.cells, runs=runs, curves=curves, maps=maps, items=items)
        publish(study, compared, [page.summary.text for page in pages], root)
    return pages


def _write_study(
    folder: Path,
    info: StudyInfo,
    *,
    cells: Sequence[CellSummary],
    runs: pandas.DataFrame,
    curves: pandas.DataFrame,
    maps: Sequence[AttentionMap],
    items: ItemReader,
) -> list[Page]:
    """Write the page of a study; of several tasks, a page on each in a subfolder, and one on all of them."""
    if not info.spec.tasks:
        info = replace(info, uncertainty=split_uncertainty(items, cells, info.spec))
        return [write(folder, info=info, runs=runs, curves=curves, maps=maps)]
    pages = []
    for part, of_task in split_tasks(cells, info.spec):
        names = {cell.name for cell in of_task}
        ids = [run["run_id"] for run in runs.to_dict("records") if part.includes(run)]
        page = write(
            folder / task_folder(part.task),
            info=replace(info, task=part.task, uncertainty=split_uncertainty(items, of_task, part)),
            runs=runs,
            curves=curves.loc[curves["run_id"].isin(ids)],
            maps=[map_ for map_ in maps if map_.cell in names],
        )
        pages.append(page)
    write_index(folder, pages, question=info.spec.question, title=info.spec.study)
    return pages


def write(
    folder: Path, *, info: StudyInfo, runs: pandas.DataFrame, curves: pandas.DataFrame, maps: Sequence[AttentionMap] = ()
) -> Page:
    """Write `index.html`, `README.md`, the plots and the tables of a study into `folder`.

    Args:
        folder: Created if missing; plots of an earlier report are removed.
        info: The comparison of the study, and the way it was run.
        runs: As `attnlab.load_runs` returns them, trials of a search included.
        curves: As `attnlab.load_curves` returns them.
        maps: As `attnlab.tracking.artifacts.load_attention_maps` returns them.

    Returns:
        The page as it was written.
    """
    curves = rounded(curves)
    page = make_page(info, runs=runs, curves=curves, maps=maps)
    write_page(folder, page, runs=runs)
    save(folder, info=info, runs=runs, curves=curves, maps=maps)
    return page
