"""Run a study, from its plan to its finished runs.

The user's variants, components and position schemes are checked first. A parent then queues in Optuna the runs that MLflow does
not record as finished, and trains each in a separate process. With a sqlite file one parent owns the study, by a lock; with a
PostgreSQL database any number of parents share its queue. Running a study again resumes it. A failing run never stops the
others.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.files import file_lock
from attnlab._util.log import log_to
from attnlab._util.process import as_interrupts
from attnlab._util.run_state import RunState
from attnlab.errors import UserError, nearest
from attnlab.study.execution.concurrency import Workers, requested_workers, start_workers
from attnlab.study.execution.job import TRAIN
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.execution.reference_scores import compute_reference_scores
from attnlab.study.execution.runner import Runner
from attnlab.study.execution.scheduler import Scheduler
from attnlab.study.result import StudyResult
from attnlab.study.sweep import extend_sweep, log_extension
from attnlab.study.trials.store import Store, shared_storage
from attnlab.tracking.client import runs_folder
from attnlab.tracking.tags import study_text
from attnlab.tracking.tracker import Tracker

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan
    from attnlab.tracking.record import RunRecord

__all__ = ["StudyResult", "run"]

RETRIABLE = (
    RunState.FAILED,
    RunState.TIMED_OUT,
    RunState.DIVERGED,
    RunState.OUT_OF_MEMORY,
    RunState.PRUNED,
    RunState.COMPLETED,
)


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
            threads. ``"auto"``: as many as the processors allow, with one thread each for a small model, and at least one for
            each CUDA device. Default ``ATTNLAB_WORKERS``, else ``"auto"``. All runs of a study have the same number of threads.
        sets: as for ``attnlab.plan``.
        only: as for ``attnlab.plan``. With a plan, it marks the plan as a part of its study: the records of other cells do
            not change.
        root: the folder of runs; default ``ATTNLAB_RUNS``, else ``./runs``.
        display: the progress display; default one on standard error.
        storage: ``postgresql://...``, a database with a queue that several parents share, on any number of machines; default
            ``ATTNLAB_STORAGE``, else a sqlite file under ``root`` that one parent owns.
        retry: states (``diverged``, ``failed``, ...) to try again, even when runs have a result or no attempts left.
        reference_scores: compute the reference scores that the study requests. With False, recorded scores stay.
        check: first run a quick check of the user's variants, components and position schemes at the shapes of the study.
        train: ``"module:function"`` that trains one run.

    Raises:
        UserError: a mistake in the study, a variant that fails the check, missing data, a storage that cannot be used, or
            another process that runs this study here.
        KeyboardInterrupt: Ctrl-C or SIGTERM, after the runs have been ended and recorded as ``interrupted``; the message
            says how many runs are finished.
    """
    from attnlab.planning.plan import Plan
    from attnlab.planning.plan import plan as make_plan
    from attnlab.study.plan import check_own_variants

    workers = requested_workers(workers)
    folder, display = runs_folder(root), display or ProgressDisplay()
    plan = study if isinstance(study, Plan) else make_plan(study, sets=sets, only=only)
    if plan.study.max_seeds is not None:
        from attnlab.study.adaptive import run_until_conclusive

        options = {"only": only, "root": root, "retry": retry, "display": display, "workers": workers, "storage": storage}
        options |= {"reference_scores": reference_scores, "check": check, "train": train}
        return run_until_conclusive(plan, run=run, **options)
    url = shared_storage(storage)
    with nullcontext() if url else study_lock(folder, plan.study.study), as_interrupts(), log_to(display.print):
        try:
            if check:
                check_own_variants(plan)
            start_workers(plan)
            with Tracker(plan, folder) as tracker:
                with closing(Store(folder, url)) as store, store.share(plan.study.study, study_text(plan)):
                    options = {"tracker": tracker, "display": display, "workers": workers, "train": train}
                    if "cells" not in (only or {}):  # not a later round of adaptive seeds, which plans less than the study
                        tracker.log_plan()
                    plan, rows = _train(plan, folder, store, retry=_states(retry), partial=bool(only), **options)
                scores = compute_reference_scores(plan) if reference_scores and plan.study.reference_scores else []
                if reference_scores:
                    tracker.log_reference_scores(scores, partial=bool(only))
                return StudyResult(plan, rows, scores)
        finally:
            display.close()


def _train(
    plan: Plan, folder: Path, store: Store, *, tracker: Tracker, retry: Collection[str], partial: bool, **options: Any
) -> tuple[Plan, list[RunRecord]]:
    """Train every run that is left; return the plan with the extensions of its sweep, and the record of each of its runs."""
    if plan.study.sweep:
        plan = extend_sweep(plan, tracker.records)
    while True:
        tracker.update_plan(plan)
        scheduler = Scheduler(plan, tracker, store, retry=retry)
        rows = Runner(plan, folder, tracker=tracker, scheduler=scheduler, **options).run(partial=partial)
        longer = extend_sweep(plan, tracker.records) if plan.study.sweep else plan
        if longer is plan:
            return plan, rows
        log_extension(plan, longer)
        plan, retry = longer, ()  # the states to retry have been retried
        options["display"].close()


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
