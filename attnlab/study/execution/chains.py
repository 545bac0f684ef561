"""Runs that start from others: when each may start, and what ends it if the run before it did not complete.

A run waits while the run that it starts from is waiting or training. It may start when that run has completed, and
fails without being trained when that run ended otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attnlab._util.run_state import RunState
from attnlab.errors import UserError
from attnlab.study.execution.rows import run_folder
from attnlab.tracking.attempts import state_of
from attnlab.tracking.weights import fetch_weights

if TYPE_CHECKING:
    from attnlab.planning.plan import Run
    from attnlab.study.trials.queue import Queue
    from attnlab.study.trials.store import Store
    from attnlab.tracking.client import Record
    from attnlab.tracking.tracker import Tracker


class Chains:
    """The ends of the runs that other runs of a study start from.

    Args:
        runs: key -> run of the study, to which the scheduler adds.
        finished: key -> record of the runs that had a result before this call.
        queue: of the runs that others start from.
        store: of the queue.
    """

    def __init__(
        self,
        runs: Mapping[str, Run],
        finished: Mapping[str, Record],
        *,
        queue: Queue,
        tracker: Tracker,
        store: Store,
    ) -> None:
        self._runs, self._finished, self._queue, self._tracker, self._store = runs, finished, queue, tracker, store
        self._ended: dict[str, tuple[str, str]] = {}  # key -> state and reason

    def record_end(self, key: str, state: RunState, reason: str) -> None:
        """Record how a run of this call ended."""
        self._ended[key] = (str(state), reason)

    def is_open(self, key: str) -> bool:
        """Return whether the run that another one starts from has yet to end; False for "", the start from scratch."""
        return bool(key) and self._end_of(key) is None

    def problem(self, run: Run) -> str:
        """Return the reason why a run that no longer waits cannot start, else "".

        The run before it did not complete, or its weights are on another machine and cannot be fetched from there.
        """
        end = self._end_of(run.starts_from) if run.starts_from else None
        if end is None:
            return ""
        if end[0] == RunState.COMPLETED:
            return self._fetch(run.starts_from) if self._store.shared else ""
        before, (state, reason) = self._runs.get(run.starts_from), end
        name = repr(before.name) if before else run.starts_from
        return f"not trained: {name}, which it starts from, ended as {state}{f': {reason}' if reason else ''}"

    def _fetch(self, key: str) -> str:
        """Fetch the weights of a completed run that another parent trained; return the reason why they cannot be, else ""."""
        record = self._tracker.find(key)
        try:
            if record is not None:
                fetch_weights(record, run_folder(self._store.root, key), root=self._store.root)
        except UserError as error:
            return f"not trained: {error}"
        return ""

    def _end_of(self, key: str) -> tuple[str, str] | None:
        """Return the state and reason with which a run ended, or None if it is waiting or training."""
        if key not in self._ended:
            record = self._finished.get(key)
            if record is None and self._store.shared and key not in self._queue.open_keys():
                record = self._tracker.find(key)  # another parent trained it
                if record is None:
                    self._ended[key] = (str(RunState.FAILED), "it has no record")
            if record is not None and (state := state_of(record)) != RunState.RUNNING:
                self._ended[key] = (state, record.data.tags.get("attnlab.reason", ""))
        return self._ended.get(key)
