"""The parent's loop: which runs are left, one process for each of them, and what became of it."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util import memory
from attnlab._util.metrics import is_curve
from attnlab._util.signals import delayed_interrupts
from attnlab.errors import UserError
from attnlab.study.execution.progress import Display
from attnlab.study.execution.scheduler import ClaimedRun, Scheduler
from attnlab.study.execution.worker import Job, Worker, start
from attnlab.study.trials.queue import FAILED as NOT_DONE  # every other state is a result
from attnlab.tracking.tracker import DEVICE_TAG, failures

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan, Run
    from attnlab.tracking.client import Record
    from attnlab.tracking.tracker import Tracker

logger = logging.getLogger(__name__)

IDLE = 1.0  # seconds between two looks at what other parents left to do


@dataclass(frozen=True)
class Row:
    """How one run stands.

    Attributes:
        state: ``completed diverged out_of_memory pruned refused failed timed_out`` or ``interrupted``.
        earlier: it had been finished before this call, or by another parent.
        phase, trial, params: as of a ``Run``.
        log: what its process has written, its traceback among it, if that was on this machine.
    """

    name: str
    cell: str
    seed: int
    state: str
    summary: dict[str, float]
    reason: str
    run_id: str
    seconds: float = 0.0
    earlier: bool = False
    phase: str = "grid"
    trial: int | None = None
    params: dict[str, Any] = field(default_factory=dict)
    log: Path | None = None


@dataclass
class _Active:
    given: ClaimedRun
    run_id: str
    worker: Worker
    slot: int
    began: float = field(default_factory=time.monotonic)
    kills: int = field(default_factory=memory.oom_kills)  # before it began
    peak: int = 0  # bytes it has been seen to hold
    last: tuple[Any, ...] = ()  # the child's last word: ("ended", ...) or ("raised", ...)

    @property
    def run(self) -> Run:
        return self.given.run


class Runner:
    """Brings a plan to its end; made for one call of ``run``."""

    def __init__(
        self, plan: Plan, root: Path, *, tracker: Tracker, work: Scheduler, show: Display, workers: int, train: str
    ) -> None:
        self._plan, self._root, self._show, self._train = plan, root, show, train
        self._tracker, self._work = tracker, work
        tracker.delivery.on_wait = self._empty_the_pipes
        self._workers = max(1, workers)
        self._limits = plan.study.run
        # Never by how many are left: a run that is resumed alone must compute with the threads it began with.
        self._share = min(self._workers, max(1, plan.total))
        self._rows: dict[str, Row] = {}
        self._active: list[_Active] = []
        self._whole = 0  # runs of the study, as far as it is known at its start
        self._devices = self._cuda_devices()

    def run(self, *, partial: bool = False) -> list[Row]:
        """Everything that is left, then a row for every run; ``partial`` as for ``Tracker.mark``."""
        work = self._work
        work.open()
        self._tracker.log_study()
        refused = self._refuse()
        self._whole = len(work.found) + work.left
        about = {"workers": self._workers, "metric": self._plan.metric}
        self._show.begin(self._plan.study.study, runs=work.left, finished=len(work.found), **about)
        try:
            if work.left:
                self._prepare()
            while self._turn():
                pass
        except BaseException as error:
            self._abandon(error)
            raise
        self._tracker.update_current([*work.runs, *work.trials], partial=partial)
        order = {cell.name: i for i, cell in enumerate(self._plan.cells)}
        runs = sorted(work.runs.values(), key=lambda run: order[run.cell.name])
        return [*(self._row(run) for run in runs), *self._trials(), *self._unconfirmed(), *refused]

    def _row(self, run: Run) -> Row:
        """How a run stands that was trained here, earlier, or by another parent."""
        if run.key in self._rows:
            return self._rows[run.key]
        found = self._work.found.get(run.key) or self._tracker.find(run.key)
        assert found is not None, f"{run.name} has neither a row nor a record"
        return self._earlier(found)

    def _earlier(self, found: Record) -> Row:
        """The row of a run as its record tells it."""
        tags = {key.removeprefix("attnlab."): value for key, value in found.data.tags.items()}
        summary = {name: value for name, value in found.data.metrics.items() if not is_curve(name)}
        seconds = ((found.info.end_time or 0) - found.info.start_time) / 1_000
        state, reason = tags.get("state", "completed"), tags.get("reason", "")
        if state in NOT_DONE:
            reason += f" (failed {failures(found)} times; --retry {state} tries again)"
        trial = int(tags["trial"]) if "trial" in tags else None
        more = {"phase": tags.get("phase", "grid"), "trial": trial, "params": json.loads(tags.get("params", "{}"))}
        more["log"] = self._log(tags.get("fingerprint", ""))
        ids = (str(found.info.run_name), tags["cell"], int(tags["seed"]))
        return Row(*ids, state, summary, reason, found.info.run_id, seconds, earlier=True, **more)

    def _trials(self) -> list[Row]:
        """A row for each trial, those of earlier calls and of other parents included."""
        there = ((self._rows.get(key), key) for key in self._work.trials)
        found = (row or self._tracker.find(key) for row, key in there)
        return [each if isinstance(each, Row) else self._earlier(each) for each in found if each is not None]

    def _unconfirmed(self) -> list[Row]:
        """A row for each cell whose search came to nothing."""
        seed = self._plan.seeds[0]
        reasons = self._work.unconfirmed.items()
        return [Row(name, name, seed, "failed", {}, why, "", phase="confirm") for name, why in reasons if why]

    def _refuse(self) -> list[Row]:
        rows = []
        for cell, run in self._plan.refused:
            run_id = self._tracker.log_refused(run, cell)
            reason = str(cell.refusal)
            rows.append(Row(cell.name, cell.name, run.seed, "refused", {}, reason, run_id))
        return rows

    def _prepare(self) -> None:
        """Fetch and prepare the data once, here: the children only open it."""
        from attnlab.registry import TASKS

        tasks = [cell.config.task for cell in self._plan.cells if cell.refusal is None]
        for text, task in {task.label: task for task in tasks}.items():
            logger.info("data: %s", text)
            TASKS.get(task.name)(**task.options).prepare()

    def _turn(self) -> bool:
        """Claim what there is room for, listen to the children; False when the study is at its end."""
        while len(self._active) < self._workers and self._launch():
            pass
        if not self._active:
            if not self._work.pending:
                return False
            time.sleep(IDLE)  # other parents are at work: one of them may die, and leave its run to us
        arrived = any(active.worker.inbox for active in self._active)
        waitables = [each for active in self._active for each in active.worker.waitables]
        ready = wait(waitables, timeout=0 if arrived else IDLE)
        for active in list(self._active):
            active.peak = max(active.peak, active.worker.peak)
            if active.worker.inbox or any(each in ready for each in active.worker.waitables):
                self._read(active)
            if active in self._active and self._limits.timeout is not None:
                self._check_time(active, self._limits.timeout)
        self._tracker.delivery.raise_pending()
        self._work.refresh()
        return True

    def _empty_the_pipes(self) -> None:
        """While the MLflow store is waited for: no child must wait until its parent reads."""
        for active in self._active:
            active.worker.receive()

    def _launch(self) -> bool:
        """Begin with the next run, if there is one."""
        given = self._work.next()
        if given is None:
            return False
        if self._work.finished_elsewhere(given):
            return True
        slot = next(i for i in range(self._workers) if i not in {active.slot for active in self._active})
        self._begin(given, slot)
        return True

    def _begin(self, given: ClaimedRun, slot: int) -> None:
        run = given.run
        job = Job(
            config=run.config,
            folder=self._root / "work" / run.key,
            share=self._share,
            train=self._train,
            asks=given.search.values if given.search else None,
            memory_limit=self._limits.memory_limit,
            anew=run.key in self._work.anew,
            environment={**os.environ, **self._device(run, slot)},
        )
        worker = start(job)  # before its record is opened: what cannot start leaves none behind
        try:
            self._show.started(run.name, total=run.config.train.steps)
            run_id = self._tracker.start(run, reset=job.anew)
            self._active.append(_Active(given, run_id, worker, slot))
        except BaseException:
            worker.kill()
            raise

    def _read(self, active: _Active) -> None:
        for kind, *rest in active.worker.messages():
            if kind == "metrics":
                self._tracker.log_metrics(active.run_id, *rest)
                self._show.metrics(active.run.name, *rest)
                self._judge(active, *rest)
            elif kind == "started":
                self._work.anew.discard(active.run.key)  # from here on a further attempt goes on from its checkpoints
                self._tracker.set_tag(active.run_id, DEVICE_TAG, rest[0]["device"])
                self._show.started(active.run.name, total=rest[0]["total"])
            elif kind == "waits":
                logger.info("  %s: %s", active.run.name, rest[0])
            elif kind == "tag":
                self._tracker.set_tag(active.run_id, f"attnlab.{rest[0]}", rest[1])
            else:
                active.last = (kind, *rest)
        if active.worker.closed:
            self._finish(active, *active.worker.end())

    def _judge(self, active: _Active, step: int, metrics: dict[str, float]) -> None:
        """Answer a trial that asks whether to go on."""
        search = active.given.search
        verdict = search.judge(active.given.ticket, step, metrics) if search else None
        if verdict is not None:
            active.worker.answer(stop=verdict)

    def _check_time(self, active: _Active, limit: float) -> None:
        if time.monotonic() - active.began > limit:
            active.worker.kill()
            self._end(active, "timed_out", summary={}, reason=f"no end after {limit:g} s (run.timeout)")

    def _finish(self, active: _Active, how: str, code: int | None) -> None:
        kind, *rest = active.last or ("lost",)
        if kind == "ended":
            state, summary, _, reason = rest
            self._end(active, state, summary=summary, reason=reason)
        elif kind == "disk":
            raise UserError(rest[0])
        elif kind == "raised":
            self._end(active, "failed", summary={}, reason=rest[0], text=rest[1])
        elif code == -signal.SIGKILL and memory.oom_kills() > active.kills:
            peak = {"host_peak_mib": active.peak / 2**20}
            reason = f"the kernel ended it: no memory left on this machine; it held {active.peak / 2**20:,.0f} MiB"
            self._end(active, "out_of_memory", summary=peak, reason=reason)
        else:
            self._end(active, "failed", summary={}, reason=how, lost=True)

    def _end(
        self, active: _Active, state: str, *, summary: dict[str, float], reason: str, text: str = "", lost: bool = False
    ) -> None:
        """Write down how a run ended. One whose process was lost is tried again at once: it may have been unlucky."""
        if not active.given.queue.is_ours(active.given.ticket):  # we were silent for too long, another parent has it
            self._active.remove(active)
            self._tracker.delete(active.run_id)
            return
        failed = self._close(active, state, summary=summary, reason=reason, text=text)
        again = lost and failed <= self._plan.study.retries
        self._show.ended(active.run.name, state, summary=summary, reason=reason, again=again)
        if again:
            self._begin(active.given, active.slot)
        else:
            self._work.settle(active.given, state, summary)

    def _close(self, active: _Active, state: str, *, summary: dict[str, float], reason: str, text: str = "") -> int:
        """Close a record and note its row; how often the run has failed by now."""
        run = active.run
        if state in NOT_DONE:
            self._tracker.log_file(active.run_id, self._log(run.key))
        if text:
            self._tracker.log_text(active.run_id, "traceback.txt", text)
        found = self._tracker.finish(active.run_id, state, summary=summary, reason=reason)
        seconds = time.monotonic() - active.began
        more = {"phase": run.phase, "trial": run.trial, "params": run.params, "log": self._log(run.key)}
        row = Row(run.name, run.cell.name, run.seed, state, summary, reason, active.run_id, seconds, **more)
        self._rows[run.key] = row
        self._active.remove(active)
        return failures(found)

    def _log(self, key: str) -> Path:
        """Where the process of a run writes what it says."""
        return self._root / "work" / key / "log.txt"

    def _abandon(self, error: BaseException) -> None:
        """End the children and say so in the records; the next time goes on from their checkpoints.

        A second Ctrl-C may cut the records short (the next start puts them right), but leaves no child behind.
        """
        self._tracker.set_deadline()
        with delayed_interrupts():
            for active in self._active:
                active.worker.kill()
        self._show.close()
        reason = "interrupted" if isinstance(error, KeyboardInterrupt) else f"the study stopped: {error}"
        for active in list(self._active):
            with suppress(Exception):  # it may be the store that failed: the next start puts the records right
                self._close(active, "interrupted", summary={}, reason=reason)
                active.given.queue.release(active.given.ticket)
        if isinstance(error, KeyboardInterrupt):
            done = len(self._work.found) + sum(row.state not in NOT_DONE for row in self._rows.values())
            text = f"interrupted: {done} of {self._whole} runs are finished; the same command goes on"
            error.args = (text,)

    def _cuda_devices(self) -> list[str]:
        if self._workers == 1 or all(cell.config.machine.device != "cuda" for cell in self._plan.cells):
            return []
        import torch

        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return visible.split(",") if visible else [str(i) for i in range(torch.cuda.device_count())]

    def _device(self, run: Run, slot: int) -> dict[str, str]:
        """Each worker sees one CUDA device, in turn; a run that names one (``cuda:1``) keeps its word."""
        if not self._devices or run.config.machine.device != "cuda":
            return {}
        return {"CUDA_VISIBLE_DEVICES": self._devices[slot % len(self._devices)]}
