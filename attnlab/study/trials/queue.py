"""A queue of tickets in Optuna: who waits, who runs, what came out.

A queue is an Optuna study, a ticket one of its trials with a key of ours in its attributes. Every key has at most one
ticket that waits or runs; what is claimed is claimed by one parent (the database sees to that), and what a dead parent
held comes back.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attnlab.study.trials.store import Store

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial, Trial

FAILED = ("failed", "interrupted", "timed_out")  # states of a run that are no result


@dataclass(frozen=True)
class Ticket:
    """Something to run that this parent has claimed."""

    key: str
    trial: Trial

    @property
    def number(self) -> int:
        """Optuna's number of the trial."""
        return self.trial.number


class Queue:
    """One Optuna study as a queue.

    Args:
        direction: ``min`` or ``max``.
        sampler, pruner: of a search; a queue of fixed runs asks neither.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        direction: str,
        sampler: BaseSampler | None = None,
        pruner: BasePruner | None = None,
    ) -> None:
        import optuna

        self._store, self._states = store, optuna.trial.TrialState
        self._new_trial = optuna.trial.Trial
        self._mute: dict[int, float] = {}  # running trials that gave no sign of life yet -> when we saw them first
        way: Literal["minimize", "maximize"] = "minimize" if direction == "min" else "maximize"
        with store.alone():  # two that create one study at once: the second would find half of it
            self.study = optuna.create_study(
                study_name=name,
                storage=store.rdb,
                direction=way,
                sampler=sampler or optuna.samplers.RandomSampler(),
                pruner=pruner or optuna.pruners.NopPruner(),
                load_if_exists=True,
            )

    def trials(self, *states: str) -> list[FrozenTrial]:
        """The trials in one of these states (``WAITING RUNNING COMPLETE PRUNED FAIL``; none: all), oldest first."""
        wanted = tuple(self._states[state] for state in states) or None
        found = self.study.get_trials(deepcopy=False, states=wanted)
        return [trial for trial in found if "key" in trial.user_attrs]

    def keys(self, *states: str) -> set[str]:
        """The keys of the trials in one of these states."""
        return {trial.user_attrs["key"] for trial in self.trials(*states)}

    def fill(self, keys: Iterable[str]) -> None:
        """Enter a ticket for each of these that has none waiting or running; with the parameters of the one before it."""
        with self._store.alone():
            live = self.keys("WAITING", "RUNNING")
            before = {trial.user_attrs["key"]: trial.params for trial in self.trials() if trial.params}
            for key in keys:
                if key not in live:
                    self.study.enqueue_trial(before.get(key, {}), user_attrs={"key": key})

    def recover(self, finished: Mapping[str, float], *, wanted: Collection[str]) -> None:
        """Take back what dead parents held.

        Args:
            finished: key -> value of what has been written down as finished (NaN where it has no value).
            wanted: keys of the study as it stands; in a queue of our own all others are dropped.
        """
        if self._store.shared:
            self._bury()
            return
        for trial in self.trials("WAITING", "RUNNING"):
            key = trial.user_attrs["key"]
            if trial.state == self._states.WAITING and (key in finished or key not in wanted):
                self._store.rdb.set_trial_state_values(trial._trial_id, self._states.FAIL)
            elif key in finished:
                self._tell(trial.number, "completed", finished[key])
            elif key in wanted:  # the same trial goes on: its parameters, and its bracket in Hyperband, stay
                self._store.rdb.set_trial_state_values(trial._trial_id, self._states.WAITING)
            else:
                self._tell(trial.number, "failed", math.nan)

    def _bury(self) -> None:
        """Among several parents: fail the trials whose parent is dead, and enter them again.

        Optuna finds those that fell silent. One whose parent died between claiming it and its first sign of life
        never shows up there: it is ours to find, by a watch of our own since clocks of machines differ.
        """
        with self._store.alone():
            self._store.fail_silent(self.study)
            mute = {trial.number for trial in self.trials("RUNNING") if "begun" not in trial.user_attrs}
            self._mute = {number: self._mute.get(number, time.monotonic()) for number in mute}
            for number, since in self._mute.items():
                if time.monotonic() - since > self._store.grace:
                    self._tell(number, "interrupted", math.nan)
            newest = {trial.user_attrs["key"]: trial for trial in self.trials()}
            for key, trial in newest.items():
                if trial.state == self._states.FAIL and "state" not in trial.user_attrs:  # it did not fail by itself
                    self.study.enqueue_trial(trial.params, user_attrs={"key": key})

    def take(self, wanted: Collection[str]) -> Ticket | None:
        """Claim the oldest ticket with one of these keys; None when none waits."""
        for trial in self.trials("WAITING"):
            key = trial.user_attrs["key"]
            if key in wanted and self._store.rdb.set_trial_state_values(trial._trial_id, self._states.RUNNING):
                self._store.begin(trial._trial_id)
                claimed = self._new_trial(self.study, trial._trial_id)
                claimed.set_user_attr("begun", True)
                return Ticket(key, claimed)
        return None

    def is_ours(self, ticket: Ticket) -> bool:
        """Whether nobody has given this parent up for dead and taken the ticket from it."""
        state = self._store.rdb.get_trial(ticket.trial._trial_id).state
        return state == self._states.RUNNING

    def release(self, ticket: Ticket) -> None:
        """Give a ticket back unfinished: somebody may claim it."""
        self._store.end(ticket.trial._trial_id)
        if not self._store.shared:
            self._store.rdb.set_trial_state_values(ticket.trial._trial_id, self._states.WAITING)
            return
        self._tell(ticket.number, "interrupted", math.nan)  # its last sign of life would make a second claim look dead
        self.fill([ticket.key])

    def tell(self, ticket: Ticket, state: str, value: float) -> None:
        """A ticket's run ended in ``state`` with this value (NaN where it has none)."""
        self._store.end(ticket.trial._trial_id)
        ticket.trial.set_user_attr("state", state)
        self._tell(ticket.number, state, value)

    def drop(self, ticket: Ticket, value: float) -> None:
        """A ticket whose run turned out to be finished already: complete it, unless another has been."""
        done = ticket.key in self.keys("COMPLETE", "PRUNED")
        self.tell(ticket, "failed" if done else "completed", value)

    def _tell(self, number: int, state: str, value: float) -> None:
        if state in FAILED:
            self.study.tell(number, state=self._states.FAIL, skip_if_finished=True)
        elif math.isfinite(value) and state == "completed":
            self.study.tell(number, value, skip_if_finished=True)
        else:
            self.study.tell(number, state=self._states.PRUNED, skip_if_finished=True)
