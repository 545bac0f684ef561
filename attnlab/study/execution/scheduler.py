"""The order of a study's runs: the searches of its cells first, then the reported runs, seed by seed.

All cells are trained with the first seed, then all with the second, and so on, so that the finished runs of an interrupted
study are pairs. With the first seed they have the order of the plan, which tables show; with the others, the longest come
first, so that workers end at about the same time. The confirming runs of a searched cell wait until no trial of any cell can
be started, so that they are pairs, too.

Some runs start from others. Such a run waits while the run that it starts from is waiting or training. It may
start when that run has completed, and fails without being trained when that run ended otherwise.

Three ledgers know of a run, and each decides one thing:

- The ticket in Optuna decides who trains it. Only the parent whose ticket is RUNNING ends its record; one that lost its ticket
  meanwhile deletes what it wrote.
- The record in MLflow decides whether it has a result: its status is written last. A ticket never makes a result, and a ticket
  whose run has none is queued again.
- ``result.json`` in its folder decides that it is not trained twice. A run that is claimed again reports what it finds there.

An end is written in the order file, record, ticket, and a withdrawal in the order record, file, ticket. After a crash between
two of them, the next call finds the earlier ones and repeats the rest: `Tracker.reconcile` closes or replaces records, then
`Queue.recover` and `Scheduler.open` follow them. Among several parents, the ticket of a dead one returns to the queue when its
heartbeats stop, and `Scheduler.finished_elsewhere` reads the record before a claimed run is trained.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attnlab._util.run_state import RunState
from attnlab.errors import UserError
from attnlab.study.trials.queue import Queue, Search, key_of, trials_to_queue
from attnlab.tracking.artifacts import fetch_weights
from attnlab.tracking.client import run_folder
from attnlab.tracking.record import unrecorded
from attnlab.tracking.withdrawn import files_to_remove, outdated_records

if TYPE_CHECKING:
    from attnlab._util.run_state import Reset
    from attnlab.planning.plan import Plan, Run
    from attnlab.study.execution.child import Worker
    from attnlab.study.trials.queue import Trial
    from attnlab.study.trials.store import Store
    from attnlab.tracking.record import RunRecord
    from attnlab.tracking.tracker import Tracker
    from attnlab.training.result import Result


@dataclass(eq=False)
class RunInFlight:
    """A run that this parent has claimed, and its process once there is one.

    Attributes:
        search: of a trial; None for a run of the grid.
        problem: the reason why it cannot be trained, because the run that it starts from did not complete; else "".
        run_id: MLflow's id of its record.
        slot: the number of its process among those that run at the same time.
    """

    run: Run
    ticket: Trial
    queue: Queue
    search: Search | None = None
    problem: str = ""
    worker: Worker = field(init=False)
    run_id: str = ""
    slot: int = 0


class Scheduler:
    """The runs of a study that are left, for one call of ``attnlab.run``.

    Args:
        retry: states that are tried again although they are results, or although they failed too often.

    Attributes:
        store: of the queues.
        runs: key -> run of everything that will be reported, as far as it is known.
        finished: key -> record of those runs that had a result before this call.
        to_remove: key -> files of an earlier attempt that the child must remove before it trains.
        withdrawn: key -> reason why a run that may have been finished is trained again: its record was deleted.
        confirmed: cells with queued confirming runs.
        unconfirmed: cell -> the record that states why its search leaves nothing to confirm.
    """

    def __init__(self, plan: Plan, tracker: Tracker, store: Store, *, retry: Collection[str]) -> None:
        self._plan, self._tracker, self.store, self._retry = plan, tracker, store, retry
        self._grid = Queue(store, plan.study.study, direction=plan.direction)
        searched = [cell for cell in plan.cells if cell.refusal is None] if plan.searched else []
        self._searches = {cell.name: Search(plan, cell, store) for cell in searched}
        self._seed_ranks = {seed: i for i, seed in enumerate(plan.seeds)}
        self._cell_ranks = {cell.name: i for i, cell in enumerate([*plan.stages, *plan.cells])}
        longest_first = sorted(plan.cells, key=lambda cell: -(cell.train_flops or 0))
        self._later_ranks = self._cell_ranks | {cell.name: len(plan.stages) + i for i, cell in enumerate(longest_first)}
        self.runs: dict[str, Run] = {}
        self.finished: dict[str, RunRecord] = {}
        self._ended: dict[str, tuple[str, str]] = {}  # key -> state and reason, of runs that others start from
        self.to_remove: dict[str, Reset] = {}
        self.withdrawn: dict[str, str] = {}
        self.confirmed: set[str] = set()
        self.unconfirmed: dict[str, RunRecord] = {}
        self._records: dict[str, RunRecord] = {}  # of earlier calls, by key
        self._order: list[str] = []  # keys of `runs`, in the order in which they are claimed
        self._to_replace: set[str] = set()  # ids of the records that the user wants retried
        self._with_new_results: set[str] = set()  # cells in which a trial has ended since the last claim
        self._recovered_at = time.monotonic()

    def open(self) -> None:
        """Restore the queues after earlier calls, and queue every run without a result."""
        # 1. Close the records of dead parents, so that step 2 reads final states. Runs that other parents train stay open.
        self._records = self._tracker.reconcile(alive=self._keys_of_others if self.store.shared else None)
        # 2. Decide which results count. From here on a record to be replaced is not a result (see `_has_result`).
        self._to_replace = {record.run_id for record in self._records.values() if record.state in self._retry}
        self.withdrawn = self._tracker.withdrawn()
        self.to_remove = files_to_remove(self._records, self._retry, withdrawn=self.withdrawn)
        if self._to_replace or self.withdrawn:
            self._renew_dependants()
        for search in self._searches.values():
            search.queue.forget(self.withdrawn)
        finished = {key for key, record in self._records.items() if self._has_result(record)}
        # 3. Restore the searches before the grid: the confirming runs of step 5 depend on which searches are over.
        for search in self._searches.values():
            self._restore_search(search, finished)
        # 4. Take back the grid tickets of dead parents before queueing, so that no key gets a second live ticket. The
        #    confirming runs of a search are not known yet, so none of its tickets is dropped.
        runs = [*self._plan.stage_runs, *self._plan.runs]
        tickets = self._grid.keys("WAITING", "RUNNING") if self._searches else {run.key for run in runs}
        metrics = {cell.name: self._plan.metric_of(cell)[0] for cell in self._plan.cells}
        records = [self._records[key] for key in finished]
        values = {r.key: r.summary.get(metrics.get(r.cell, self._plan.metric), math.nan) for r in records}
        self._grid.recover(values, wanted=tickets)
        # 5. Queue what is left.
        self._add(runs)
        self._confirm(self._searches)

    def _renew_dependants(self) -> None:
        """Let the results of runs no longer count if a run that they started from is trained again."""
        retried = {key for key, record in self._records.items() if record.run_id in self._to_replace}
        for key, record in outdated_records(self._records, {*retried, *self.withdrawn}).items():
            self._to_replace.add(record.run_id)
            self.withdrawn.setdefault(key, "based on earlier weights of its stage")

    def _restore_search(self, search: Search, finished: Collection[str]) -> None:
        for trial, key in enumerate(search.keys):
            if key in self._records:
                self._records[key] = self._tracker.rename(
                    self._records[key], name=f"{search.cell.name} t{trial:02d}", cell=search.cell
                )
        done = [key for key in search.keys if key in finished]
        values = {key: self._records[key].summary.get(search.score, math.nan) for key in done}
        search.queue.recover(values, wanted=search.keys)
        recorded = {key for key, record in self._records.items() if record.status != "RUNNING"}
        tickets = trials_to_queue(search.keys, ended=search.ended, recorded=recorded, finished=finished)
        search.queue.enqueue(tickets)

    def _keys_of_others(self) -> set[str]:
        """Return the keys that other parents are training."""
        return {key for queue in self._queues for key in queue.keys("RUNNING")}

    @property
    def _queues(self) -> list[Queue]:
        return [self._grid, *(search.queue for search in self._searches.values())]

    def _has_result(self, record: RunRecord) -> bool:
        return record.run_id not in self._to_replace and record.has_result(retries=self._plan.study.retries)

    def _add(self, runs: list[Run]) -> None:
        """Queue the runs that have no result."""
        new = {run.key: run for run in runs}
        self.runs |= new
        self._order = sorted(self.runs, key=self._rank)
        known = {
            key: self._tracker.rename(self._records[key], name=run.name, cell=run.cell)
            for key, run in new.items()
            if key in self._records
        }
        self.finished |= {key: record for key, record in known.items() if self._has_result(record)}
        self._grid.enqueue([key for key in self._order if key in new and key not in self.finished])

    def _rank(self, key: str) -> tuple[int, int]:
        """Return the place of a run in the order: first its seed's, then its cell's; stages come before cells."""
        run = self.runs[key]
        seed = self._seed_ranks.get(run.seed, -1)  # -1: a stage of the search's trials
        return seed, (self._later_ranks if seed > 0 else self._cell_ranks)[run.cell.name]

    def _confirm(self, cells: Collection[str]) -> None:
        """Queue the confirming runs of each of ``cells`` that has finished its search."""
        for name in cells:
            search = self._searches[name]
            if self._is_decided(name) or not search.is_over:
                continue
            params = search.best_params()
            if params:
                self.confirmed.add(name)
                self._add([self._plan.confirm_run(search.cell, seed, params) for seed in self._plan.seeds])
            else:
                run = self._plan.confirm_run(search.cell, self._plan.seeds[0], {})
                self.unconfirmed[name] = unrecorded(run, "none of the trials of its search was completed", name=name)

    def _is_decided(self, cell: str) -> bool:
        return cell in self.confirmed or cell in self.unconfirmed

    @property
    def remaining(self) -> int:
        """The number of runs that have yet to end, here or in other parents, as far as it is known."""
        trials = sum(len(set(search.keys) - search.ended) for search in self._searches.values())
        undecided = sum(not self._is_decided(name) for name in self._searches)
        return len(self._grid.open_keys() & (self.runs.keys() - self.finished)) + trials + undecided * len(self._plan.seeds)

    @property
    def trials(self) -> list[str]:
        """The keys of all trials."""
        return [key for search in self._searches.values() for key in search.keys]

    def claim(self) -> RunInFlight | None:
        """Claim a run; None when nothing can be claimed at the moment."""
        self._confirm(self._with_new_results)  # not all searches: reading each costs time that grows with the cells
        self._with_new_results.clear()
        for name, search in self._searches.items():
            may_start = not self._is_decided(name) and not self._is_open(search.starts_from)
            claimed = search.claim() if may_start else None
            if claimed is not None:
                ticket, run = claimed
                return RunInFlight(run, ticket, search.queue, search, self._problem(run))
        self._confirm(self._searches)  # another parent may have finished a search
        # Keys of finished runs count too: a parent that died may have queued one again in the meantime.
        ticket = self._grid.claim(key for key in self._order if not self._is_open(self.runs[key].starts_from))
        if ticket is None:
            return None
        run = self.runs[key_of(ticket)]
        return RunInFlight(run, ticket, self._grid, problem=self._problem(run))

    def record_end(self, claimed: RunInFlight, ending: Result) -> None:
        """Close the ticket of a claimed run, which ended like this."""
        self._ended[claimed.run.key] = (str(ending.state), ending.reason)
        metric = self._metric_for(claimed)
        claimed.queue.tell(claimed.ticket, ending.state, ending.summary.get(metric, math.nan))
        if claimed.search is not None:
            self._with_new_results.add(claimed.search.cell.name)

    def finished_elsewhere(self, claimed: RunInFlight) -> bool:
        """Return whether another parent finished a run before it was claimed here; if so, close its ticket."""
        if not self.store.shared:
            return False
        record = self._tracker.find(claimed.run.key)
        if record is None or not self._has_result(record):
            return False
        claimed.queue.close_finished(claimed.ticket, record.summary.get(self._metric_for(claimed), math.nan))
        return True

    def _metric_for(self, claimed: RunInFlight) -> str:
        """Return the metric that a ticket is valued by: a trial never sees the test split."""
        return claimed.search.score if claimed.search else self._plan.metric_of(claimed.run.cell)[0]

    def recover_stale(self) -> None:
        """Take back, at intervals, the tickets of other parents that died."""
        if self.store.shared and time.monotonic() - self._recovered_at > self.store.heartbeat_interval:
            self._recovered_at = time.monotonic()
            for queue in self._queues:
                queue.recover({}, wanted=())

    @property
    def has_pending(self) -> bool:
        """True while a ticket of this study is open, here or in another parent; that of a finished run has yet to be closed."""
        searching = any(not search.is_over for search in self._searches.values())
        return searching or bool(self._grid.open_keys() & self.runs.keys())

    # ---------------------------------------------------------------- runs that start from others

    def _is_open(self, key: str) -> bool:
        """Return whether the run that another one starts from has yet to end; False for "", the start from scratch."""
        return bool(key) and self._end_of(key) is None

    def _problem(self, run: Run) -> str:
        """Return the reason why a run that no longer waits cannot start, else "".

        The run before it did not complete, or its weights are on another machine and cannot be fetched from there.
        """
        end = self._end_of(run.starts_from) if run.starts_from else None
        if end is None:
            return ""
        if end[0] == RunState.COMPLETED:
            return self._fetch(run.starts_from) if self.store.shared else ""
        before, (state, reason) = self.runs.get(run.starts_from), end
        name = repr(before.name) if before else run.starts_from
        return f"not trained: {name}, which it starts from, ended as {state}{f': {reason}' if reason else ''}"

    def _fetch(self, key: str) -> str:
        """Fetch the weights of a completed run that another parent trained; return the reason why they cannot be, else ""."""
        record = self._tracker.find(key)
        try:
            if record is not None:
                fetch_weights(record, run_folder(self.store.root, key), root=self.store.root)
        except UserError as error:
            return f"not trained: {error}"
        return ""

    def _end_of(self, key: str) -> tuple[str, str] | None:
        """Return the state and reason with which a run ended, or None when it is waiting or training."""
        if key not in self._ended:
            record = self.finished.get(key)
            if record is None and self.store.shared and key not in self._grid.open_keys():
                record = self._tracker.find(key)  # another parent trained it
                if record is None:
                    self._ended[key] = (str(RunState.FAILED), "it has no record")
            if record is not None and record.state != RunState.RUNNING:
                self._ended[key] = (record.state, record.reason)
        return self._ended.get(key)
