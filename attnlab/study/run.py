"""Run a study, from its plan to its finished runs.

A parent queues in Optuna the runs that MLflow does not record as finished, and trains each in a separate process. With
a sqlite file one parent owns the study, by a lock; with a PostgreSQL database any number of parents share its queue.
Running a study again resumes it. A failing run never stops the others.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util import known_code
from attnlab._util.lock import file_lock
from attnlab._util.log import log_to
from attnlab._util.process import start_fork_server
from attnlab._util.run_state import WITHOUT_RESULT, RunState
from attnlab._util.signals import as_interrupts
from attnlab.config.comparability import identity_of_test, task_length
from attnlab.config.run import RunConfig
from attnlab.errors import UserError, nearest
from attnlab.stats.cells import ComparisonSpec, Goal, Tasks, sections_of
from attnlab.stats.margin import with_margin
from attnlab.stats.search import exclude_trials
from attnlab.study.execution.concurrency import Workers, requested_workers
from attnlab.study.execution.job import PRELOAD, PRELOAD_OF_COMMANDS, TRAIN
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.execution.reference_scores import BackgroundScores
from attnlab.study.execution.rows import Row, row_of_record
from attnlab.study.execution.runner import Runner
from attnlab.study.execution.scheduler import Scheduler
from attnlab.study.record import finished_records
from attnlab.study.start_check import check_own_variants
from attnlab.study.sweep import extend_sweep, log_extension
from attnlab.study.trials.store import Store, shared_storage
from attnlab.tracking.artifacts import ReferenceScore
from attnlab.tracking.client import runs_folder
from attnlab.tracking.tags import flatten_config
from attnlab.tracking.tracker import Tracker

if TYPE_CHECKING:
    from attnlab.planning.plan import Cell, Plan
    from attnlab.stats.look_history import LookHistory

__all__ = ["Row", "StudyResult", "run"]

RETRIABLE = (
    RunState.FAILED,
    RunState.TIMED_OUT,
    RunState.DIVERGED,
    RunState.OUT_OF_MEMORY,
    RunState.PRUNED,
    RunState.COMPLETED,
)


@dataclass(frozen=True)
class StudyResult:
    """The result of a study.

    Attributes:
        rows: one for each run, stages first, and one for each refused cell, in the plan's order.
        reference_scores: scores of trivial methods on the test split, where the study requests them.
        others: rows of the finished runs of cells that ``only`` left out; the comparison uses them.
    """

    plan: Plan
    rows: list[Row]
    reference_scores: list[ReferenceScore] = field(default_factory=list)
    others: list[Row] = field(default_factory=list)

    def comparison(self, *, history: LookHistory | None = None) -> ComparisonSpec:
        """Return the comparison of the study; `history` has the looks that its verdicts are corrected for."""
        plan, study = self.plan, self.plan.study
        axes = tuple(next((cell.axes for cell in plan.cells), {}))
        goals = {label: Goal(question.metric, question.direction) for label, question in plan.tasks.items()}
        spec = ComparisonSpec(
            study.study,
            axes,
            Goal(plan.metric, plan.direction),
            tuple(study.baselines),
            control=study.control,
            estimand=plan.estimand,
            moderate=study.moderate,
            doubles=plan.doubles,
            sections=sections_of(study),
            tasks=Tasks(plan.task_axis, goals),
        )
        spec = with_margin(spec, plan.margin, exclude_trials(self.records()))
        return history.apply(spec) if history else spec

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as `attnlab.stats.compare.rows` takes them."""
        cells = [*self.plan.stages, *self.plan.cells, *self.plan.unselected]
        fields = {cell.name: {**_comparison_fields(cell), **cell.axes} for cell in cells}
        keys = ("cell", "seed", "state", "reason", "phase", "trial", "params")
        return [
            {**row.summary, **fields[row.cell], **row.params, **{key: getattr(row, key) for key in keys}}
            for row in (*self.rows, *self.others)
        ]

    @property
    def failed(self) -> list[Row]:
        """The runs without a result; running the study again tries them again."""
        return [row for row in self.rows if row.state in WITHOUT_RESULT]

    @property
    def ok(self) -> bool:
        """True if every run has a result (a refusal, a divergence and running out of memory are results)."""
        return not self.failed


