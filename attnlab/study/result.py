"""The result of a study: its rows, one for each run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.run_state import WITHOUT_RESULT, RunState
from attnlab.tracking.client import log_path

if TYPE_CHECKING:
    from attnlab.planning.plan import Cell, Plan, Run
    from attnlab.study.execution.job import Ending
    from attnlab.tracking.artifacts import ReferenceScore
    from attnlab.tracking.record import RunRecord


@dataclass(frozen=True)
class Row:
    """The state of one run.

    Attributes:
        state: ``completed``, ``diverged``, ``out_of_memory``, ``pruned``, ``refused``, ``failed``, ``timed_out`` or
            ``interrupted``.
        summary: final metrics by name.
        reason: one line; empty when the state is ``completed``.
        run_id: MLflow's id of the run; empty for a cell if its search chose no parameters.
        seconds: wall time of the last attempt.
        reused: the run was finished before this call, or by another parent.
        phase: ``grid``, ``search``, ``confirm`` or ``sweep``.
        trial: the number of a search's trial.
        params: the values that a search chose, or a sweep set, for the run.
        log: the output of the run's process, with its traceback; the file exists on the machine that trained the run.
    """

    name: str
    cell: str
    seed: int
    state: RunState
    summary: dict[str, float]
    reason: str
    run_id: str
    seconds: float = 0.0
    reused: bool = False
    phase: str = "grid"
    trial: int | None = None
    params: dict[str, Any] = field(default_factory=dict)
    log: Path | None = None


def row_of_run(run: Run, ending: Ending, *, run_id: str, seconds: float, root: Path) -> Row:
    """Return the row of a run that ended in this call."""
    search = {"phase": run.phase, "trial": run.trial, "params": run.params}
    outcome = (ending.state, ending.summary, ending.reason)
    return Row(run.name, run.cell.name, run.seed, *outcome, run_id, seconds, **search, log=log_path(root, run.key))


def row_of_record(record: RunRecord, *, root: Path) -> Row:
    """Return the row of a run that was trained in an earlier call or by another parent, from its MLflow record."""
    state, reason = RunState(record.state), record.reason
    if state in WITHOUT_RESULT:
        reason += f" (failed {record.failures} times; --retry {state} tries again)"
    return Row(
        record.name,
        record.cell,
        record.seed,
        state,
        record.summary,
        reason,
        record.run_id,
        seconds=((record.end or 0) - record.start) / 1_000,
        reused=True,
        phase=record.phase,
        trial=record.trial,
        params=record.params,
        log=log_path(root, record.key),
    )


def row_of_refusal(cell: Cell, run: Run, *, run_id: str) -> Row:
    """Return the row of a cell that the plan does not support."""
    return Row(cell.name, cell.name, run.seed, RunState.REFUSED, {}, str(cell.refusal), run_id)


def row_without_record(run: Run) -> Row:
    """Return the row of a run that another parent ended, and that has no record: it was deleted in MLflow meanwhile."""
    return Row(
        run.name, run.cell.name, run.seed, RunState.FAILED, {}, "its record was deleted: the next call trains it again", ""
    )


def row_without_confirmation(cell: str, seed: int, reason: str) -> Row:
    """Return the row of a cell with nothing to confirm after its search."""
    return Row(cell, cell, seed, RunState.FAILED, {}, reason, "", phase="confirm")


@dataclass(frozen=True)
class StudyResult:
    """The result of a study.

    Attributes:
        rows: one for each run, stages first, and one for each refused cell, in the plan's order.
        reference_scores: scores of trivial methods on the test split, when the study requests them.
    """

    plan: Plan
    rows: list[Row]
    reference_scores: list[ReferenceScore] = field(default_factory=list)

    @property
    def failed(self) -> list[Row]:
        """The runs without a result; running the study again tries them again."""
        return [row for row in self.rows if row.state in WITHOUT_RESULT]

    @property
    def ok(self) -> bool:
        """True when every run has a result (a refusal, a divergence and running out of memory are results)."""
        return not self.failed
