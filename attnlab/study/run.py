"""A study, from its plan to its finished runs.

A parent queues in Optuna what MLflow does not hold as finished, and gives each run a process of its own. Over a sqlite
file one parent owns the study (a lock says so); over a PostgreSQL database any number of parents share its queue. To run a
study again is to resume it. One failing run never stops the others.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.lock import file_lock
from attnlab._util.log import log_to
from attnlab._util.process import start_fork_server
from attnlab._util.signals import as_interrupts
from attnlab.errors import UserError, nearest
from attnlab.stats.compare import Question
from attnlab.study.execution.progress import Display
from attnlab.study.execution.reference_scores import compute_reference_scores
from attnlab.study.execution.runner import NOT_DONE, Row, Runner
from attnlab.study.execution.scheduler import Scheduler
from attnlab.study.execution.worker import PRELOAD, TRAIN
from attnlab.study.trials.store import Store, shared_storage
from attnlab.tracking.artifacts import ReferenceScore
from attnlab.tracking.client import runs_folder
from attnlab.tracking.tracker import Tracker

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan
    from attnlab.stats.sequential import Looks

__all__ = ["Row", "StudyResult", "run"]

RETRIABLE = ("failed", "timed_out", "diverged", "out_of_memory", "pruned", "completed")


@dataclass(frozen=True)
class StudyResult:
    """What a study came to: a row for each run, and one for each refused cell, in the plan's order.

    `reference_scores` are the trivial ones that were asked for, each scored on the test split.
    """

    plan: Plan
    rows: list[Row]
    reference_scores: list[ReferenceScore] = field(default_factory=list)

    def __repr__(self) -> str:
        """A line a run: what a notebook shows where its cell ends in a result."""
        metric = self.plan.metric
        scores = [f", {metric} {row.summary[metric]:.4f}" if metric in row.summary else "" for row in self.rows]
        rows = [f"{row.name}: {row.state}{score}" for row, score in zip(self.rows, scores, strict=True)]
        beside = [f"{each.name} of {each.task}: {each.metric} {each.value:.4f}" for each in self.reference_scores]
        return "\n  ".join([f"result of {self.plan.study.study}", *rows, *beside])

    def question(self, *, looks: Looks | None = None) -> Question:
        """What the study asks; `looks` are those of a study whose seeds were added until its verdicts were settled."""
        plan, study = self.plan, self.plan.study
        axes = tuple(next((cell.axes for cell in plan.cells), {}))
        return Question(study.study, axes, plan.metric, plan.direction, study.baseline or {}, study.margin, looks)

    def records(self) -> list[dict[str, Any]]:
        """The rows as `attnlab.stats.compare.rows` takes them."""
        axes = {cell.name: cell.axes for cell in self.plan.cells}
        keys = ("cell", "seed", "state", "reason", "phase", "trial", "params")
        return [{**row.summary, **axes[row.cell], **{key: getattr(row, key) for key in keys}} for row in self.rows]

    @property
    def failed(self) -> list[Row]:
        """The runs that have no result; running the study again tries them again."""
        return [row for row in self.rows if row.state in NOT_DONE]

    @property
    def ok(self) -> bool:
        """Every run has a result (a refusal, a divergence and a full memory are results)."""
        return not self.failed


def run(
    study: str | Path | dict[str, Any] | Plan,
    *,
    workers: int = 1,
    sets: dict[str, Any] | None = None,
    only: dict[str, Any] | None = None,
    root: str | Path | None = None,
    show: Display | None = None,
    storage: str | None = None,
    retry: Collection[str] = (),
    reference_scores: bool = True,
    train: str = TRAIN,
) -> StudyResult:
    """Run a study, or what is left of it.

    Args:
        study: a YAML file, its content as a dict, or a plan.
        workers: how many runs at a time; each takes a CUDA device in turn, or its share of the threads.
        sets, only: as for ``attnlab.plan``. With a plan, ``only`` says that it is a part of its study: the records
            of other cells stay as they are.
        root: where runs are kept; default ``ATTNLAB_RUNS``, else ``./runs``.
        show: the progress display; default one on standard error.
        storage: ``postgresql://...`` of a database whose queue several parents share, on any number of machines; default
            ``ATTNLAB_STORAGE``, else a sqlite file under ``root`` that one parent owns.
        retry: states (``diverged``, ``failed``, ...) whose runs are tried again although they are results, or although they
            were tried often enough.
        baselines: False: the trivial baselines are not computed, whatever the study says; what is recorded of them stays.
        train: ``"module:function"`` that trains one run.

    Raises:
        UserError: a mistake in the study, missing data, a storage that cannot be used, or another process that runs this
            study here.
        KeyboardInterrupt: Ctrl-C or SIGTERM, after the runs were ended and marked ``interrupted``; it says
            how many runs are finished.
    """
    from attnlab.planning.plan import Plan
    from attnlab.planning.plan import plan as make_plan

    plan = study if isinstance(study, Plan) else make_plan(study, sets=sets or {}, only=only or {})
    folder, shown = runs_folder(root), show or Display()
    url = shared_storage(storage)
    with _ownership(folder, plan.study.study, shared=url is not None), as_interrupts(), log_to(shown.print):
        try:
            start_fork_server(PRELOAD)
            with Tracker(plan, folder) as tracker:
                store = Store(folder, url)
                work = Scheduler(plan, tracker, store, retry=_states(retry))
                runner = Runner(plan, folder, tracker=tracker, work=work, show=shown, workers=workers, train=train)
                rows = runner.run(partial=bool(only))
                store.close()
                beside = compute_reference_scores(plan) if reference_scores else []
                if reference_scores:
                    tracker.log_reference_scores(beside, partial=bool(only))
                return StudyResult(plan, rows, beside)
        finally:
            shown.close()


def _ownership(folder: Path, name: str, *, shared: bool) -> AbstractContextManager[None]:
    """The study's lock: over a shared storage nobody owns it, the database tells the parents apart."""
    return (
        nullcontext() if shared else file_lock(folder / "locks" / f"{name}.lock", activity=f"the study {name!r} is being run")
    )


def _states(names: Collection[str]) -> set[str]:
    for name in names:
        if name not in RETRIABLE:
            raise UserError(f"expected states among {', '.join(RETRIABLE)}, got {name!r}{nearest(name, RETRIABLE)}", "--retry")
    return set(names)
