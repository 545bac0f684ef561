"""The parent's loop: claim the runs that are left, train each in a separate process, and record how it ended."""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.machine import peak_memory_of
from attnlab._util.process import delayed_interrupts
from attnlab._util.run_state import WITHOUT_RESULT, Reset, RunState
from attnlab.errors import UserError
from attnlab.study.comparison import comparison_of, to_json
from attnlab.study.execution.child import Worker
from attnlab.study.execution.concurrency import Concurrency, Workers, choose, cuda_devices, device_environment
from attnlab.study.execution.job import Job
from attnlab.tracking.client import log_path, run_folder
from attnlab.tracking.delivery import TrackingDiskError, TrackingRejected
from attnlab.tracking.record import unrecorded
from attnlab.tracking.system_metrics import SystemMetrics
from attnlab.training.result import Result

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan
    from attnlab.study.execution.progress import ProgressDisplay
    from attnlab.study.execution.scheduler import RunInFlight, Scheduler
    from attnlab.tracking.record import RunRecord
    from attnlab.tracking.tracker import Tracker

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0  # between two looks at time limits, and at the runs that other parents leave


class _TakenOver(Exception):
    """Another parent took a run over because this one was silent for so long, and its record counts; or it only tried to."""


class Runner:
    """Runs a plan to its end; one instance serves one call of ``attnlab.run``.

    Args:
        root: the folder of runs.
        workers: the number of runs that train at the same time, or "auto".
        train: ``"module:function"`` that trains one run.
    """

    def __init__(
        self,
        plan: Plan,
        root: Path,
        *,
        tracker: Tracker,
        scheduler: Scheduler,
        display: ProgressDisplay,
        workers: Workers,
        train: str,
    ) -> None:
        self._plan, self._root, self._display, self._train = plan, root, display, train
        self._tracker, self._scheduler, self._system_metrics = tracker, scheduler, SystemMetrics()
        tracker.delivery.on_wait = scheduler.store.patience.on_wait = self._empty_pipes
        self._requested: Workers = workers
        self._concurrency = Concurrency(1, 1)
        self._limits = plan.study.run
        self._ended: dict[str, RunRecord] = {}  # of the runs that ended in this call, by their keys
        self._active: list[RunInFlight] = []
        self._expected_total = 0  # runs of the study, as far as known at its start
        self._devices: list[str] = []

    def run(self, *, partial: bool = False) -> list[RunRecord]:
        """Train every run that is left; return the record of each run of the plan.

        Args:
            partial: as for ``Tracker.update_current``.
        """
        scheduler = self._scheduler
        scheduler.open()
        self._tracker.log_study(to_json(comparison_of(self._plan)))
        refused = [self._tracker.log_refused(run, cell) for cell, run in self._plan.refused]
        finished = len(scheduler.finished)
        self._expected_total = finished + scheduler.remaining
        try:
            if scheduler.remaining:
                self._prepare_data()
                self._divide_processors()
            self._display.start_study(
                self._plan.study.study,
                runs=scheduler.remaining,
                finished=finished,
                workers=self._concurrency.workers,
                metrics=self._plan.metrics,
            )
            while self._step():
                pass
        except BaseException as error:
            self._abort(error)
            raise
        self._tracker.update_current([*scheduler.runs, *scheduler.trials], partial=partial)
        return [*self._records(), *refused]

    # ---------------------------------------------------------------- the loop

    def _prepare_data(self) -> None:
        """Download and prepare the data once, in the parent: the children only open it. A program has data of its own."""
        if self._plan.study.command is not None:
            return
        from attnlab.registry import TASKS

        tasks = [cell.config.task for cell in (*self._plan.stages, *self._plan.cells) if cell.refusal is None]
        for label, task in {task.label: task for task in tasks}.items():
            logger.info("data: %s", label)
            TASKS.get(task.name)(**task.options).prepare()

    def _divide_processors(self) -> None:
        """Set the number of runs at a time and the threads of each, which all runs of the study share."""
        chosen = choose(self._plan, self._requested, recorded=self._tracker.recorded_threads())
        self._tracker.record_threads(chosen.threads)
        self._concurrency, self._devices = chosen, cuda_devices(self._plan, workers=chosen.workers)

    def _step(self) -> bool:
        """Advance the study by one turn of the loop; return False when it is finished."""
        # 1. Fill the free slots.
        while len(self._active) < self._concurrency.workers and self._launch_next():
            pass
        if not self._active:
            if not self._scheduler.has_pending:
                return False
            time.sleep(POLL_SECONDS)  # other parents train the rest; if one dies, its runs return to the queue
        # 2. Wait for a child to send something or to end, unless messages have been received already.
        received = any(active.worker.inbox for active in self._active)
        waitables = [waitable for active in self._active for waitable in active.worker.waitables]
        ready = wait(waitables, timeout=0 if received else POLL_SECONDS)
        # 3. Handle messages, ends and time limits. Iterate over a copy, because ended runs leave the list and retries join it.
        system = self._system_metrics.read()
        for active in list(self._active):
            self._advance(active, ready, system)
        # 4. Raise what the MLflow store refused, and take back the runs of parents that died.
        self._tracker.delivery.raise_pending()
        self._scheduler.recover_stale()
        return True

    def _advance(self, active: RunInFlight, ready: list[Any], system: dict[str, float]) -> None:
        """Log the system metrics of a run, if any, and handle its messages and its end."""
        worker = active.worker
        worker.peak_memory = max(worker.peak_memory, peak_memory_of(worker.pid))
        try:
            if system:
                self._tracker.log_metrics(active.run_id, round(worker.seconds), system)
            if worker.inbox or any(waitable in ready for waitable in worker.waitables):
                self._handle_messages(active)
        except TrackingDiskError:
            raise
        except TrackingRejected as error:
            worker.kill()
            self._end(active, Result(RunState.FAILED, reason=str(error)))
            return
        if worker.closed:
            self._end(active, worker.reap())
        elif self._limits.timeout is not None and worker.seconds > self._limits.timeout:
            worker.kill()
            reason = f"no end after {self._limits.timeout:g} s (run.timeout)"
            self._end(active, Result(RunState.TIMED_OUT, reason=reason))

    def _empty_pipes(self) -> None:
        """Receive messages while the MLflow store is slow, so that no child has to wait for its parent."""
        for active in self._active:
            active.worker.receive()

    def _launch_next(self) -> bool:
        """Claim and start the next run; return False when nothing can be claimed."""
        claimed = self._scheduler.claim()
        self._count_ended()
        if claimed is None:
            return False
        if self._scheduler.finished_elsewhere(claimed):
            return True
        if claimed.problem:
            self._end_untrained(claimed)
            return True
        used = {active.slot for active in self._active}
        self._launch(claimed, slot=next(i for i in range(self._concurrency.workers) if i not in used))
        return True

    def _launch(self, claimed: RunInFlight, *, slot: int) -> None:
        """Start a process for a claimed run, and open its record."""
        run, job = claimed.run, self._job(claimed, slot=slot)
        try:
            worker = Worker(job)  # before its record is opened: a process that cannot start leaves no record
        except BaseException:
            claimed.queue.release(claimed.ticket)
            raise
        try:
            self._display.start_run(run.name, total=run.steps)
            if (reason := self._scheduler.withdrawn.pop(run.key, None)) is not None:
                logger.info("  %s: its record was %s; training it again", run.name, reason)
            claimed.worker, claimed.slot = worker, slot
            claimed.run_id = self._tracker.start(run, reset=job.reset)
            self._active.append(claimed)
        except BaseException as error:
            worker.kill()
            if not isinstance(error, TrackingRejected) or isinstance(error, TrackingDiskError):
                raise
            self._end_before_training(claimed, Result(RunState.FAILED, reason=str(error)))

    def _job(self, claimed: RunInFlight, *, slot: int) -> Job:
        """Return the instructions for the process of a run."""
        run = claimed.run
        return Job(
            settings=run.settings,
            metric=self._plan.metric_of(run.cell)[0],
            folder=run_folder(self._root, run.key),
            threads=self._concurrency.threads,
            figures=None if run.phase in ("search", "confirm") else run.cell.figures,  # a search may change the model
            train=self._train,
            pruning_metric=claimed.search.metric if claimed.search else None,
            memory_limit=self._limits.memory_limit,
            reset=self._scheduler.to_remove.get(run.key, Reset.NONE),
            environment={**os.environ, **device_environment(run, self._devices, slot=slot)},
        )

    def _handle_messages(self, active: RunInFlight) -> None:
        name, run_id = active.run.name, active.run_id
        for message in active.worker.messages():
            match message:
                case "notice", text:
                    logger.info("  %s: %s", name, text)
                case "started", device:
                    # The child has removed the old files: a further attempt resumes from this one's checkpoints.
                    self._scheduler.to_remove.pop(active.run.key, None)
                    self._tracker.log_tag(run_id, "device", device)
                case "metrics", step, values:
                    self._tracker.log_metrics(run_id, step, values)
                    self._display.metrics(name, step, values)
                    self._answer_trial(active, step, values)
                case "evaluation", label, done, total:
                    self._display.evaluation(name, label, done, total)
                case "stop", reason:
                    raise UserError(reason)
                case "end", result:
                    active.worker.result = result

    def _answer_trial(self, active: RunInFlight, step: int, values: dict[str, float]) -> None:
        """Tell a trial whether to stop, if this point is one that it waits for an answer on."""
        search = active.search
        stop = search.should_stop(active.ticket, step, values) if search else None
        if stop is not None:
            active.worker.answer(stop=stop)

    # ---------------------------------------------------------------- the end of a run

    def _end(self, active: RunInFlight, ending: Result) -> None:
        """Record how a run ended. A run that lost its process is tried again at once, in the same slot."""
        try:
            if not active.queue.owns(active.ticket):
                raise _TakenOver
            ending, failed_attempts = self._record(active, ending)
        except _TakenOver:
            self._active.remove(active)
            self._tracker.delete(active.run_id)
            if active.queue.owns(active.ticket):
                self._launch(active, slot=active.slot)
            return
        again = ending.is_lost and failed_attempts <= self._plan.study.retries
        self._count_ended()
        self._display.end_run(active.run.name, ending, again=again)
        if again:
            self._launch(active, slot=active.slot)
        else:
            self._scheduler.record_end(active, ending)

    def _count_ended(self) -> None:
        """Show the runs that other parents have ended; the display counts this parent's itself."""
        if self._scheduler.store.shared:
            self._display.count_ended(self._scheduler.remaining)

    def _end_untrained(self, claimed: RunInFlight) -> None:
        """Fail a run because the run that it starts from did not complete; the next call of the study tries it again."""
        ending, record = Result(RunState.FAILED, reason=claimed.problem), None
        try:
            record = self._tracker.log_untrained(claimed.run, reason=ending.reason)
        except TrackingDiskError:
            raise
        except TrackingRejected as error:
            ending = Result(RunState.FAILED, reason=str(error))
        self._end_before_training(claimed, ending, record)

    def _end_before_training(self, claimed: RunInFlight, ending: Result, record: RunRecord | None = None) -> None:
        """End a claimed run when its process was not started or its record was rejected; the next call tries it again."""
        self._ended[claimed.run.key] = record or unrecorded(claimed.run, ending.reason)
        self._display.end_run(claimed.run.name, ending)
        self._scheduler.record_end(claimed, ending)

    def _record(self, active: RunInFlight, ending: Result) -> tuple[Result, int]:
        """Close the record of a run and keep it for the result.

        Returns:
            The ending, which is a failure if the MLflow store rejected the record, and the number of failed attempts.

        Raises:
            _TakenOver: another parent took the run over, or deleted its record.
        """
        record = None
        try:
            record = self._close_record(active, ending)
        except TrackingDiskError:
            raise
        except TrackingRejected as error:  # of this call, or of an earlier one for the same run
            if not active.queue.owns(active.ticket) or self._tracker.is_replaced(active.run_id):
                raise _TakenOver from error
            ending = Result(RunState.FAILED, reason=str(error))
            with suppress(TrackingRejected):
                record = self._tracker.finish(active.run_id, ending.state, reason=ending.reason)
        self._ended[active.run.key] = record or unrecorded(active.run, ending.reason)
        self._active.remove(active)  # last: if the store fails above, `_abort` still finds the run
        return ending, record.failures if record else 0

    def _close_record(self, active: RunInFlight, ending: Result) -> RunRecord:
        self._tracker.log_file(active.run_id, log_path(self._root, active.run.key))
        if ending.traceback:
            self._tracker.log_text(active.run_id, "traceback.txt", ending.traceback)
        for name, text in ending.tags.items():
            self._tracker.log_tag(active.run_id, name, text)
        if ending.state == RunState.COMPLETED:
            self._tracker.log_items(active.run_id, run_folder(self._root, active.run.key))
            if active.run.phase == "stage" and self._scheduler.store.shared:
                self._tracker.log_weights(active.run_id, run_folder(self._root, active.run.key))
        return self._tracker.finish(active.run_id, ending.state, summary=ending.summary, reason=ending.reason)

    def _abort(self, error: BaseException) -> None:
        """End the children and record their runs as interrupted; the next call resumes from their checkpoints.

        A second Ctrl-C may cut the records short (the next call repairs them), but leaves no child behind.
        """
        self._tracker.set_deadline()
        with delayed_interrupts():
            for active in self._active:
                active.worker.kill()
        self._display.close()
        reason = "interrupted" if isinstance(error, KeyboardInterrupt) else f"the study stopped: {error}"
        for active in list(self._active):
            with suppress(Exception):  # the store itself may have failed: the next call repairs the records
                self._record(active, Result(RunState.INTERRUPTED, reason=reason))
                active.queue.release(active.ticket)
        if isinstance(error, KeyboardInterrupt):
            done = len(self._scheduler.finished) + sum(record.is_finished for record in self._ended.values())
            error.args = (f"interrupted: {done} of {self._expected_total} runs are finished; rerun the same command to resume",)

    # ---------------------------------------------------------------- the records of the result

    def _records(self) -> list[RunRecord]:
        """Return the record of each run, of each trial that has one, and of each cell with nothing to confirm after its search.

        Runs and trials of earlier calls and of other parents are included.
        """
        order = {cell.name: i for i, cell in enumerate([*self._plan.stages, *self._plan.cells])}
        runs = sorted(self._scheduler.runs.values(), key=lambda run: order[run.cell.name])
        deleted = "its record was deleted: the next call trains it again"
        records = [self._find(run.key) or unrecorded(run, deleted) for run in runs]
        trials = [record for key in self._scheduler.trials if (record := self._find(key))]
        return [*records, *trials, *self._scheduler.unconfirmed.values()]

    def _find(self, key: str) -> RunRecord | None:
        """Return the record of a run that was trained here, in an earlier call, or by another parent."""
        if key in self._ended:
            return self._ended[key]
        record = self._scheduler.finished.get(key) or self._tracker.find(key)
        if record is None:
            return None
        again = f" (failed {record.failures} times; --retry {record.state} tries again)"
        reason = record.reason + (again if record.state in WITHOUT_RESULT else "")
        return record.model_copy(update={"reused": True, "reason": reason})
