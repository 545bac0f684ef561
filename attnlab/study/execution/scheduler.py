"""Where the parent's work comes from: the queue of the grid's runs, and behind it the search in each cell."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnlab.study.trials.queue import FAILED, Queue, Ticket
from attnlab.study.trials.search import Search
from attnlab.tracking.tracker import failures, reset_pending, state_of

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan, Run
    from attnlab.study.trials.store import Store
    from attnlab.tracking.client import Record
    from attnlab.tracking.tracker import Tracker


@dataclass(frozen=True)
class ClaimedRun:
    """A run that this parent has claimed."""

    run: Run
    ticket: Ticket
    queue: Queue
    search: Search | None = None


class Scheduler:
    """Everything there is to run in a study, for one call of ``run``.

    Args:
        retry: states to try again although they are results, or although they were tried often enough.

    Attributes:
        anew: keys of runs whose earlier result is still to be forgotten, by the child that trains them again.
        runs: key -> run of everything that will be reported, as far as it is known.
        found: key -> record of those of them that had a result before this call.
        unconfirmed: cell -> why nothing of it can be confirmed, or "" once its confirming runs are queued.
    """

    def __init__(self, plan: Plan, tracker: Tracker, store: Store, *, retry: Collection[str]) -> None:
        self._plan, self._tracker, self._store, self._retry = plan, tracker, store, retry
        self._metric = plan.metric
        self._grid = Queue(store, plan.study.study, direction=plan.direction)
        self.runs: dict[str, Run] = {}
        self.found: dict[str, Record] = {}
        self.unconfirmed: dict[str, str] = {}
        searched = [cell for cell in plan.cells if cell.refusal is None] if plan.searched else []
        self._searches = {cell.name: Search(plan, cell, store) for cell in searched}
        self._records: dict[str, Record] = {}
        self._asked: set[str] = set()  # MLflow's ids of the records that are to be replaced: what replaces them is a result
        self.anew: set[str] = set()
        self._settled: set[str] = set()  # cells of which a trial has just ended
        self._refreshed = time.monotonic()

    def open(self) -> None:
        """Put in order what earlier parents left, and queue what has no result yet."""
        alive = {key for queue in self._queues for key in queue.keys("RUNNING")} if self._store.shared else set()
        self._records = self._tracker.reconcile(alive=alive, shared=self._store.shared)
        asked = {key: found for key, found in self._records.items() if state_of(found) in self._retry}
        self._asked = {found.info.run_id for found in asked.values()}
        self.anew = {key for key, found in asked.items() if state_of(found) not in FAILED}
        self.anew |= {key for key, found in self._records.items() if reset_pending(found)}
        done = {key: _value(found, self._metric) for key, found in self._records.items() if self._has_result(found)}
        for search in self._searches.values():
            at_valid = {key: _value(self._records[key], f"valid_{self._metric}") for key in search.keys if key in done}
            search.queue.recover(at_valid, wanted=search.keys)
            ended, tried = search.ended, {key for key, found in self._records.items() if found.info.status != "RUNNING"}
            # A trial that ended without a record was no valid configuration: it would not be one the next time either. One
            # with a result and no ticket (optuna.db was deleted) gets one: its child finds the result in its folder.
            search.queue.fill(key for key in search.keys if key not in ended or (key in tried and key not in done))
        kept = self._grid.keys("WAITING", "RUNNING") if self._searches else {run.key for run in self._plan.runs}
        self._grid.recover(done, wanted=kept)
        self._add(self._plan.runs)
        self._confirm(self._searches)

    @property
    def _queues(self) -> list[Queue]:
        return [self._grid, *(search.queue for search in self._searches.values())]

    def _has_result(self, found: Record) -> bool:
        if found.info.run_id in self._asked:
            return False
        return found.info.status == "FINISHED" or failures(found) > self._plan.study.retries

    def _add(self, runs: list[Run]) -> None:
        """Queue these runs, those that have a result left out; the first seed of all cells first: a whole table early on."""
        new = {run.key: run for run in runs}
        self.runs |= new
        known = {key: self._records[key] for key in new if key in self._records}
        self.found |= {key: found for key, found in known.items() if self._has_result(found)}
        order = sorted(new.values(), key=lambda run: self._plan.seeds.index(run.seed))
        self._grid.fill(run.key for run in order if run.key not in self.found)

    def _confirm(self, names: Collection[str]) -> None:
        """Queue the confirming runs of those of these cells whose search is over."""
        for name in names:
            search = self._searches[name]
            if name in self.unconfirmed or not search.over:
                continue
            best = search.best()
            self.unconfirmed[name] = "" if best else "none of the trials of its search was completed"
            if best:
                self._add([self._plan.confirm_run(search.cell, seed, best) for seed in self._plan.seeds])

    @property
    def left(self) -> int:
        """How many runs are still to come, as far as can be known."""
        trials = sum(len(set(search.keys) - search.ended) for search in self._searches.values())
        confirming = (len(self._searches) - len(self.unconfirmed)) * len(self._plan.seeds)
        return len(self.runs) - len(self.found) + trials + confirming

    @property
    def trials(self) -> list[str]:
        """The keys of everything that is searched."""
        return [key for search in self._searches.values() for key in search.keys]

    def next(self) -> ClaimedRun | None:
        """Claim something to run; None when there is nothing at this moment."""
        self._confirm(self._settled)  # asking every search costs more the more cells there are
        self._settled.clear()
        given = self._claim()
        if given is not None:
            return given
        before = len(self.unconfirmed)
        self._confirm(self._searches)  # another parent may have brought one to its end
        return self._claim() if len(self.unconfirmed) > before else None

    def _claim(self) -> ClaimedRun | None:
        ticket = self._grid.take(self.runs.keys())  # of a finished run, too: a parent that died had entered it again meanwhile
        if ticket is not None:
            return ClaimedRun(self.runs[ticket.key], ticket, self._grid)
        for name, search in self._searches.items():
            claimed = None if name in self.unconfirmed else search.take()
            if claimed is not None:
                return ClaimedRun(claimed[1], claimed[0], search.queue, search)
        return None

    def settle(self, given: ClaimedRun, state: str, summary: dict[str, float]) -> None:
        """A run that was claimed ended in ``state``, with these figures."""
        name = self._metric if given.search is None else f"valid_{self._metric}"
        given.queue.tell(given.ticket, state, summary.get(name, math.nan))
        if given.search is not None:
            self._settled.add(given.search.cell.name)

    def finished_elsewhere(self, given: ClaimedRun) -> bool:
        """Whether another parent finished a run before we claimed it; its ticket is settled then."""
        if not self._store.shared:
            return False
        found = self._tracker.find(given.ticket.key)
        if found is None or not self._has_result(found):
            return False
        given.queue.drop(given.ticket, _value(found, self._metric if given.search is None else f"valid_{self._metric}"))
        return True

    def refresh(self) -> None:
        """Among several parents, from time to time: take back what a dead one held."""
        if self._store.shared and time.monotonic() - self._refreshed > self._store.every:
            self._refreshed = time.monotonic()
            for queue in self._queues:
                queue.recover({}, wanted=())

    @property
    def pending(self) -> bool:
        """Whether something of this study waits or runs, here or elsewhere."""
        return any(not search.over for search in self._searches.values()) or bool(
            self._grid.keys("WAITING", "RUNNING") & self.runs.keys()
        )


def _value(found: Record, metric: str) -> float:
    return found.data.metrics.get(metric, math.nan)
