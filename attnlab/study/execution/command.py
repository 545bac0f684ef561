"""One run of a program: start it, read the metrics that it prints, and describe its end.

This happens in the process of the run (``worker``), which leads a process group. The program and all that it starts belong to
that group, so that they end with the run, and with the study.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from attnlab._util.memory import peak_memory
from attnlab._util.redact import redact
from attnlab._util.run_state import RunState
from attnlab.config.command import COLUMNS, CURVE, SEED, CommandConfig, result_name
from attnlab.errors import UserError, one_line
from attnlab.planning.command_files import find_program
from attnlab.study.execution.messages import Ended, Killed, Raised
from attnlab.training.result import History, Report, Result, load_result, save_result

POLL_SECONDS = 0.2
DRAIN_SECONDS = 2.0  # for output that is left when the program has ended; a process that it left behind may hold the pipe
MAX_LINE = 1 << 20  # bytes; the parts of a longer line are lines of the log
TAIL = 20  # last lines of stderr that are kept for a failure
SHOWN = 3  # of these in the reason of the failure


def run_command(config: CommandConfig, *, metric: str, threads: int, report: Report, folder: Path) -> Ended | Raised | Killed:
    """Run a program to its end, unless the folder has its result.

    The program's output that is no metrics is printed.

    Args:
        metric: by which the study compares its cells; without it there is no result.
        threads: for ``OMP_NUM_THREADS``, unless the study sets it.
        report: called as ``report(step, metrics)`` with each point of a curve.
        folder: of the run.

    Raises:
        UserError: the program cannot be started.
    """
    if (known := load_result(folder, config=config)) is not None:
        result, history = known
        for step, values in history:
            report(step, values)
        return Ended(RunState(result.state), result.summary, result.reason)
    output = _Output(report, ignored={*COLUMNS, *config.values, SEED})
    own_peak, begin = peak_memory(), time.perf_counter()
    process = _start(config, threads)
    _read(process, output)
    code = process.wait()
    costs = {"wall_seconds": time.perf_counter() - begin, **_peak(own_peak)}
    if code < 0:
        return Killed(-code, _peak(0).get("host_peak_mib", 0.0))
    if code > 0:
        errors = [line.strip() for line in output.errors if any(map(str.isalnum, line))]  # without Python's "^^^^"
        shown = " | ".join(errors[-SHOWN:])
        reason = f"exit code {code}{f': {shown}' if shown else ''}"
        return Raised(redact(one_line(reason)), redact("\n".join(output.errors)))
    if metric not in output.results:
        return Raised(_missing(metric, output))
    result = Result(str(RunState.COMPLETED), {**output.results, **costs})
    if not math.isfinite(value := output.results[metric]):
        result.state, result.reason = str(RunState.DIVERGED), f"{metric} is {value:g}"
    save_result(result, output.history, config=config, folder=folder)
    return Ended(RunState(result.state), result.summary, result.reason)


def _missing(metric: str, output: _Output) -> str:
    """Return the reason of the failure of a program that has not printed its metric."""
    got = f"got {', '.join(sorted(output.results))}" if output.results else "got no line with metrics"
    if any(f"{CURVE}{metric}" in values for _, values in output.history):
        got = "got it only with a 'step', which is a point of a curve"
    return f'the program ended without its metric: expected a line such as {{"{metric}": 0.5}} on stdout, {got}'


def _start(config: CommandConfig, threads: int) -> subprocess.Popen[bytes]:
    words, folder = config.arguments, Path(config.folder)
    program = find_program(words[0], folder)
    if program is None:
        raise UserError(f"command: there is no executable {words[0]!r} any more")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": str(threads), **config.env}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # which is blocked here while a process starts
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(
            [program, *words[1:]], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
    except (OSError, ValueError) as error:
        raise UserError(f"command: cannot start {words[0]!r}: {error}") from error


def _peak(least: int) -> dict[str, float]:
    """Return the peak of the largest process that the program consisted of, if it is known.

    The kernel counts the memory of this process, from which the program was forked, as the program's: a program that never
    held more than ``least`` bytes has an unknown peak.
    """
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
    return {"host_peak_mib": peak / 2**20} if peak > least else {}


@dataclass
class _Output:
    """The metrics that a program has printed, and the end of its errors.

    Attributes:
        results: metric -> its last value in a line without a step.
        history: the points of curves, in order.
        errors: the last lines of stderr.
    """

    report: Report
    ignored: set[str]
    results: dict[str, float] = field(default_factory=dict)
    history: History = field(default_factory=list)
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))

    def read(self, line: str) -> None:
        """Take a line of stdout: metrics, or a line of the log."""
        metrics = parse_metrics(line)
        if metrics is None:
            print(line)
            return
        step, values = metrics
        if step is None:
            named = {result_name(name): value for name, value in values.items()}
            self.results |= {name: value for name, value in named.items() if name not in self.ignored}
        else:
            points = {f"{CURVE}{re.sub(r'[^A-Za-z0-9_./-]', '_', name)}": value for name, value in values.items()}
            self.history.append((step, points))
            self.report(step, points)

    def read_error(self, line: str) -> None:
        """Take a line of stderr."""
        print(line)
        if shown := line.rstrip().rpartition("\r")[2]:  # the last state of a progress bar
            self.errors.append(shown)


def parse_metrics(line: str) -> tuple[int | None, dict[str, float]] | None:
    """Return the step and the numbers of a line that is a JSON object with numbers; None for any other line.

    The step is None where the object has none. ``NaN`` and ``Infinity`` are numbers; values of other types are left out.
    """
    if not line.lstrip().startswith("{"):
        return None
    try:
        fields = json.loads(line)
        numbers = {name: float(v) for name, v in fields.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    except (ValueError, OverflowError, RecursionError):
        return None
    step = None
    if "step" in fields:
        value = numbers.pop("step", math.nan)
        if not value.is_integer() or abs(value) >= 2**53:
            return None
        step = int(value)
    return (step, numbers) if numbers else None


def _read(process: subprocess.Popen[bytes], output: _Output) -> None:
    """Read what a program prints until it has ended and its pipes are closed, or empty."""
    assert process.stdout is not None and process.stderr is not None
    readers: dict[int, _Lines] = {}
    with selectors.DefaultSelector() as selector:
        for pipe, take in ((process.stdout, output.read), (process.stderr, output.read_error)):
            selector.register(pipe, selectors.EVENT_READ)
            readers[pipe.fileno()] = _Lines(take)
        deadline = math.inf
        while selector.get_map() and time.monotonic() < deadline:
            ready = selector.select(POLL_SECONDS)
            for key, _ in ready:
                if not readers[key.fd].feed(os.read(key.fd, 1 << 16)):
                    selector.unregister(key.fileobj)
            if process.poll() is not None:
                if not ready:
                    break
                deadline = min(deadline, time.monotonic() + DRAIN_SECONDS)
    for lines in readers.values():
        lines.feed(b"\n")


class _Lines:
    """Splits the output of a program into lines.

    Args:
        take: called with each line that is not empty.
    """

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take, self._rest = take, b""

    def feed(self, data: bytes) -> bool:
        """Take the lines that these bytes complete; return False if there are no bytes, at the end of the output."""
        for line in self._complete(data):
            if text := line.decode("utf-8", "replace").rstrip("\r"):
                self._take(text)
        return bool(data)

    def _complete(self, data: bytes) -> Iterator[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from lines
        if len(self._rest) > MAX_LINE:
            yield self._rest
            self._rest = b""
