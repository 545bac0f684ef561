"""A study, from its plan to its finished runs. The only module that imports optuna.

One parent owns the study (a lock says so), queues in Optuna what MLflow does not hold as finished, and gives
each run a process of its own. To run a study again is to resume it. One failing run never stops the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attnlab.lock import hold
from attnlab.running.display import Display
from attnlab.running.runner import NOT_DONE, Row, Runner
from attnlab.running.worker import TRAIN
from attnlab.signals import as_interrupts
from attnlab.track import runs_folder
from attnlab.tracking.tracker import Tracker

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan, Run

__all__ = ["Queue", "Row", "StudyResult", "run"]


@dataclass(frozen=True)
class StudyResult:
    """What a study came to: a row for each run, and one for each refused cell, in the plan's order."""

    plan: Plan
    rows: list[Row]

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
        train: ``"module:function"`` that trains one run.

    Raises:
        UserError: a mistake in the study, missing data, or another process that runs this study here.
        KeyboardInterrupt: Ctrl-C or SIGTERM, after the runs were ended and marked ``interrupted``; it says
            how many runs are finished.
    """
    from attnlab.planning.plan import Plan
    from attnlab.planning.plan import plan as make_plan

    plan = study if isinstance(study, Plan) else make_plan(study, sets=sets or {}, only=only or {})
    folder, name = runs_folder(root), plan.study.study
    shown = show or Display()
    with hold(folder / "locks" / f"{name}.lock", what=f"the study {name!r}"), as_interrupts():
        try:
            tracker = Tracker(plan, folder)
            queue = Queue(folder / "optuna.db", name, direction=plan.direction)
            runner = Runner(plan, folder, tracker=tracker, queue=queue, show=shown, workers=workers, train=train)
            return StudyResult(plan, runner.run(partial=bool(only)))
        finally:
            shown.close()


class Queue:
    """Optuna's record of the trials: who waits, who runs, what came out. One process writes it.

    Args:
        direction: ``min`` or ``max``.
    """

    def __init__(self, path: Path, name: str, *, direction: str) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._states = optuna.trial.TrialState
        self._create_trial = optuna.trial.create_trial
        way: Literal["minimize", "maximize"] = "minimize" if direction == "min" else "maximize"
        sampler = optuna.samplers.RandomSampler()  # never asked: the grid is ours
        self._study = optuna.create_study(
            study_name=name,
            storage=f"sqlite:///{path}",
            direction=way,
            sampler=sampler,
            load_if_exists=True,
        )

    def sweep(self, finished: dict[str, float]) -> None:
        """Fail what an earlier parent left running or waiting; enter what only MLflow holds as finished.

        Args:
            finished: fingerprint -> value (NaN where a finished run has none).
        """
        known = set()
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state == self._states.WAITING:
                self._study.tell(self._study.ask(), state=self._states.FAIL)  # ask() takes the first that waits
            elif trial.state == self._states.RUNNING:
                self._study.tell(trial.number, state=self._states.FAIL)
            elif trial.state != self._states.FAIL:
                known.add(trial.user_attrs.get("fingerprint"))
        for fingerprint in finished.keys() - known:
            value = finished[fingerprint]
            state = self._states.COMPLETE if math.isfinite(value) else self._states.PRUNED
            shown = value if math.isfinite(value) else None
            attributes = {"fingerprint": fingerprint}
            self._study.add_trial(self._create_trial(state=state, value=shown, user_attrs=attributes))

    def put(self, run: Run) -> None:
        """Add a run at the end."""
        about = {"fingerprint": run.fingerprint, "cell": run.cell.name, "seed": run.seed}
        self._study.enqueue_trial({}, user_attrs=about)

    def take(self) -> tuple[int, str]:
        """The next run: the number of its trial and its fingerprint."""
        trial = self._study.ask()
        return trial.number, trial.user_attrs["fingerprint"]

    def tell(self, number: int, *, state: str, value: float) -> None:
        """A run ended in ``state`` with this value of the study's metric (NaN where it has none)."""
        if state in NOT_DONE:
            self._study.tell(number, state=self._states.FAIL)
        elif math.isfinite(value) and state == "completed":
            self._study.tell(number, value)
        else:
            self._study.tell(number, state=self._states.PRUNED)
