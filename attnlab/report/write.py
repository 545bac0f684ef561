"""A study's report: a page that reads offline and on a phone, the same as Markdown, plots and tables.

Everything comes from MLflow (through `attnlab.tracking`): nothing is trained, nothing is typed by hand. `reporting.compare` and
`stats` make the rows, `reporting.answer` the two sentences at the top, `reporting.page` the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.errors import UserError
from attnlab.report.index import write_several
from attnlab.report.methods import Source, source
from attnlab.report.page import Page, make, write_page

if TYPE_CHECKING:
    import pandas

    from attnlab.tracking.artifacts import AttentionMap


def report(study: str | Sequence[str], root: str | Path | None = None, out: str | Path | None = None) -> Path:
    """Write the report of a study's runs, keep it in the study's MLflow experiment, and return its folder.

    Of several studies each gets its report in a subfolder, and one page above them has what a reader would cite.

    Args:
        study: the study's name, as in its YAML; or several.
        root: the folder of runs; default `ATTNLAB_RUNS`, else `runs`.
        out: where to write; default `reports/STUDY`. Several studies need it.

    Raises:
        UserError: there is no such study, or it has no runs; several studies without `out`.
    """
    names = [study] if isinstance(study, str) else list(dict.fromkeys(study))
    if len(names) == 1:
        folder = Path(out or Path("reports") / names[0])
        _one(names[0], folder, root)
        return folder
    if out is None:
        raise UserError(f"expected --out FOLDER for the page of several studies ({', '.join(names)}), got none")
    folder = Path(out)
    write_several(folder, [_one(name, folder / name, root) for name in names])
    return folder


def _one(study: str, folder: Path, root: str | Path | None) -> Page:
    from attnlab.tracking.artifacts import load_attention_maps, log_report
    from attnlab.tracking.runs import load_curves, load_runs

    runs = load_runs(study, root)
    if runs.empty:
        raise UserError(f"the study {study!r} has no runs yet")
    curves, maps = load_curves(study, root), load_attention_maps(study, root)
    page = write(folder, source=source(runs, root=root), runs=runs, curves=curves, maps=maps)
    log_report(study, folder, root=root, note=page.answer.text)
    return page


def write(
    folder: Path, *, source: Source, runs: pandas.DataFrame, curves: pandas.DataFrame, maps: Sequence[AttentionMap] = ()
) -> Page:
    """Write `index.html`, `README.md`, the plots and the tables into `folder`.

    Args:
        folder: made where it is missing; its earlier plots are removed.
        source: what the study asks and where its runs come from.
        runs: as `load_runs` returns them, those of a search included.
        curves: as `load_curves` returns them.
        maps: as `load_attention_maps` returns them.
    """
    page = make(source, runs=runs, curves=curves, maps=maps)
    write_page(folder, page, runs=runs)
    return page
