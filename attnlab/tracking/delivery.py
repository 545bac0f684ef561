"""Delivery to the MLflow store: in order, retried while the store is unavailable, without blocking training.

One thread makes all calls of a study. It repeats a call that gets no response (the server is unreachable or hangs, the
database is locked) with exponential backoff, and no later call overtakes it, so that nothing is lost and the order
is kept. Making a call twice does no harm: a repeated metric point is the same point, because its timestamp is fixed when
it is logged (MLflow's primary key is run, name, time, step and value); params, tags and states are set to the same
values; and a record is created once (``RetryingClient.create_run``). Calls that the store rejects are not repeated, nor
are calls that fail because the disk is full.
"""

from __future__ import annotations

import logging
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

from attnlab._util.database import is_conflict
from attnlab._util.files import describe_disk_error
from attnlab._util.patience import CONFLICTS, MAX_BACKOFF, MIN_BACKOFF, NOTICE_AFTER
from attnlab._util.redact import redact
from attnlab.errors import UserError
from attnlab.tracking.client import Point, log_batch, storable, summarize_error, unavailable_reason
from attnlab.tracking.record import REQUEST_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as Record

SHUTDOWN_SECONDS = 5.0  # for all remaining calls together, once ``set_deadline`` was called
FLUSH_POINTS, FLUSH_SECONDS = 400, 2.0  # buffered points are sent when either is reached

logger = logging.getLogger(__name__)


class TrackingTimeout(UserError):
    """The MLflow store did not respond within the timeout."""


class TrackingRejected(UserError):
    """The MLflow store responded and rejected the call."""


class TrackingDiskError(TrackingRejected):
    """The disk of the MLflow store is full or read-only, which concerns every run."""


@dataclass
class _Call:
    function: Callable[[], Any]
    run_id: str
    result: Future[Any] = field(default_factory=Future)
    abandoned: bool = False


class Delivery:
    """A thread that makes calls one after the other, each until the store responds.

    Args:
        store: the store's name in messages.
        timeout: seconds that ``call`` waits for a store that does not respond.

    Attributes:
        on_wait: called about ten times a second while ``call`` waits. It must not use this delivery.
    """

    def __init__(self, store: str, *, timeout: float) -> None:
        self._store, self._timeout = store, timeout
        self._deadline = float("inf")  # when ``call`` stops waiting regardless of the timeout
        self._since: float | None = None  # first attempt of the oldest unanswered call; None while the store responds
        self._reason = ""  # of its latest failure
        self._unavailable = self._closed = False
        self._rejections: dict[str, Exception] = {}  # run_id -> rejection that its next call raises
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self.on_wait: Callable[[], None] = lambda: None
        threading.Thread(target=self._deliver, name="attnlab-mlflow", daemon=True).start()

    def submit(self, function: Callable[[], object], *, run_id: str = "") -> None:
        """Queue a call and return immediately.

        Args:
            run_id: the run that the call is for. If the store rejects the call, the next one for this run raises.

        Raises:
            TrackingRejected: the store rejected an earlier call for the same run.
        """
        self.raise_pending(run_id)
        self._enqueue(function, run_id)

    def call(self, function: Callable[[], Any], *, run_id: str = "") -> Any:
        """Make a call after all earlier ones, wait for it and return its result.

        Raises:
            TrackingTimeout: the store did not respond in time. Later calls get ``SHUTDOWN_SECONDS``, all together.
            TrackingRejected: the store rejected this call or an earlier one for the same run.
        """
        self.raise_pending(run_id)
        call, started = self._enqueue(function, run_id), time.monotonic()
        try:
            while not wait([call.result], timeout=0.1).done:
                self._notify()
                self.on_wait()
                # The timeout counts from the oldest unanswered attempt, but not from before this call.
                waiting_since = max(started, self._since or started)
                now = time.monotonic()
                if now > min(waiting_since + self._timeout, self._deadline):
                    self.set_deadline()
                    message = f"MLflow at {self._store} did not respond within {now - waiting_since:.0f} s"
                    raise TrackingTimeout(f"{message}: {self._reason or 'the request hangs'}")
            self._notify()
            return call.result.result()
        finally:
            call.abandoned = True  # after an interrupt the call must not be made later
            self._rejections.pop(run_id, None)  # the exception has been raised

    def set_deadline(self) -> None:
        """Limit all remaining calls together to ``SHUTDOWN_SECONDS`` from now, because the study is being stopped."""
        self._deadline = min(self._deadline, time.monotonic() + SHUTDOWN_SECONDS)

    @property
    def has_deadline(self) -> bool:
        """True once ``set_deadline`` was called."""
        return self._deadline != float("inf")

    def close(self) -> None:
        """End the thread. Calls that are still queued are dropped."""
        self._closed = True
        self._calls.put(None)

    def raise_pending(self, run_id: str = "") -> None:
        """Notify the user of a change in availability, and raise the rejection of an earlier call for this run.

        Raises:
            TrackingRejected: the store rejected an earlier call for this run.
        """
        self._notify()
        if run_id in self._rejections:
            raise self._rejections.pop(run_id)

    def _enqueue(self, function: Callable[[], Any], run_id: str) -> _Call:
        call = _Call(function, run_id)
        self._calls.put(call)
        return call

    def _notify(self) -> None:
        """Log one line when the store stops responding and one when it responds again. Called by the caller's thread."""
        since, reason = self._since, self._reason
        unavailable = since is not None and bool(reason) and time.monotonic() - since > NOTICE_AFTER
        if unavailable == self._unavailable:
            return
        self._unavailable = unavailable
        if unavailable:
            message = "MLflow at %s does not respond (%s); retrying. Runs continue and metrics are buffered"
            logger.warning(message, self._store, reason)
        else:
            logger.info("MLflow at %s responds again", self._store)

    def _deliver(self) -> None:
        while (call := self._calls.get()) is not None:
            if call.run_id in self._rejections:  # no call after a rejected one may count as made
                call.result.set_exception(self._rejections[call.run_id])
                continue
            self._since = self._since or time.monotonic()
            if self._retry(call):
                self._since, self._reason = None, ""

    def _retry(self, call: _Call) -> bool:
        """Make a call until the store responds; return False when it was abandoned first."""
        backoff, conflicts = MIN_BACKOFF, 0
        while not (call.abandoned or self._closed):
            try:
                result = call.function()
            except Exception as error:
                conflict = is_conflict(error)
                conflicts += conflict
                reason = summarize_error(error) if conflict and conflicts < CONFLICTS else unavailable_reason(error)
                if reason is None:
                    self._reject(call, error)
                    return True
                self._reason = reason
                time.sleep(backoff)
                backoff = min(2 * backoff, MAX_BACKOFF)
            else:
                call.result.set_result(result)
                return True
        return False

    def _reject(self, call: _Call, error: Exception) -> None:
        disk = describe_disk_error(error)
        message = redact(disk) if disk else f"MLflow at {self._store} rejected the request: {summarize_error(error)}"
        rejection = (TrackingDiskError if disk else TrackingRejected)(message)
        rejection.__cause__ = error
        call.result.set_exception(rejection)
        if call.run_id:
            self._rejections[call.run_id] = rejection