def run(
    study: str | Path | dict[str, Any] | Plan,
    *,
    workers: Workers | None = None,
    sets: dict[str, Any] | None = None,
    only: dict[str, Any] | None = None,
    root: str | Path | None = None,
    display: ProgressDisplay | None = None,
    storage: str | None = None,
    retry: Collection[str] = (),
    reference_scores: bool = True,
    check: bool = True,
    train: str = TRAIN,
) -> StudyResult:
    """Run a study, or what is left of it; with ``max_seeds`` in the study, add seeds until its verdicts are conclusive.

    Args:
        study: a YAML file, its content as a dict, or a plan.
        workers: the number of runs that train at the same time; each takes a CUDA device in turn, or its share of the
            threads. ``"auto"``: one for each CUDA device, or as many as finish soonest, which is measured. Default
            ``ATTNLAB_WORKERS``, else ``"auto"``. All runs of a study have the same number of threads.
        sets: as for ``attnlab.plan``.
        only: as for ``attnlab.plan``. With a plan, it marks the plan as a part of its study: the records of other cells do
            not change.
        root: the folder of runs; default ``ATTNLAB_RUNS``, else ``./runs``.
        display: the progress display; default one on standard error.
        storage: ``postgresql://...``, a database with a queue that several parents share, on any number of machines; default
            ``ATTNLAB_STORAGE``, else a sqlite file under ``root`` that one parent owns.
        retry: states (``diverged``, ``failed``, ...) that are tried again, with a result or without attempts left.
        reference_scores: compute the reference scores that the study requests. With False, recorded ones stay.
        check: first check the user's variants, components and position schemes quickly, at the shapes of the study.
        train: ``"module:function"`` that trains one run.

    Raises:
        UserError: a mistake in the study, a variant that fails the check, missing data, a storage that cannot be used, or
            another process that runs this study here.
        KeyboardInterrupt: Ctrl-C or SIGTERM, after the runs have been ended and recorded as ``interrupted``; the message
            says how many runs are finished.
    """
    from attnlab.planning.plan import Plan
    from attnlab.study.plan import plan as make_plan

    workers = requested_workers(workers)
    folder, display = runs_folder(root), display or ProgressDisplay()
    plan = study if isinstance(study, Plan) else make_plan(study, sets=sets, only=only, root=folder)
    if plan.study.max_seeds is not None:
        from attnlab.study.adaptive import run_until_conclusive

        options = {"only": only, "root": root, "retry": retry, "display": display, "workers": workers, "storage": storage}
        options |= {"reference_scores": reference_scores, "check": check, "train": train}
        return run_until_conclusive(plan, **options)[0]
    url = shared_storage(storage)
    with nullcontext() if url else study_lock(folder, plan.study.study), as_interrupts(), log_to(display.print):
        try:
            if check:
                check_own_variants(plan)
            start_fork_server(PRELOAD if plan.study.command is None else PRELOAD_OF_COMMANDS)
            known_code.remember(_code(plan))
            references = BackgroundScores(plan)
            with Tracker(plan, folder) as tracker, closing(references):
                with closing(Store(folder, url)) as store:
                    options = {"tracker": tracker, "display": display, "workers": workers, "train": train}
                    if reference_scores:
                        options["before_training"] = references.start
                    if "cells" not in (only or {}):  # not a later round of adaptive seeds, which plans less than the study
                        tracker.log_plan()
                    plan, rows = _train(plan, folder, store, retry=_states(retry), partial=bool(only), **options)
                scores: list[ReferenceScore] = []
                if reference_scores:
                    scores = references.result()
                    tracker.log_reference_scores(scores, partial=bool(only))
                return StudyResult(plan, rows, scores, _other_rows(plan, folder))
        finally:
            display.close()


def _train(
    plan: Plan, folder: Path, store: Store, *, tracker: Tracker, retry: Collection[str], partial: bool, **options: Any
) -> tuple[Plan, list[Row]]:
    """Train every run that is left; return a row for each run of the plan, and the plan with the extensions of its sweep."""
    plan = plan if plan.study.sweep is None else extend_sweep(plan, tracker.records())
    while True:
        tracker.update_plan(plan)
        scheduler = Scheduler(plan, tracker, store, retry=retry)
        rows = Runner(plan, folder, tracker=tracker, scheduler=scheduler, **options).run(partial=partial)
        longer = plan if plan.study.sweep is None else extend_sweep(plan, tracker.records())
        if longer is plan:
            return plan, rows
        log_extension(plan, longer)
        plan, retry = longer, ()  # the states to retry have been retried
        options["display"].close()


def _code(plan: Plan) -> dict[str, str]:
    """Return the users' files and modules that the plan runs -> digests."""
    configs = [cell.settings for cell in (*plan.stages, *plan.cells) if cell.refusal is None]
    configs = [config for config in configs if isinstance(config, RunConfig)]
    return {name: digest for config in configs for name, digest in {**config.sources, **config.packages}.items()}


def _other_rows(plan: Plan, folder: Path) -> list[Row]:
    """Return rows of the finished runs of the cells that the plan leaves out."""
    if not plan.unselected:
        return []
    records = finished_records(replace(plan, cells=plan.unselected), folder)
    rows = [row_of_record(record, root=folder) for record in records.values()]
    return [row for row in rows if row.phase != "stage"]


def _comparison_fields(cell: Cell) -> dict[str, Any]:
    """Return the columns of `attnlab.load_runs` that decide whether two cells can be compared."""
    test = {"test": identity_of_test(cell.settings)}
    if not isinstance(cell.settings, RunConfig):
        return test
    flat = flatten_config(json.loads(cell.settings.to_json()))
    fields = {name: flat[name] for name in ("task", "data", "train.batch_size", "train.steps", "train.epochs")}
    return {**fields, "length": task_length(cell.settings), **test}


def study_lock(folder: Path, name: str) -> AbstractContextManager[None]:
    """Return the lock of a study. Parents that share a storage need none: the database gives each run to one parent."""
    return file_lock(folder / "locks" / f"{name}.lock", activity=f"the study {name!r} is being run")


def _states(names: Collection[str]) -> set[str]:
    for name in names:
        if name not in RETRIABLE:
            raise UserError(
                f"expected states among {', '.join(RETRIABLE)}, got {name!r}{nearest(name, map(str, RETRIABLE))}", "--retry"
            )
    return set(names)
