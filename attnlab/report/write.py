"""Reports of studies: pages that can be read offline and on a phone, the same as Markdown, plots and tables.

Everything comes from MLflow (through `attnlab.tracking`). `attnlab.stats` makes the cell summaries, `attnlab.report.summary`
the two sentences at the top, and `attnlab.report.page` the page.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab._util.files import describe_error
from attnlab.errors import UserError, one_line
from attnlab.report.index import write_index
from attnlab.report.methods import StudyInfo, compare_info, load_judged
from attnlab.report.page import Page, make_page, task_folder, write_page
from attnlab.report.stored import rounded, save
from attnlab.stats.cells import CellSummary, split_tasks
from attnlab.stats.items import split_uncertainty
from attnlab.study.selection import left_out_studies
from attnlab.tracking.runs import study_name

if TYPE_CHECKING:
    import pandas

    from attnlab.tracking.artifacts import AttentionMap

logger = logging.getLogger(__name__)


def write_report(
    study: str | Path | Sequence[str], root: str | Path | None = None, out: str | Path | None = None, *, question: str = ""
) -> Path:
    """Write the report of a study, store a copy in the study's MLflow experiment, and return its folder.

    With several studies, each report is in a subfolder, and a page above them has one answer and the main results of all.

    Args:
        study: Name of the study, or its YAML file; or several.
        root: Folder of the runs; default `ATTNLAB_RUNS`, else `runs`.
        out: Folder of the report; default `reports/STUDY`. Required for several studies.
        question: Shown at the top of the page instead of the study's `question`.

    Raises:
        UserError: The study does not exist or has no runs, or there are several studies without `out`.
    """
    studies = [study] if isinstance(study, str | Path) else study
    names = list(dict.fromkeys(map(study_name, studies)))
    if len(names) == 1:
        folder = Path(out or Path("reports") / names[0])
        _report_one(names[0], folder, root, question=question)
        return folder
    if out is None:
        raise UserError(f"expected --out FOLDER for the page of several studies ({', '.join(names)}), got none")
    folder = Path(out)
    pages = [page for name in names for page in _report_one(name, folder / name, root)]
    write_index(folder, pages, question=question, left_out=left_out_studies(names, root))
    return folder


def _report_one(study: str, folder: Path, root: str | Path | None, *, question: str = "") -> list[Page]:
    """Write the report of one study, and return its page, or one for each of its tasks."""
    from attnlab.tracking.artifacts import load_attention_maps, load_items, log_report
    from attnlab.tracking.client import snapshot
    from attnlab.tracking.runs import load_curves

    with snapshot():
        info, runs = load_judged(study, root)
        left_out = [str(run["run_id"]) for run in info.selection.left_out]
        info = replace(info, question=question or info.question)
        curves, maps = load_curves(study, root, further=left_out), load_attention_maps(study, root)
        cells = compare_info(info, runs).cells
        items = load_items(study, root)
    pages = _write_study(folder, info, cells=cells, runs=runs, curves=curves, maps=maps, items=items)
    try:
        log_report(study, folder, root=root, note="\n\n".join(page.summary.text for page in pages))
    except (UserError, OSError) as error:  # such as a read-only store; the page itself is complete
        logger.warning("%s is written, but MLflow has no copy of it: %s", folder, one_line(describe_error(error)))
    return pages


def _write_study(
    folder: Path,
    info: StudyInfo,
    *,
    cells: Sequence[CellSummary],
    runs: pandas.DataFrame,
    curves: pandas.DataFrame,
    maps: Sequence[AttentionMap],
    items: pandas.DataFrame,
) -> list[Page]:
    """Write the page of a study; of several tasks, a page on each in a subfolder, and one on all of them."""
    if not info.spec.tasks.goals:
        info = replace(info, uncertainty=split_uncertainty(items, cells, info.spec))
        return [write(folder, info=info, runs=runs, curves=curves, maps=maps)]
    pages = []
    for part, of_task in split_tasks(cells, info.spec):
        names = {cell.name for cell in of_task}
        ids = [run["run_id"] for run in (*runs.to_dict("records"), *info.selection.left_out) if part.includes(run)]
        page = write(
            folder / task_folder(part.task),
            info=replace(info, task=part.task, uncertainty=split_uncertainty(items, of_task, part)),
            runs=runs,
            curves=curves.loc[curves["run_id"].isin(ids)],
            maps=[map_ for map_ in maps if map_.cell in names],
        )
        pages.append(page)
    write_index(folder, pages, question=info.question, title=info.spec.study)
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
