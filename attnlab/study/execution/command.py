"""One run of a program: start it, read the metrics that it prints, and describe its end.

This happens in the process of the run (``worker``), which leads a process group. The program and all that it starts belong to
that group, so that they end with the run, and with the study.
"""

from __future__ import annotations

import math
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from attnlab._util.memory import peak_memory
from attnlab._util.redact import redact
from attnlab._util.run_state import RunState
from attnlab.config.command import SEED, CommandConfig
from attnlab.errors import UserError, one_line
from attnlab.planning.command_files import find_program
from attnlab.study.execution.messages import Ended, Killed, Raised
from attnlab.study.execution.printed_metrics import PrintedMetrics, describe_missing
from attnlab.tracking.summary import restored
from attnlab.training.result import Report, Result, load_result, save_result

POLL_SECONDS = 0.2
DRAIN_SECONDS = 2.0  # for output that is left when the program has ended; a process that it left behind may hold the pipe
MAX_LINE = 1 << 20  # bytes; the parts of a longer line are lines of the log
SHOWN = 3  # of the last lines of stderr, in the reason of a failure


def run_command(
    config: CommandConfig,
    *,
    metric: str,
    threads: int,
    report: Report,
    folder: Path,
    notify: Callable[[str], object] = print,
) -> Ended | Raised | Killed:
    """Run a program to its end, unless the folder has its result.

    The program's output that is no metrics is printed.

    Args:
        metric: by which the study compares its cells; without it there is no result.
        threads: for ``OMP_NUM_THREADS``, unless the study sets it.
        report: called as ``report(step, metrics)`` with each point of a curve.
        folder: of the run.
        notify: called with a line on each printed value that is left out.

    Raises:
        UserError: the program cannot be started.
    """
    if (known := load_result(folder, config=config)) is not None:
        result, history = known
        for step, values in history:
            report(step, values)
        return Ended(RunState(result.state), result.summary, result.reason)
    output = PrintedMetrics(report, notify, metric, {*config.values, SEED})
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
        return Raised(redact(one_line(describe_missing(output))))
    result = Result(str(RunState.COMPLETED), {**output.results, **costs})
    if not math.isfinite(restored(value := output.results[metric])):
        result.state, result.reason = str(RunState.DIVERGED), f"{metric} is {value:g}"
    save_result(result, output.history, config=config, folder=folder)
    return Ended(RunState(result.state), result.summary, result.reason)


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


def _read(process: subprocess.Popen[bytes], output: PrintedMetrics) -> None:
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
