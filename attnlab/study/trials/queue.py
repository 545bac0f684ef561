"""Queues of runs in Optuna, and the search in one cell, which has a queue for its trials.

A queue is an Optuna study, and a ticket is one of its trials with the key of a run in its attributes. Every key has at
most one ticket that waits or runs. The database ensures that one parent claims a ticket; the tickets of a parent that
dies return to the queue.

A search is a separate queue with the same budget as every other cell's. Its trial n is the ticket ``tn``, and its sampler is
seeded by the study's search and n. Samplers that do not learn from results therefore try the same values in every cell. With
one trial of a cell at a time (``parallel: 1``), its parameters depend on the trials before it alone, not on timing, workers or
restarts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

from attnlab._util.run_state import WITHOUT_RESULT, RunState
from attnlab.errors import UserError
from attnlab.planning.samplers import pruner, sampler, suggest, values
from attnlab.study.trials.store import Store

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.trial import FrozenTrial, Trial

    from attnlab.planning.plan import Cell, Plan, Run

P = ParamSpec("P")
T = TypeVar("T")
FORGOTTEN = "forgotten"  # attribute of a study: the numbers of the trials that count no longer


def key_of(trial: Trial | FrozenTrial) -> str:
    """Return the key of the run that a trial is a ticket of."""
    return trial.user_attrs["key"]


def _patient(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Repeat a method of a queue while the database does not respond: each leaves the same tickets when it is repeated."""

    @wraps(method)
    def repeated(queue: Queue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return queue._store.patience(partial(method, queue, *args, **kwargs))

    return repeated


class Queue:
    """One Optuna study as a queue.

    Args:
        direction: ``min`` or ``max``.
        pruner: of a search; a queue of fixed runs has none.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        direction: str,
        pruner: BasePruner | None = None,
    ) -> None:
        import optuna

        self._store, self._states = store, optuna.trial.TrialState
        self._new_trial = optuna.trial.Trial
        self._silent_since: dict[int, float] = {}  # trial claimed without a heartbeat yet -> when it was first seen
        optuna_direction: Literal["minimize", "maximize"] = "minimize" if direction == "min" else "maximize"

        def create() -> optuna.Study:
            with store.exclusive():  # a second parent must not see a study that is half created
                return optuna.create_study(
                    study_name=name,
                    storage=store.rdb,
                    direction=optuna_direction,
                    sampler=optuna.samplers.RandomSampler(),
                    pruner=pruner or optuna.pruners.NopPruner(),
                    load_if_exists=True,
                )

        self.study = store.patience(create)
        self._forgotten: set[int] = store.patience(lambda: set(self.study.user_attrs.get(FORGOTTEN, [])))

    @_patient
    def trials(self, *states: str) -> list[FrozenTrial]:
        """Return the trials in these states (``WAITING RUNNING COMPLETE PRUNED FAIL``; default: all), oldest first.

        Forgotten trials are left out.
        """
        optuna_states = tuple(self._states[state] for state in states) or None
        trials = self.study.get_trials(deepcopy=False, states=optuna_states)
        return [trial for trial in trials if trial.number not in self._forgotten]

    @_patient
    def forget(self, keys: Collection[str]) -> None:
        """Let the finished tickets of these keys count no longer, because their runs are trained again.

        Optuna deletes no trial of a study: the study's attribute ``forgotten`` lists their numbers.
        """
        numbers = {trial.number for trial in self.trials() if key_of(trial) in keys and trial.state.is_finished()}
        if numbers:
            self._forgotten |= numbers
            self.study.set_user_attr(FORGOTTEN, sorted(self._forgotten))

    def keys(self, *states: str) -> set[str]:
        """Return the keys of the trials in these states."""
        return {key_of(trial) for trial in self.trials(*states)}

    @_patient
    def open_keys(self) -> set[str]:
        """Return the keys with a newest ticket that waits, runs, or was lost with its parent and has yet to be queued again."""
        newest = {key_of(trial): trial for trial in self.trials()}
        return {key for key, trial in newest.items() if not trial.state.is_finished() or self._is_lost(trial)}

    def _is_lost(self, trial: FrozenTrial) -> bool:
        """Return whether a shared queue's trial failed with its parent, not by itself.

        A run that failed by itself leaves its state. A parent that dies between writing the state of a completed run and
        closing its trial leaves a trial that fails as stale, although its run has a result.
        """
        state = trial.user_attrs.get("state")
        return self._store.shared and trial.state == self._states.FAIL and state not in WITHOUT_RESULT

    @_patient
    def enqueue(self, keys: Collection[str]) -> None:
        """Add a ticket for each key without a live one. It takes the parameters of the key's last ticket."""
        with self._store.exclusive():
            live = self.keys("WAITING", "RUNNING")
            earlier = self.study.get_trials(deepcopy=False)  # forgotten trials too: a trial keeps its parameters
            params = {trial.user_attrs.get("key"): trial.params for trial in earlier if trial.params}
            for key in keys:
                if key not in live:
                    self.study.enqueue_trial(params.get(key, {}), user_attrs={"key": key})

    @_patient
    def recover(self, finished: Mapping[str, float], *, wanted: Collection[str]) -> None:
        """Take back the tickets of dead parents.

        Args:
            finished: key -> value of the runs that have a result (NaN when it has no value).
            wanted: keys of the study in its present form; a queue with a single parent drops all others.
        """
        if self._store.shared:
            self._recover_stale()
            return
        for trial in self.trials("WAITING", "RUNNING"):
            key = key_of(trial)
            if trial.state == self._states.WAITING and (key in finished or key not in wanted):
                self._store.rdb.set_trial_state_values(trial._trial_id, self._states.FAIL)
            elif key in finished:
                self._tell(trial.number, RunState.COMPLETED, finished[key])
            elif key in wanted:  # the same trial waits again: its parameters, and its bracket in Hyperband, stay
                self._store.rdb.set_trial_state_values(trial._trial_id, self._states.WAITING)
            else:
                self._tell(trial.number, RunState.FAILED, math.nan)

    def _recover_stale(self) -> None:
        """Fail the trials of dead parents, among several parents, and queue them again.

        Optuna finds trials without a heartbeat. It never finds one if its parent died between the claim and the
        first heartbeat; this method times those itself, by this machine's clock since clocks of machines differ. When the
        database responds again, no parent could reach it for a while: their heartbeats are awaited first.
        """
        if time.monotonic() - self._store.patience.resumed < self._store.grace_period:
            return
        with self._store.exclusive():
            # 1. Trials whose heartbeat has stopped.
            self._store.fail_stale(self.study)
            # 2. Trials that have been claimed for longer than the grace period without a first heartbeat.
            silent = {trial.number for trial in self.trials("RUNNING") if "begun" not in trial.user_attrs}
            self._silent_since = {number: self._silent_since.get(number, time.monotonic()) for number in silent}
            for number, since in self._silent_since.items():
                if time.monotonic() - since > self._store.grace_period:
                    self._tell(number, RunState.INTERRUPTED, math.nan)
            # 3. Queue them again.
            newest = {key_of(trial): trial for trial in self.trials()}
            for key, trial in newest.items():
                if self._is_lost(trial):
                    self.study.enqueue_trial(trial.params, user_attrs={"key": key})

    def claim(self, keys: Iterable[str]) -> Trial | None:
        """Claim the ticket of the first of these keys with a waiting one; None when none waits."""
        waiting, patience = {key_of(trial): trial for trial in self.trials("WAITING")}, self._store.patience
        for key in keys:
            trial = waiting.get(key)
            # Each step is repeated by itself: a claim whose answer was lost is found later, as one without a heartbeat.
            if trial is not None and patience(partial(self._set_running, trial)):
                self._store.start_heartbeat(trial._trial_id)
                claimed = patience(partial(self._new_trial, self.study, trial._trial_id))
                if self.update(claimed, partial(claimed.set_user_attr, "begun", True)):
                    return claimed
        return None

    def update(self, ticket: Trial, change: Callable[[], object]) -> bool:
        """Change the trial of a ticket; return False when it is no longer this parent's, because another one recovered it."""
        from optuna.exceptions import UpdateFinishedTrialError

        def attempt() -> bool:
            try:
                change()
            except UpdateFinishedTrialError:
                return False
            return True

        if not (is_ours := self._store.patience(attempt)):
            self._store.stop_heartbeat(ticket._trial_id)
        return is_ours

    def _set_running(self, trial: FrozenTrial) -> bool:
        """Set a waiting trial to RUNNING; return False when another parent has claimed it, or even closed it, meanwhile."""
        from optuna.exceptions import UpdateFinishedTrialError

        try:
            return self._store.rdb.set_trial_state_values(trial._trial_id, self._states.RUNNING)
        except UpdateFinishedTrialError:
            return False

    @_patient
    def owns(self, ticket: Trial) -> bool:
        """Return whether the ticket is still this parent's: another parent may have recovered it as stale."""
        state = self._store.rdb.get_trial(ticket._trial_id).state
        return state == self._states.RUNNING

    @_patient
    def release(self, ticket: Trial) -> None:
        """Return an unfinished ticket to the queue."""
        self._store.stop_heartbeat(ticket._trial_id)
        if not self._store.shared:
            self._store.rdb.set_trial_state_values(ticket._trial_id, self._states.WAITING)
            return
        self._tell(ticket.number, RunState.INTERRUPTED, math.nan)  # with its old heartbeat, a second claim would look stale
        self.enqueue([key_of(ticket)])

    @_patient
    def tell(self, ticket: Trial, state: str, value: float) -> None:
        """Close the ticket of a run that ended in ``state`` with this value (NaN when it has none).

        If another parent has recovered the ticket as stale meanwhile, that parent closes it with the recorded result.
        """
        from optuna.exceptions import UpdateFinishedTrialError

        with suppress(UpdateFinishedTrialError):
            ticket.set_user_attr("state", str(state))  # a finished trial takes no attributes
            self._tell(ticket.number, state, value)
        self._store.stop_heartbeat(ticket._trial_id)  # last: until here the trial must not look stale

    @_patient
    def close_finished(self, ticket: Trial, value: float) -> None:
        """Close the ticket of a run that turns out to be finished: as completed, unless another ticket of its key is."""
        duplicate = key_of(ticket) in self.keys("COMPLETE", "PRUNED")
        self.tell(ticket, RunState.FAILED if duplicate else RunState.COMPLETED, value)

    def _tell(self, number: int, state: str, value: float) -> None:
        if state in WITHOUT_RESULT:
            self.study.tell(number, state=self._states.FAIL, skip_if_finished=True)
        elif math.isfinite(value) and state == RunState.COMPLETED:
            self.study.tell(number, value, skip_if_finished=True)
        else:
            self.study.tell(number, state=self._states.PRUNED, skip_if_finished=True)


STOP = "stop"  # attribute of a trial: the step at which it was stopped


class Search:
    """The search for the best parameters of one cell.

    Attributes:
        keys: of its trials, in order.
        metric: the curve by which a running trial is judged.
        score: the metric on the validation split by which its trials are ranked.
        starts_from: the key of the run that its trials start from, or "".
    """

    def __init__(self, plan: Plan, cell: Cell, store: Store) -> None:
        assert plan.study.search is not None
        self.cell, self._plan, self._config = cell, plan, plan.study.search
        self.digest = plan.search_digest(cell)
        metric, self._direction = plan.metric_of(cell)
        self.queue = Queue(
            store,
            f"{plan.study.study} / {cell.name} / {self.digest}",
            direction=self._direction,
            pruner=pruner(self._config.pruner),
        )
        self.keys = [f"{self.digest}.t{n:02d}" for n in range(self._config.trials)]
        self.metric, self.score = f"valid/{metric}", f"valid_{metric}"
        init = cell.with_seed(cell.config, self._config.seed).init
        self.starts_from = init.fingerprint if init else ""

    def claim(self) -> tuple[Trial, Run] | None:
        """Claim the next trial; None when ``parallel`` trials already run, none is left, or its configuration is invalid."""
        if len(self.queue.trials("RUNNING")) >= self._config.parallel:
            return None
        waiting = self.queue.keys("WAITING") & set(self.keys)
        if not waiting:
            return None
        n = self.keys.index(min(waiting))
        self.queue.study.sampler = sampler(self._config.sampler, seed=self._config.seed, trial=n)
        ticket = self.queue.claim({self.keys[n]})
        if ticket is None:  # another parent claimed it first
            return None
        params: dict[str, Any] = {}
        if not self.queue.update(ticket, lambda: params.update(suggest(ticket, self._config.space))):
            return None
        try:
            return ticket, self._plan.search_run(self.cell, n, params)
        except UserError as error:  # each value is valid, but not their combination
            reason = str(error)
            if self.queue.update(ticket, lambda: ticket.set_user_attr("reason", reason)):
                self.queue.tell(ticket, RunState.FAILED, math.nan)
            return None

    def should_stop(self, ticket: Trial, step: int, metrics: dict[str, float]) -> bool | None:
        """Return whether to stop a trial after this point of its curve; None when the point is no evaluation.

        A trial that resumes repeats points that an earlier attempt sent: it gets the earlier answer.
        """
        if self.metric not in metrics:
            return None
        stop = list[bool]()
        self.queue.update(ticket, lambda: stop.append(self._judge(ticket, step, metrics[self.metric])))
        return bool(stop) and stop[-1]  # a trial that was taken over trains to the end: its files are those of the other parent

    def _judge(self, ticket: Trial, step: int, value: float) -> bool:
        stored = ticket.storage.get_trial(ticket._trial_id)
        if step not in stored.intermediate_values:
            ticket.report(value, step)
        elif step != stored.last_step:
            return False  # an earlier attempt continued past this step, so it was not stopped here
        elif stored.user_attrs.get(STOP) == step:
            return True
        stop = bool(ticket.should_prune())
        if stop:
            ticket.set_user_attr(STOP, step)  # successive halving answers once only
        return stop

    @property
    def ended(self) -> set[str]:
        """The keys of the trials that have an outcome."""
        failed = {key_of(t) for t in self.queue.trials("FAIL") if t.user_attrs.get("state") in WITHOUT_RESULT}
        return (self.queue.keys("COMPLETE", "PRUNED") | failed) - self.queue.keys("WAITING", "RUNNING")

    @property
    def is_over(self) -> bool:
        """True when every trial has an outcome."""
        return set(self.keys) <= self.ended

    def best_params(self) -> dict[str, Any]:
        """Return the parameters of the best completed trial within the budget; empty when none was completed."""
        completed = [t for t in self.queue.trials("COMPLETE") if key_of(t) in self.keys]
        choose = min if self._direction == "min" else max  # both return the oldest of equal trials
        best = choose(completed, key=lambda trial: trial.values[0], default=None)
        return values(best.params, self._config.space) if best else {}


def trials_to_queue(
    keys: Collection[str], *, ended: Collection[str], recorded: Collection[str], finished: Collection[str]
) -> list[str]:
    """Return the trials of one search that need a ticket, in the order of ``keys``.

    Args:
        keys: of the search's trials.
        ended: keys with an outcome on their ticket.
        recorded: keys with a closed record in MLflow.
        finished: keys with a record that counts as a result.

    A trial that ended without a record was an invalid configuration, and would be one again. A trial with a result but
    without a ticket (``optuna.db`` was deleted) gets a ticket: its child finds the result in its folder.
    """
    return [key for key in keys if key not in ended or (key in recorded and key not in finished)]
