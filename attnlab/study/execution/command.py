"""One run of a program: start it, read its result, and describe its end.

This happens in the process of the run (``child``), which leads a process group. The program and all that it starts belong to
that group, so that they end with the run, and with the study.

The result is the last line of standard output, one JSON object; or the last match of ``pattern`` there; or the file that
``{result}`` names. Earlier lines that are a JSON object with a ``step`` are points of curves.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import IO, Any

from attnlab._util.machine import oom_kills, peak_memory
from attnlab._util.redact import redact
from attnlab._util.run_state import RunState
from attnlab.config.checks import COLUMNS
from attnlab.config.command import SEED, CommandConfig, curve_name, describe_bad_name, result_name
from attnlab.errors import UserError, one_line
from attnlab.planning.command_files import changed_file, find_program
from attnlab.study.execution.job import describe_loss
from attnlab.tracking.record import restored
from attnlab.training.result import History, Report, Result, load_result, save_result

RESULT_FILE = "program.json"  # in the folder of a run: the file that {result} names
TAIL = 20  # last lines of stderr that are kept for a failure
SHOWN = 3  # of them, in the reason of a failure
SHOWN_LINE = 100  # characters of a line in a message
POLL_SECONDS = 0.2
DRAIN_SECONDS = 2.0  # for output that is left when the program has ended; a process that it left behind may hold the pipe
QUEUED = 10_000  # lines that are read ahead


def run_command(
    config: CommandConfig,
    *,
    metric: str,
    threads: int,
    report: Report,
    folder: Path,
    notify: Callable[[str], object] = print,
) -> Result:
    """Run a program to its end, unless the folder has its result.

    The program's output, except for points of curves, is printed.

    Args:
        config: The command.
        metric: By which the study compares its cells; without it there is no result.
        threads: For ``OMP_NUM_THREADS``, unless the study sets it.
        report: Called as ``report(step, metrics)`` with each point of a curve.
        folder: Of the run.
        notify: Called with a line on each value of the result that is left out.

    Raises:
        UserError: The program cannot be started.
    """
    if (known := load_result(folder, config=config)) is not None:
        result, history = known
        for step, values in history:
            report(step, values)
        return result
    if name := changed_file(config):
        return Result(RunState.FAILED, reason=f"{name} has changed since the study was planned: rerun the study")
    file = folder.absolute() / RESULT_FILE
    file.unlink(missing_ok=True)
    own_peak, kills, begin = peak_memory(), oom_kills(), time.perf_counter()
    process, output = _start(config, threads, file), ProgramOutput(report, config.pattern)
    _read(process, output)
    code = process.wait()
    costs = {"wall_seconds": time.perf_counter() - begin, **_peak(own_peak)}
    if code < 0:
        return describe_loss(code, oom_kill=oom_kills() > kills, peak=int(_peak(0).get("host_peak_mib", 0.0) * 2**20))
    if code > 0:
        errors = [line.strip() for line in output.errors if any(map(str.isalnum, line))]  # without Python's "^^^^"
        shown = " | ".join(errors[-SHOWN:])
        reason = f"exit code {code}{f': {shown}' if shown else ''}"
        return Result(RunState.FAILED, reason=redact(one_line(reason)), traceback=redact("\n".join(output.errors)))
    if name := changed_file(config):
        remedy = "rerun the study; if the program itself writes this file, list only what it reads under 'files'"
        return Result(RunState.FAILED, reason=f"{name} has changed while the program ran: {remedy}")
    try:
        results = _results(config, metric, output, file, notify)
    except ValueError as error:
        return Result(RunState.FAILED, reason=redact(one_line(str(error))))
    result = Result(RunState.COMPLETED, {**results, **costs})
    if not math.isfinite(restored(value := results[metric])):
        result.state, result.reason = RunState.DIVERGED, f"{metric} is {value:g}"
    save_result(result, output.history, config=config, folder=folder)
    return result


def _start(config: CommandConfig, threads: int, result: Path) -> subprocess.Popen[str]:
    words, folder = config.words(result=str(result)), Path(config.folder)
    program = find_program(words[0], folder)
    if program is None:
        raise UserError(f"command: there is no executable {words[0]!r} any more")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": str(threads), **config.env}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # which is blocked here while a process starts
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        return subprocess.Popen(
            [program, *words[1:]], cwd=folder, env=environment, **streams, text=True, encoding="utf-8", errors="replace"
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


def _read(process: subprocess.Popen[str], output: ProgramOutput) -> None:
    """Read the lines that a program prints until it has ended and its pipes are closed, or empty."""
    assert process.stdout is not None and process.stderr is not None
    lines: Queue[tuple[Callable[[str], None], str]] = Queue(QUEUED)

    def forward(pipe: IO[str], take: Callable[[str], None]) -> None:
        for line in pipe:  # carriage returns, as of a progress bar, end lines, too
            lines.put((take, line))

    streams = ((process.stdout, output.read), (process.stderr, output.read_error))
    readers = [Thread(target=forward, args=stream, daemon=True) for stream in streams]
    for reader in readers:
        reader.start()
    deadline = math.inf
    while time.monotonic() < deadline and (not lines.empty() or any(reader.is_alive() for reader in readers)):
        if deadline == math.inf and process.poll() is not None:
            deadline = time.monotonic() + DRAIN_SECONDS
        with suppress(Empty):
            take, line = lines.get(timeout=POLL_SECONDS)
            take(line.rstrip("\n"))


@dataclass
class ProgramOutput:
    """The output of a program.

    Attributes:
        report: Called as ``report(step, metrics)`` with each point of a curve.
        pattern: The regular expression whose last match is kept.
        last: The last line of stdout that is not empty.
        match: The last match of the pattern in stdout.
        history: The points of curves, in order.
        errors: The last lines of stderr.
    """

    report: Report
    pattern: str | None
    last: str = ""
    match: re.Match[str] | None = None
    history: History = field(default_factory=list)
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))

    def read(self, line: str) -> None:
        """Take a line of stdout."""
        self.last = line if line.strip() else self.last
        for match in re.finditer(self.pattern, line) if self.pattern else ():
            self.match = match
        step, values = parse_point(line)
        if step is None:
            print(line)
        elif values:
            self.history.append((step, values))
            self.report(step, values)

    def read_error(self, line: str) -> None:
        """Take a line of stderr."""
        print(line)
        if line.strip():
            self.errors.append(line.rstrip())


def parse_point(line: str) -> tuple[int | None, dict[str, float]]:
    """Return the step and the recorded values of a line that is a point of a curve; (None, {}) for any other line.

    ``NaN`` and ``Infinity`` are numbers. Values of other types are left out, and so are names that MLflow refuses.
    """
    try:
        fields = parse_object(line)
    except ValueError:
        return None, {}
    step = _number(fields.pop("step", None))
    if step is None or not step.is_integer() or abs(step) >= 2**53:
        return None, {}
    values: dict[str, float] = {}
    for _, name, number in _numbers(fields, curve_name):
        if not describe_bad_name(name):
            values.setdefault(name, number)
    return int(step), values


def parse_object(text: str) -> dict[str, Any]:
    """Return the one JSON object that a text is.

    Raises:
        ValueError: It is another text, or an object with a name twice.
    """
    try:
        fields = json.loads(text, parse_int=float, object_pairs_hook=_unique) if text.lstrip().startswith("{") else None
    except RecursionError:
        fields = None
    if not isinstance(fields, dict):
        raise ValueError("no JSON object")
    return fields


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(fields := dict(pairs)) < len(pairs):
        raise ValueError("a name twice")
    return fields


def _number(value: Any) -> float | None:
    return value if isinstance(value, float) else None  # whole numbers are read as floats; true and false are none


def _numbers(fields: dict[str, Any], naming: Callable[[str], str]) -> Iterator[tuple[str, str, float]]:
    """Yield the name, the recorded name and the value of each number, those first whose name is recorded as it is."""
    for name in sorted(fields, key=lambda name: not naming(name).endswith(name)):
        if (number := _number(fields[name])) is not None:
            yield name, naming(name), number


def _results(
    config: CommandConfig, metric: str, output: ProgramOutput, file: Path, notify: Callable[[str], object]
) -> dict[str, float]:
    """Return the numbers of a program's result.

    Raises:
        ValueError: The study's metric is not among them.
    """
    if config.pattern is not None:
        found = output.match[1] if output.match else None
        try:
            return {metric: float(found or "")}
        except ValueError:
            got = "no match" if found is None else repr(_shorten(found))
            raise ValueError(f"expected the last match of {config.pattern!r} in stdout to be a number, got {got}") from None
    place, text = "the last line of stdout", output.last
    if config.has_result_file:
        place = "the file that {result} names"
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    example = f'one JSON object with {metric!r}, such as {{"{metric}": 0.5}}'
    with suppress(ValueError):
        fields = parse_object(text)
        results = recorded_results(fields, {*config.values, SEED}, notify)
        if metric in results and fields.get("step") is None:
            return results
    got = repr(_shorten(text.strip())) if text.strip() else "nothing"
    raise ValueError(f"expected {place} to be {example}, got {got}")


def recorded_results(fields: dict[str, Any], placeholders: set[str], notify: Callable[[str], object]) -> dict[str, float]:
    """Return the numbers of a result by their recorded names.

    Args:
        fields: The result.
        placeholders: Names of the command's values, which no result replaces.
        notify: Called with a line on each other number that is left out.
    """
    results: dict[str, float] = {}
    for printed, name, number in _numbers(fields, result_name):
        reason = describe_bad_name(name)
        if name in COLUMNS:
            reason = "attnlab records a column of that name"
        elif name in results:
            reason = f"it would be recorded as {name!r}, like another one"
        if not reason and name not in placeholders:
            results[name] = number
        elif reason:
            notify(f"the printed value {_shorten(printed)!r} is left out: {reason}")
    return results


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN_LINE else f"{text[:SHOWN_LINE]}..."
