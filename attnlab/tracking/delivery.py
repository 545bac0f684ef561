"""The way to the MLflow store: in order, however long the store is away, and without holding a study up.

All calls of a study go through one thread. A call that gets no answer (a server that is away or hangs, a locked
database) is tried again, with a pause that grows, and nothing overtakes it: nothing is lost and the order stays. That a
call may be done twice does no harm: a metric point that the store has already is the same point, because its time was
fixed when it was logged (MLflow's primary key is run, name, time, step and value), params, tags and states are set to
what they are, and a record is opened once (``Patient.create_run``). A call that the store refuses is not repeated; nor
is one for which there is no room on the disk.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from attnlab._util.files import describe_disk_error
from attnlab._util.redact import redact
from attnlab.errors import UserError
from attnlab.tracking.client import absence, one_line

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as Record

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between two tries
PATIENCE = 600.0  # seconds; ATTNLAB_TRACKING_PATIENCE sets another number
QUIET = 5.0  # seconds of failing tries before anything is said
LEAVING = 5.0  # seconds for everything that is still asked once somebody is leaving
logger = logging.getLogger(__name__)

MARK = "attnlab.attempt_id"  # tag: which call opened the record


class TrackingTimeout(UserError):
    """The store did not answer for as long as one was willing to wait."""


class TrackingRejected(UserError):
    """The store answered, and will not do what it was asked."""


def patience() -> float:
    """Seconds to wait for a store that does not answer: ``ATTNLAB_TRACKING_PATIENCE``, else ten minutes."""
    given = os.environ.get("ATTNLAB_TRACKING_PATIENCE", PATIENCE)
    try:
        return float(given)
    except ValueError:
        raise UserError(f"expected a number of seconds, got {given!r}", "ATTNLAB_TRACKING_PATIENCE") from None


@dataclass
class _Call:
    do: Callable[[], Any]
    about: str
    answer: Future[Any] = field(default_factory=Future)
    given_up: bool = False


class Delivery:
    """One thread that makes calls, each until it is answered.

    Args:
        store: what to call the store in messages.
        patience: seconds that ``ask`` waits for a store that does not answer.

    Attributes:
        meanwhile: called about ten times a second while ``ask`` waits. It must not use this delivery.
    """

    def __init__(self, store: str, *, patience: float) -> None:
        self._store, self._patience = store, patience
        self._until = float("inf")  # when ``ask`` stops waiting, whatever its patience
        self._since: float | None = None  # since when there has been no answer: when the oldest open call was first tried
        self._reason = ""  # why its last try got no answer
        self._away = self._closed = False
        self._refusals: dict[str, Exception] = {}
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self.meanwhile: Callable[[], None] = lambda: None
        threading.Thread(target=self._deliver, name="attnlab-mlflow", daemon=True).start()

    def submit(self, do: Callable[[], object], *, about: str = "") -> None:
        """Have a call made, some time.

        Args:
            about: the run that it is for. Where it is refused, the next call about the same run raises instead.

        Raises:
            Refused: an earlier call about the same run was.
        """
        self.raise_pending(about)
        self._put(do, about)

    def call(self, do: Callable[[], Any], *, about: str = "") -> Any:
        """Make a call after all earlier ones, and wait for what it returns.

        Raises:
            Absent: the store did not answer in time. What is asked after that is in a hurry.
            Refused: the store will not do it, or an earlier call about the same run was refused.
        """
        self.raise_pending(about)
        call, asked = self._put(do, about), time.monotonic()
        try:
            while not wait([call.answer], timeout=0.1).done:
                self._tell()
                self.meanwhile()
                now = time.monotonic()
                if now > min(max(asked, self._since or asked) + self._patience, self._until):
                    self.set_deadline()
                    reason = self._reason or "it hangs"
                    raise TrackingTimeout(f"expected an answer of the MLflow store {self._store}, got none: {reason}")
            self._tell()
            return call.answer.result()
        finally:
            call.given_up = True  # after an interrupt, say: nothing is done behind the caller's back
            self._refusals.pop(about, None)  # told

    def set_deadline(self) -> None:
        """Somebody is leaving: whatever is still asked gets ``LEAVING`` seconds, all together."""
        self._until = min(self._until, time.monotonic() + LEAVING)

    @property
    def hurried(self) -> bool:
        """Whether somebody is leaving."""
        return self._until != float("inf")

    def close(self) -> None:
        """End the thread; what is not delivered by now never is."""
        self._closed = True
        self._calls.put(None)

    def raise_pending(self, about: str = "") -> None:
        """Say it where the store went away or came back; raise what an earlier call about this run came to.

        Raises:
            Refused: it was refused.
        """
        self._tell()
        if about in self._refusals:
            raise self._refusals.pop(about)

    def _put(self, do: Callable[[], Any], about: str) -> _Call:
        call = _Call(do, about)
        self._calls.put(call)
        return call

    def _tell(self) -> None:
        """Say that the store does not answer, once, and that it is back, once. Only the caller's thread prints."""
        since, why = self._since, self._reason
        away = since is not None and bool(why) and time.monotonic() - since > QUIET
        if away == self._away:
            return
        self._away = away
        if away:
            text = "the MLflow store %s does not answer (%s): waiting; runs go on, their points are kept"
            logger.warning(text, self._store, why)
        else:
            logger.info("the MLflow store %s answers again", self._store)

    def _deliver(self) -> None:
        while (call := self._calls.get()) is not None:
            if call.about in self._refusals:  # nothing after what was refused counts as done
                call.answer.set_exception(self._refusals[call.about])
                continue
            self._since = self._since or time.monotonic()
            if self._until_answered(call):
                self._since, self._reason = None, ""

    def _until_answered(self, call: _Call) -> bool:
        """Make a call; whether an answer came before it was given up."""
        pause = FIRST_PAUSE
        while not (call.given_up or self._closed):
            try:
                answer = call.do()
            except Exception as error:
                reason = absence(error)
                if reason is None:
                    self._refuse(call, error)
                    return True
                self._reason = reason
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                call.answer.set_result(answer)
                return True
        return False

    def _refuse(self, call: _Call, error: Exception) -> None:
        disk = describe_disk_error(error)
        refusal = TrackingRejected(redact(disk) if disk else f"the MLflow store {self._store} refused: {one_line(error)}")
        refusal.__cause__ = error
        call.answer.set_exception(refusal)
        if call.about:
            self._refusals[call.about] = refusal


class Patient:
    """An ``MlflowClient`` whose every call is made by a delivery and waited for.

    Attributes:
        opened: for each record that was asked for, its mark and its id; an empty id where no answer came.
    """

    def __init__(self, client: MlflowClient, delivery: Delivery) -> None:
        self._client, self._delivery = client, delivery
        self.opened: dict[str, str] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *args, **words: self._delivery.call(partial(method, *args, **words))

    def create_run(self, experiment: str, *, run_name: str, tags: dict[str, str]) -> Record:
        """Open a record, once: a try that got no answer may have been carried out, and is looked for."""
        mark, tries = uuid4().hex, count()
        marked = {**tags, MARK: mark}

        def create() -> Record:
            again = next(tries) > 0
            found = self._client.search_runs([experiment], f"tags.`{MARK}` = '{mark}'") if again else []
            return found[0] if found else self._client.create_run(experiment, run_name=run_name, tags=marked)

        self.opened[mark] = ""
        created = self._delivery.call(create)
        self.opened[mark] = created.info.run_id
        return created
