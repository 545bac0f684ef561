"""Run the steps: each case in a separate process step, with limits; results are written as they come."""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

from attnlab._util.machine import processors
from attnlab._util.process import describe_exit_code, fork_with_pipe
from attnlab._util.raise_site import describe_error
from attnlab.errors import UserError, one_line
from attnlab.extras.gpu_check.step import Case, Setting, Step, Values

FILE = "results.jsonl"
PRELOAD = "attnlab.training.preload"
IDLE_SECONDS = 2.0  # that a process without a case has to give back its semaphores
MAX_ERROR = 2_000  # characters of an error that are kept


@dataclass
class Results:
    """The lines of ``results.jsonl``: ``step``, ``case``, ``state``, ``seconds``, and the values or the reason.

    States are ``done``, ``refused`` (this machine does not support the case), ``failed`` and ``timed_out``.
    """

    path: Path
    rows: dict[tuple[str, str], Values] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> Results:
        """Read the results in a folder; a line that was cut off is left out."""
        results = cls(folder / FILE)
        if results.path.exists():
            for line in results.path.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    row = json.loads(line)
                    results.rows[row["step"], row["case"]] = row
        return results

    def add(self, row: Values) -> None:
        """Keep a result, and write it to the file at once."""
        self.rows[row["step"], row["case"]] = row
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def of(self, step: str) -> list[Values]:
        return [row for (name, _), row in self.rows.items() if name == step]

    def finished(self, step: str) -> set[str]:
        """Return the names of the cases of a step that need not run again: the others are tried again."""
        return {case for (name, case), row in self.rows.items() if name == step and row["state"] in ("done", "refused")}


def run(
    steps: Sequence[Step],
    *,
    folder: Path,
    seconds: float,
    rehearse: bool = False,
    notice: Callable[[str], None] = print,
) -> Results:
    """Run the steps in order until the time is over, and return all results.

    Args:
        folder: of the results; cases that it has results of are not run again.
        seconds: the time of all steps together.
        rehearse: run on the CPU, at small sizes.
        notice: is called with a line for each case that ended.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results, end = Results.load(folder), time.monotonic() + seconds
    for step in steps:
        left = min(step.seconds, end - time.monotonic())
        if left <= 0:
            notice(f"{step.name}: no time is left")
            continue
        setting = Setting(folder.absolute(), rehearse, left)
        names = [case.name for case in step.cases(setting)]
        queue = deque(name for name in names if name not in results.finished(step.name))
        for row in _run_step(step, queue, setting):
            results.add(row)
            notice(_line(row))
        if queue:
            notice(f"{step.name}: {len(queue)} of {len(names)} cases were not reached in {left:.0f} s")
    return results


def _line(row: Values) -> str:
    rest = {name: value for name, value in row.items() if name not in ("step", "case", "state", "seconds")}
    shown = ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in rest.items())
    return f"{row['step']}: {row['case']}: {row['state']} in {row['seconds']:.1f} s: {one_line(shown)[:300]}"


class _Worker:
    """A process that runs cases of a step, one after another."""

    def __init__(self, step: Step, setting: Setting) -> None:
        self.step = step
        self.process, self.pipe = fork_with_pipe(_work, step, setting, name="attnlab-gpu-check", preload=PRELOAD, daemon=False)
        self.case, self.began = "", 0.0

    def send(self, case: str) -> None:
        self.case, self.began = case, time.monotonic()
        with suppress(OSError):  # the process has ended: ``receive`` says so
            self.pipe.send(case)

    def receive(self) -> tuple[Values, bool]:
        """Return the row of the case, and whether the process can run another one."""
        try:
            state, values, usable = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            return self.row("failed", {"reason": describe_exit_code(self.process.exitcode or 0)}), False
        return self.row(state, values), usable

    def row(self, state: str, values: Values) -> Values:
        seconds = round(time.monotonic() - self.began, 2)
        return {"step": self.step.name, "case": self.case, "state": state, "seconds": seconds, **values}

    def end(self, *, seconds: float = 0.0) -> None:
        """End the process, which has some seconds to do so by itself, and the processes that it started."""
        self.pipe.close()
        self.process.join(seconds)
        with suppress(ProcessLookupError, PermissionError):
            if self.process.pid is not None:
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()


def _run_step(step: Step, queue: deque[str], setting: Setting) -> Iterator[Values]:
    """Yield a row for each case as soon as it ends; cases that are not reached in time stay in the queue."""
    end = time.monotonic() + setting.seconds
    busy: list[_Worker] = []
    idle = [_Worker(step, setting) for _ in range(min(step.processes, processors(), len(queue)))]
    try:
        while True:
            while idle and queue:
                busy.append(idle.pop())
                busy[-1].send(queue.popleft())
            left = end - time.monotonic()
            if not busy or left <= 0:
                break
            ready = wait([worker.pipe for worker in busy], timeout=left)
            for worker in [worker for worker in busy if worker.pipe in ready]:
                row, usable = worker.receive()
                busy.remove(worker)
                if not usable:
                    worker.end()
                    worker = _Worker(step, setting)
                idle.append(worker)
                yield row
        for worker in busy:
            yield worker.row("timed_out", {"reason": f"the limit of the step was {setting.seconds:.0f} s"})
    finally:
        for worker in idle:
            worker.pipe.close()
        for worker in (*busy, *idle):
            worker.end(seconds=IDLE_SECONDS if worker in idle else 0.0)


def _work(step: Step, setting: Setting, pipe: Connection) -> None:
    """Run each case that is named, and send its state, its values, and whether the device can still be used."""
    os.setsid()  # so that the processes that a case starts end with this one
    cases = {case.name: case for case in step.cases(setting)}
    while True:
        try:
            case = cases[pipe.recv()]
        except EOFError:
            return
        state, values = _outcome(case)
        with suppress(BrokenPipeError):  # the time of the step is over
            pipe.send((state, values, state in ("done", "refused") or not setting.card.failed()))


def _outcome(case: Case) -> tuple[str, Values]:
    try:
        return "done", case.run()
    except UserError as reason:
        return "refused", {"reason": one_line(str(reason))[:MAX_ERROR]}
    except Exception as error:  # of any class: the check is there to find them
        reason = one_line(describe_error(error))[:MAX_ERROR]
        return "failed", {"reason": reason, "traceback": traceback.format_exc()[-MAX_ERROR:]}
