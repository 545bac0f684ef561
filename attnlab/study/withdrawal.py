"""Withdrawing runs of a study: their records no longer count, and the study's next call trains them again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab._util.files import file_lock
from attnlab._util.run_state import RunState
from attnlab.errors import UserError
from attnlab.study.run import study_lock
from attnlab.tracking.client import connect, run_folder, runs_folder, search_runs
from attnlab.tracking.runs import find_experiment
from attnlab.tracking.withdrawn import delete_record, outdated_records, select_records, studies_sharing, withdraw_record

if TYPE_CHECKING:
    from attnlab.tracking.client import MlflowClient
    from attnlab.tracking.record import RunRecord

__all__ = ["Withdrawal", "withdraw"]


@dataclass(frozen=True)
class SelectedRun:
    """A run that a command is about to withdraw.

    Attributes:
        folder: of its checkpoints, result and model.
        shared_with: other studies that have the same run, and so use the same folder.
        command: the command line that trained it.
        started_from: the name of the withdrawn run that it started from; "" if the user named it.
    """

    record: RunRecord
    folder: Path
    shared_with: tuple[str, ...]
    started_from: str = ""

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def command(self) -> str:
        return self.record.command

    def __str__(self) -> str:
        start = f", started from {self.started_from}" if self.started_from else ""
        return f"{self.name} ({self.record.run_id[:8]}, {self.record.state}{start})"


class Withdrawal:
    """The selected runs of a study, while no process runs the study; see ``withdraw``."""

    def __init__(self, client: MlflowClient, root: Path, runs: list[SelectedRun]) -> None:
        self._client, self._root, self.runs = client, root, runs

    def delete(self) -> None:
        """Delete the records in MLflow, and the folders that no other study uses."""
        for run in self.runs:
            delete_record(self._client, run.record)  # first: a folder without a record is emptied by the next call
            if not run.shared_with:
                shutil.rmtree(run.folder, ignore_errors=True)

    def redo(self) -> dict[str, Path]:
        """Keep the records, but let them no longer count; return name -> folder that keeps the run's files.

        A folder that another study uses stays in its place until its run is trained again.

        Raises:
            UserError: a record was withdrawn before, or belongs to a refused cell.
        """
        for run in self.runs:
            if run.record.redone or run.record.state == RunState.REFUSED:
                problem = "was withdrawn before" if run.record.redone else "is refused by the plan"
                raise UserError(f"expected a run to train again, but it {problem}", str(run))
        folders = {}
        for run in self.runs:
            kept = run.folder.with_name(f"{run.folder.name}.{run.record.run_id[:8]}")
            kept = run.folder if run.shared_with else kept
            withdraw_record(self._client, run.record, folder=str(kept.relative_to(self._root)))
            if kept != run.folder and run.folder.exists():
                run.folder.rename(kept)
            folders[run.name] = kept
        return folders


@contextmanager
def withdraw(study: str, targets: Sequence[str], *, root: str | Path | None = None) -> Iterator[Withdrawal]:
    """Select runs of a study to delete or to train again, and keep other processes from running the study meanwhile.

    Runs that started from the weights of a selected run are selected with it.

    Args:
        study: the study's name.
        targets: names of runs, names of cells, or beginnings of MLflow run IDs.
        root: the runs folder; default ``ATTNLAB_RUNS``, else ``./runs``.

    Raises:
        UserError: the study or a target is unknown, or a process is running the study or training one of the runs.
    """
    folder = runs_folder(root)
    client = connect(folder)
    experiment = find_experiment(client, study)
    with study_lock(folder, study), ExitStack() as locks:
        if os.environ.get("MLFLOW_TRACKING_URI"):  # several parents may share the study: they hold no lock
            _require_idle(client, experiment.experiment_id)
        runs = []
        selected = select_records(client, experiment.experiment_id, targets)
        names = {record.key: record.name for record in selected}
        records = search_runs(client, experiment.experiment_id)
        active = {record.key: record for record in records if not record.redone}
        dependants = {key: record for key, record in outdated_records(active, names).items() if key not in names}
        names |= {key: record.name for key, record in dependants.items()}
        for record in [*selected, *dependants.values()]:
            started_from = names[record.starts_from] if record in dependants.values() else ""
            run = SelectedRun(record, _folder_of(record, folder), tuple(studies_sharing(client, record)), started_from)
            if run.folder.exists():
                locks.enter_context(file_lock(run.folder / "lock", activity=f"{run.name} is being trained"))
            runs.append(run)
        yield Withdrawal(client, folder, runs)


def _folder_of(record: RunRecord, root: Path) -> Path:
    """Return the folder of a record's files."""
    return root / record.folder if record.redone else run_folder(root, record.key)


def _require_idle(client: MlflowClient, experiment_id: str) -> None:
    """Raise ``UserError`` when a run of the study is recorded as running."""
    running = search_runs(client, experiment_id, "attributes.status = 'RUNNING'")
    if running:
        raise UserError(f"{running[0].name} is recorded as running: wait until the study ends, or rerun it if its process died")
