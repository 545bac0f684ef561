"""Steps and their cases, and running them: each case in a separate process, with limits; results are written as they come."""

from __future__ import annotations

import gc
import json
import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils.benchmark import Timer

from attnlab._util.machine import peak_memory, processors
from attnlab._util.process import describe_exit_code, fork_with_pipe
from attnlab._util.raise_site import describe_error
from attnlab.config.run import RunConfig
from attnlab.errors import UserError, one_line
from attnlab.planning.plan import plan

MIB = 2**20
T = TypeVar("T")
Values = dict[str, Any]  # that JSON can hold
Rows = dict[str, Values]  # case -> its values
Summary = list[tuple[str, str]]  # what was measured, and the result

FILE = "results.jsonl"
PRELOAD = "attnlab.training.preload"
END_SECONDS = 2.0  # that a process has to end after its case
MAX_ERROR = 2_000  # characters of an error that are kept


class Case(NamedTuple):
    """A measurement or a comparison; ``run`` returns its values, and raises if it fails."""

    name: str
    run: Callable[[], Values]


@dataclass(frozen=True)
class Step:
    """Cases that belong together.

    Attributes:
        name: as in ``results.jsonl`` and on the command line.
        title: its heading on the page.
        seconds: its time limit.
        cases: returns its cases.
        summarize: returns what the table says of the cases that are done, of which there is at least one.
        processes: how many cases may run at a time, where the machine has as many processors.
    """

    name: str
    title: str
    seconds: float
    cases: Callable[[Setting], Iterable[Case]]
    summarize: Callable[[Rows], Summary]
    processes: int = 1


@dataclass(frozen=True)
class Setting:
    """Where a step runs.

    Attributes:
        folder: of the results.
        rehearse: run on the CPU at small sizes.
        seconds: that are left for the step.
    """

    folder: Path
    rehearse: bool = False
    seconds: float = 3600.0

    @property
    def device(self) -> torch.device:
        return torch.device("cpu" if self.rehearse else "cuda")

    def size(self, whole: T, small: T) -> T:
        """Return the size of a measurement: ``small`` in a rehearsal."""
        return small if self.rehearse else whole

    def resolved(self, base: dict[str, Any], *, variant: Any = "dense") -> RunConfig:
        """Return the configuration of one cell, resolved as in a study.

        Raises:
            UserError: the plan refuses it; the message is the reason.
        """
        machine = {"device": self.device.type, "threads": 1 if self.rehearse else None, **base.get("machine", {})}
        study = {"study": "gpu-check", "base": {**base, "machine": machine}, "grid": {"variant": [variant]}}
        (cell,) = plan(study).cells
        if cell.refusal is not None:
            raise UserError(cell.refusal)
        return cell.config

    def allocated(self) -> int:
        """Return the bytes of all tensors, and begin a new peak; 0 on the CPU."""
        gc.collect()
        if self.rehearse:
            return 0
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()

    def peak(self) -> int:
        """Return the most bytes of tensors since ``allocated``; on the CPU, those of the process."""
        return peak_memory() if self.rehearse else torch.cuda.max_memory_allocated()

    def interleaved(self, *acts: Callable[[], object], rounds: int = 7, least: float = 0.05) -> list[float]:
        """Return the median seconds of a call of each function, over rounds in which they take turns."""
        rounds, least = self.size((rounds, least), (1, 1e-9))
        timers = [Timer("act()", globals={"act": act}, num_threads=torch.get_num_threads()) for act in acts]
        turns = [[timer.blocked_autorange(min_run_time=least).median for timer in timers] for _ in range(rounds)]
        return [median(column) for column in zip(*turns, strict=True)]


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


class _Running:
    """A case in its process."""

    def __init__(self, step: Step, setting: Setting, case: str) -> None:
        self.step, self.case, self.began = step.name, case, time.monotonic()
        name = "attnlab-gpu-check"
        self.process, self.pipe = fork_with_pipe(_work, step, setting, case, name=name, preload=PRELOAD, daemon=False)

    def result(self) -> Values:
        """Return the row of a case that has ended."""
        try:
            state, values = self.pipe.recv()
            self.process.join(END_SECONDS)
            return self.row(state, values)
        except (EOFError, OSError):
            self.process.join()
            return self.row("failed", {"reason": describe_exit_code(self.process.exitcode or 0)})

    def row(self, state: str, values: Values) -> Values:
        seconds = round(time.monotonic() - self.began, 2)
        return {"step": self.step, "case": self.case, "state": state, "seconds": seconds, **values}

    def end(self) -> None:
        """End the process, and the processes that it started."""
        with suppress(ProcessLookupError, PermissionError):
            if self.process.pid is not None:
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _run_step(step: Step, queue: deque[str], setting: Setting) -> Iterator[Values]:
    """Yield a row for each case as soon as it ends; cases that are not reached in time stay in the queue."""
    end, most = time.monotonic() + setting.seconds, min(step.processes, processors())
    running: list[_Running] = []
    try:
        while (left := end - time.monotonic()) > 0 and (running or queue):
            while queue and len(running) < most:
                running.append(_Running(step, setting, queue.popleft()))
            ready = wait([case.pipe for case in running], timeout=left)
            for case in [case for case in running if case.pipe in ready]:
                row = case.result()
                case.end()
                running.remove(case)
                yield row
        for case in running:
            yield case.row("timed_out", {"reason": f"the limit of the step was {setting.seconds:.0f} s"})
    finally:
        for case in running:
            case.end()


def _work(step: Step, setting: Setting, name: str, pipe: Connection) -> None:
    """Run a case, and send its state and its values."""
    os.setsid()  # so that the processes that a case starts end with this one
    case = next(case for case in step.cases(setting) if case.name == name)
    with suppress(BrokenPipeError):  # the time of the step is over
        pipe.send(_outcome(case))


def _outcome(case: Case) -> tuple[str, Values]:
    try:
        return "done", case.run()
    except UserError as reason:
        return "refused", {"reason": one_line(str(reason))[:MAX_ERROR]}
    except Exception as error:  # of any class: the check is there to find them
        reason = one_line(describe_error(error))[:MAX_ERROR]
        return "failed", {"reason": reason, "traceback": traceback.format_exc()[-MAX_ERROR:]}
