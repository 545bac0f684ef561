"""Withdrawing runs of a study: their records no longer count, and the study's next call trains them again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab._util.files import file_lock
from attnlab._util.run_state import RunState
from attnlab.errors import UserError
from attnlab.study.run import study_lock
from attnlab.tracking.client import connect, run_folder, runs_folder, search_runs
from attnlab.tracking.experiment import withdraw_answer
from attnlab.tracking.runs import find_experiment
from attnlab.tracking.withdrawn import delete_record, outdated_records, select_records, studies_sharing, withdraw_record

if TYPE_CHECKING:
    from attnlab.tracking.client import MlflowClient
    from attnlab.tracking.record import RunRecord

__all__ = ["Withdrawal", "withdraw"]


class Withdrawal:
    """The selected runs of a study, while no process runs the study; see ``withdraw``.

    Attributes:
        runs: the records of the selected runs, and then of those that started from them.
    """

    def __init__(self, client: MlflowClient, experiment_id: str, root: Path, runs: list[RunRecord]) -> None:
        self._client, self._experiment_id, self._root, self.runs = client, experiment_id, root, runs

    def folder(self, run: RunRecord) -> Path:
        """Return the folder of a run's checkpoints, result and model."""
        return self._root / run.folder if run.redone else run_folder(self._root, run.key)

    def shared_with(self, run: RunRecord) -> list[str]:
        """Return the other studies that have the same run, and so use the same folder."""
        return studies_sharing(self._client, run)

    def describe(self, run: RunRecord) -> str:
        """Return the name, the ID and the state of a run, and the selected run that it started from, if it did."""
        starts = [f", started from {other.name}" for other in self.runs if other.key == run.starts_from]
        return f"{run.name} ({run.run_id[:8]}, {run.state}{''.join(starts)})"

    def delete(self) -> None:
        """Delete the records in MLflow, and the folders that no other study uses. MLflow no longer shows the study's answer."""
        withdraw_answer(self._client, self._experiment_id, self._root)
        for run in self.runs:
            shared = self.shared_with(run)
            delete_record(self._client, run)  # first: a folder without a record is emptied by the next call
            if not shared:
                shutil.rmtree(self.folder(run), ignore_errors=True)

    def redo(self) -> dict[str, Path]:
        """Keep the records, but let them no longer count; return name -> folder that keeps the run's files.

        A folder that another study uses stays in its place until its run is trained again. MLflow no longer shows the study's
        answer.

        Raises:
            UserError: a record was withdrawn before, or belongs to a refused cell.
        """
        for run in self.runs:
            if run.redone or run.state == RunState.REFUSED:
                problem = "was withdrawn before" if run.redone else "is refused by the plan"
                raise UserError(f"expected a run to train again, but it {problem}", self.describe(run))
        withdraw_answer(self._client, self._experiment_id, self._root)
        folders = {}
        for run in self.runs:
            folder = self.folder(run)
            kept = folder if self.shared_with(run) else folder.with_name(f"{folder.name}.{run.run_id[:8]}")
            withdraw_record(self._client, run, folder=str(kept.relative_to(self._root)))
            if kept != folder and folder.exists():
                folder.rename(kept)
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
        selected = select_records(client, experiment.experiment_id, targets)
        keys = {record.key for record in selected}
        active = {record.key: record for record in search_runs(client, experiment.experiment_id) if not record.redone}
        dependants = [record for key, record in outdated_records(active, keys).items() if key not in keys]
        withdrawal = Withdrawal(client, experiment.experiment_id, folder, [*selected, *dependants])
        for run in withdrawal.runs:
            if (place := withdrawal.folder(run)).exists():
                locks.enter_context(file_lock(place / "lock", activity=f"{run.name} is being trained"))
        yield withdrawal


def _require_idle(client: MlflowClient, experiment_id: str) -> None:
    """Raise ``UserError`` when a run of the study is recorded as running."""
    running = search_runs(client, experiment_id, "attributes.status = 'RUNNING'")
    if running:
        raise UserError(f"{running[0].name} is recorded as running: wait until the study ends, or rerun it if its process died")