class RetryingClient:
    """An ``MlflowClient`` that sends every call through a ``Delivery`` and waits for the result.

    Attributes:
        created: request ID of each ``create_run`` -> ID of the created run, or ``""`` if no response arrived.
    """

    def __init__(self, client: MlflowClient, delivery: Delivery) -> None:
        self._client, self._delivery = client, delivery
        self.created: dict[str, str] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *args, **kwargs: self._delivery.call(partial(method, *args, **kwargs))

    def create_run(self, experiment_id: str, *, run_name: str, tags: dict[str, str]) -> Record:
        """Create a run exactly once: before a retry, look for the run of an attempt that lost its response."""
        request_id, attempts = uuid4().hex, count()
        run_name = storable(run_name)
        tags = {name: storable(value) for name, value in tags.items()} | {REQUEST_TAG: request_id}

        def create() -> Record:
            is_retry = next(attempts) > 0
            if is_retry and (records := self._client.search_runs([experiment_id], f"tags.`{REQUEST_TAG}` = '{request_id}'")):
                return records[0]
            return self._client.create_run(experiment_id, run_name=run_name, tags=tags)

        self.created[request_id] = ""
        record = self._delivery.call(create)
        self.created[request_id] = record.info.run_id
        return record


@dataclass
class _Buffer:
    """Metric points of one run that have not been delivered."""

    points: list[Point] = field(default_factory=list)
    flushed: float = field(default_factory=time.monotonic)
    submitted: bool = False


class MetricBuffer:
    """Collects metric points and delivers them in batches; the timestamp of a point is the time of ``add``."""

    def __init__(self, client: MlflowClient, delivery: Delivery) -> None:
        self._client, self._delivery = client, delivery
        self._buffers: dict[str, _Buffer] = {}

    def add(self, run_id: str, step: int, metrics: dict[str, float]) -> None:
        """Add one point to each of a run's curves.

        Raises:
            TrackingRejected: the store rejected earlier points of this run.
        """
        buffer = self._buffers.setdefault(run_id, _Buffer())
        timestamp = int(1_000 * time.time())
        buffer.points += [(name, value, timestamp, step) for name, value in metrics.items()]
        if len(buffer.points) < FLUSH_POINTS and time.monotonic() - buffer.flushed < FLUSH_SECONDS:
            return
        buffer.flushed = time.monotonic()
        self._delivery.raise_pending(run_id)
        if not buffer.submitted:  # else the queued call sends these points too
            buffer.submitted = True
            self._delivery.submit(partial(self._send, run_id, buffer), run_id=run_id)

    def pop(self, run_id: str) -> list[Point]:
        """Stop buffering for this run; return its undelivered points, a list that a queued call may still shorten."""
        return self._buffers.pop(run_id, _Buffer()).points

    def _send(self, run_id: str, buffer: _Buffer) -> None:
        points = buffer.points.copy()
        log_batch(self._client, run_id, points=points)
        del buffer.points[: len(points)]  # points added in the meantime follow them
        buffer.submitted = False
