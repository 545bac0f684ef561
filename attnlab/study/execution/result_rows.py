"""The rows of one call of ``attnlab.run``: of runs that ended in it, and of other records of the study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attnlab._util.run_state import WITHOUT_RESULT
from attnlab.study.execution.rows import Row, row_of_record, row_of_run, row_without_confirmation, row_without_record

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan, Run
    from attnlab.study.execution.ending import Ending
    from attnlab.study.execution.scheduler import Scheduler
    from attnlab.tracking.tracker import Tracker


class ResultRows:
    """The rows of a study's runs; the runner adds each run that ends.

    Args:
        root: the folder of runs.
    """

    def __init__(self, plan: Plan, root: Path, *, tracker: Tracker, scheduler: Scheduler) -> None:
        self._plan, self._root, self._tracker, self._scheduler = plan, root, tracker, scheduler
        self._ended: dict[str, Row] = {}  # by the run's key

    def add(self, run: Run, ending: Ending, *, run_id: str, seconds: float = 0.0) -> None:
        """Add the row of a run that ended in this call, replacing the row of its last attempt."""
        self._ended[run.key] = row_of_run(run, ending, run_id=run_id, seconds=seconds, root=self._root)

    @property
    def results(self) -> int:
        """The number of runs that ended in this call with a result."""
        return sum(row.state not in WITHOUT_RESULT for row in self._ended.values())

    def all(self) -> list[Row]:
        """Return a row for each run, each trial with a record, and each cell with nothing to confirm after its search.

        Runs and trials of earlier calls and of other parents are included.
        """
        order = {cell.name: i for i, cell in enumerate([*self._plan.stages, *self._plan.cells])}
        runs = sorted(self._scheduler.runs.values(), key=lambda run: order[run.cell.name])
        run_rows = [self._find(run.key) or row_without_record(run) for run in runs]
        trial_rows = (self._find(key) for key in self._scheduler.trials)
        seed = self._plan.seeds[0]
        unconfirmed = [row_without_confirmation(cell, seed, reason) for cell, reason in self._scheduler.unconfirmed.items()]
        return [*run_rows, *(row for row in trial_rows if row is not None), *unconfirmed]

    def _find(self, key: str) -> Row | None:
        """Return the row of a run that was trained here, in an earlier call, or by another parent."""
        if key in self._ended:
            return self._ended[key]
        record = self._scheduler.finished.get(key) or self._tracker.find(key)
        return row_of_record(record, root=self._root) if record is not None else None
