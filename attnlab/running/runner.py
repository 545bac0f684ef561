"""The parent's loop: which runs are left, one process for each of them, and what became of it."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.running.display import Display
from attnlab.running.worker import Job, Worker, start
from attnlab.signals import uninterrupted

if TYPE_CHECKING:
    from mlflow.entities import Run as Record

    from attnlab.planning.plan import Plan, Run
    from attnlab.study import Queue
    from attnlab.tracking.tracker import Tracker

NOT_DONE = ("failed", "interrupted")  # every other state is a result


@dataclass(frozen=True)
class Row:
    """How one run stands.

    Attributes:
        state: ``completed diverged out_of_memory pruned refused failed`` or ``interrupted``.
        earlier: it had been finished before this call.
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


@dataclass
class _Active:
    run: Run
    trial: int
    run_id: str
    worker: Worker
    slot: int
    began: float = field(default_factory=time.monotonic)
    last: tuple[Any, ...] = ()  # the child's last word: ("ended", ...) or ("raised", ...)


class Runner:
    """Brings a plan to its end; made for one call of ``run``."""

    def __init__(
        self,
        plan: Plan,
        root: Path,
        *,
        tracker: Tracker,
        queue: Queue,
        show: Display,
        workers: int,
        train: str,
    ) -> None:
        self._plan, self._root, self._show, self._train = plan, root, show, train
        self._tracker, self._queue = tracker, queue
        self._workers = max(1, workers)
        self._metric = plan.metric
        self._runs = {run.fingerprint: run for run in plan.runs}
        self._tries = dict.fromkeys(self._runs, 0)
        self._rows: dict[str, Row] = {}
        self._waiting = 0
        self._active: list[_Active] = []
        self._devices = self._cuda_devices()

    def run(self, *, partial: bool = False) -> list[Row]:
        """Everything that is left, then a row for every run; ``partial`` as for ``Tracker.sweep``."""
        finished = self._tracker.sweep(partial=partial)
        values = {key: found.data.metrics.get(self._metric, math.nan) for key, found in finished.items()}
        self._queue.sweep(values)
        self._tracker.describe()
        for run in self._runs.values():
            if run.fingerprint in finished:
                self._rows[run.fingerprint] = _earlier(run, finished[run.fingerprint])
        todo = [run for run in self._in_order() if run.fingerprint not in finished]
        refused = self._refuse()
        done = len(self._runs) - len(todo)
        self._show.begin(self._plan.study.study, runs=len(todo), finished=done, workers=self._workers)
        try:
            self._prepare(todo)
            for run in todo:
                self._queue.put(run)
                self._waiting += 1
            while self._waiting or self._active:
                self._turn()
        except BaseException as error:
            self._abandon(error)
            raise
        return [*(self._rows[key] for key in self._runs), *refused]

    def _in_order(self) -> list[Run]:
        """All cells with the first seed, then all with the second: a whole table early on."""
        seeds = {seed: i for i, seed in enumerate(self._plan.study.seeds)}
        return sorted(self._runs.values(), key=lambda run: seeds.get(run.seed, len(seeds)))

    def _refuse(self) -> list[Row]:
        rows = []
        for cell, run in self._plan.refused:
            run_id = self._tracker.refuse(run, cell)
            reason = str(cell.refusal)
            rows.append(Row(cell.name, cell.name, run.seed, "refused", {}, reason, run_id))
        return rows

    def _prepare(self, todo: list[Run]) -> None:
        """Fetch and prepare the data once, here: the children only open it."""
        from attnlab.registry import TASKS

        for text, task in {run.config.task.label: run.config.task for run in todo}.items():
            self._show.say(f"data: {text}")
            TASKS.get(task.name)(**task.options).prepare(say=self._show.say)

    def _turn(self) -> None:
        while self._waiting and len(self._active) < self._workers:
            self._launch()
        ready = wait([each for active in self._active for each in active.worker.waitables], timeout=1.0)
        for active in list(self._active):
            if any(each in ready for each in active.worker.waitables):
                self._read(active)

    def _launch(self) -> None:
        number, fingerprint = self._queue.take()
        self._waiting -= 1
        self._tries[fingerprint] += 1
        run = self._runs[fingerprint]
        slot = next(i for i in range(self._workers) if i not in {active.slot for active in self._active})
        job = Job(
            config=run.config,
            folder=self._root / "work" / fingerprint,
            share=min(self._workers, len(self._active) + 1 + self._waiting),
            train=self._train,
            environment={**os.environ, **self._device(run, slot)},
        )
        worker = start(job)  # before its record is opened: what cannot start leaves none behind
        try:
            self._show.started(run.name, total=run.config.train.steps)
            with uninterrupted():  # a record that nobody knows of would be left RUNNING
                self._active.append(_Active(run, number, self._tracker.start(run), worker, slot))
        except BaseException:
            worker.kill()
            raise

    def _read(self, active: _Active) -> None:
        for kind, *rest in active.worker.messages():
            if kind == "metrics":
                self._tracker.log(active.run_id, *rest)
                self._show.metrics(active.run.name, *rest)
            elif kind == "started":
                self._tracker.tag(active.run_id, "attnlab.device", rest[0]["device"])
                self._show.started(active.run.name, total=rest[0]["total"])
            else:
                active.last = (kind, *rest)
        if active.worker.closed:
            self._active.remove(active)
            self._finish(active, active.worker.end())

    def _finish(self, active: _Active, how: str) -> None:
        kind, *rest = active.last or ("lost",)
        if kind == "ended":
            state, summary, _, reason = rest
        else:
            state, summary, reason = "failed", {}, rest[0] if kind == "raised" else how
        self._close(active, state, summary=summary, reason=reason)
        # The same code with the same seed raises again; a process that was killed may have been unlucky.
        again = kind == "lost" and self._tries[active.run.fingerprint] <= self._plan.study.retries
        self._show.ended(active.run.name, state, summary=summary, reason=reason, again=again)
        if again:
            self._queue.put(active.run)
            self._waiting += 1

    def _close(self, active: _Active, state: str, *, summary: dict[str, float], reason: str) -> None:
        run = active.run
        if state in NOT_DONE:
            self._tracker.artifact(active.run_id, self._root / "work" / run.fingerprint / "log.txt")
        self._tracker.finish(active.run_id, state, summary=summary, reason=reason)
        self._queue.tell(active.trial, state=state, value=summary.get(self._metric, math.nan))
        seconds = time.monotonic() - active.began
        row = Row(run.name, run.cell.name, run.seed, state, summary, reason, active.run_id, seconds)
        self._rows[run.fingerprint] = row

    def _abandon(self, error: BaseException) -> None:
        """End the children and say so in the records; the next time goes on from their checkpoints.

        A second Ctrl-C may cut the records short (the next start puts them right), but leaves no child behind.
        """
        with uninterrupted():
            for active in self._active:
                active.worker.kill()
        self._show.close()
        reason = "interrupted" if isinstance(error, KeyboardInterrupt) else f"the study stopped: {error}"
        for active in self._active:
            self._close(active, "interrupted", summary={}, reason=reason)
        self._active = []
        if isinstance(error, KeyboardInterrupt):
            done = sum(row.state not in NOT_DONE for row in self._rows.values())
            text = f"interrupted: {done} of {len(self._runs)} runs are finished; the same command goes on"
            error.args = (text,)

    def _cuda_devices(self) -> list[str]:
        if self._workers == 1 or all(run.config.machine.device != "cuda" for run in self._runs.values()):
            return []
        import torch

        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return visible.split(",") if visible else [str(i) for i in range(torch.cuda.device_count())]

    def _device(self, run: Run, slot: int) -> dict[str, str]:
        """Each worker sees one CUDA device, in turn; a run that names one (``cuda:1``) keeps its word."""
        if not self._devices or run.config.machine.device != "cuda":
            return {}
        return {"CUDA_VISIBLE_DEVICES": self._devices[slot % len(self._devices)]}


def _earlier(run: Run, found: Record) -> Row:
    tags = found.data.tags
    summary = {name: value for name, value in found.data.metrics.items() if "/" not in name}
    seconds = ((found.info.end_time or 0) - found.info.start_time) / 1_000
    state, reason = tags.get("attnlab.state", "completed"), tags.get("attnlab.reason", "")
    return Row(run.name, run.cell.name, run.seed, state, summary, reason, found.info.run_id, seconds, earlier=True)
