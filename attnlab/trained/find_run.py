"""From what a user has of a run (a folder, an id, a name) to its folder."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from attnlab.errors import UserError
from attnlab.training import weights


def find_run(run: str | Path, *, root: str | Path | None = None) -> tuple[str, Path]:
    """Return a description of a run and the folder that holds its trained model.

    Args:
        run: as for `attnlab.load_model`.
        root: the folder of runs.

    Raises:
        UserError: no run or several runs match, or the run left no model.
    """
    path = Path(run)
    if str(run) and path.is_dir():  # Path("") is the working directory
        return str(path), _with_model(path, str(run))
    matches = _matches(str(run), root)
    if not matches:
        raise UserError(f"no run and no folder is named {str(run)!r}: `attnlab runs STUDY` lists the runs")
    if len(matches) > 1:
        listed = "; ".join(f"{match['run_id'][:8]} {match['name']} of {match['study']}" for match in matches[:5])
        raise UserError(f"{len(matches)} runs match {str(run)!r} ({listed}): give the beginning of an id")
    match = matches[0]
    name = f"{match['name']} of {match['study']}, MLflow run {match['run_id']}"
    return name, _with_model(Path(match["folder"]), f"{match['name']} ({match['state']})")


def _matches(run: str, root: str | Path | None) -> list[dict[Any, Any]]:
    """Return the rows of `load_runs` that match."""
    from attnlab.tracking.client import connect, runs_folder, search_studies
    from attnlab.tracking.runs import load_runs

    client = connect(runs_folder(root))
    experiments = {experiment.experiment_id: experiment.name for experiment in search_studies(client)}
    studies = list(experiments.values())
    whole_id = re.fullmatch(r"[0-9a-f]{32}", run) is not None
    if whole_id:
        with suppress(UserError):  # no such run
            studies = [experiments.get(client.get_run(run).info.experiment_id, "")]
    study, _, rest = run.partition("/")
    cell, slash, seed = rest.rpartition("/")
    by_parts = bool(slash) and study in studies and re.fullmatch(r"s?\d+", seed) is not None

    def is_match(row: dict[Any, Any]) -> bool:
        if by_parts:
            number = int(seed.removeprefix("s"))
            is_cell = row["cell"] == cell or row["name"] == f"{cell} s{number}"  # of a sweep, the value follows the cell
            return is_cell and row["seed"] == number and row["phase"] != "search"
        return row["run_id"].startswith(run) or row["name"] == run

    rows: list[dict[Any, Any]] = []
    for name in [study] if by_parts else filter(None, studies):
        frame = load_runs(name, root, every=whole_id)
        rows += [row for row in frame.to_dict("records") if is_match(row)]
    return rows


def _with_model(folder: Path, run: str) -> Path:
    if not weights.exist(folder):
        raise UserError(f"{run} left no model: expected {weights.WEIGHTS} and {weights.CONFIG} in {folder}")
    return folder
