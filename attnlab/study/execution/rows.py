"""The rows of a study's result, one per run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.run_state import WITHOUT_RESULT, RunState
from attnlab.tracking.attempts import failures, final_metrics

if TYPE_CHECKING:
    from attnlab.planning.plan import Cell, Run
    from attnlab.study.execution.job import Ending
    from attnlab.tracking.client import Record


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


def row_of_record(record: Record, *, root: Path) -> Row:
    """Return the row of a run that was trained in an earlier call or by another parent, from its MLflow record."""
    tags = {key.removeprefix("attnlab."): value for key, value in record.data.tags.items()}
    state, reason = RunState(tags.get("state", "completed")), tags.get("reason", "")
    if state in WITHOUT_RESULT:
        reason += f" (failed {failures(record)} times; --retry {state} tries again)"
    return Row(
        str(record.info.run_name),
        tags["cell"],
        int(tags["seed"]),
        state,
        final_metrics(record),
        reason,
        record.info.run_id,
        seconds=((record.info.end_time or 0) - record.info.start_time) / 1_000,
        reused=True,
        phase=tags.get("phase", "grid"),
        trial=int(tags["trial"]) if "trial" in tags else None,
        params=json.loads(tags.get("params", "{}")),
        log=log_path(root, tags.get("fingerprint", "")),
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


def run_folder(root: Path, key: str) -> Path:
    """Return the folder of a run's checkpoints, result and log."""
    return root / "work" / key


def log_path(root: Path, key: str) -> Path:
    """Return the file that the process of a run writes its output to."""
    return run_folder(root, key) / "log.txt"
