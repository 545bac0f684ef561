"""One run of a program: start it, read the metrics that it prints, and describe its end.

This happens in the process of the run (``worker``), which leads a process group. The program and all that it starts belong to
that group, so that they end with the run, and with the study.

``Printed`` reads the metrics that a program prints: the lines that have some, their recorded names, and what is left out.
"""

from __future__ import annotations

import ast
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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnlab._util.machine import peak_memory
from attnlab._util.redact import redact
from attnlab._util.run_state import RunState
from attnlab.config.command import COLUMNS, SEED, CommandConfig, curve_name, describe_bad_name, result_name
from attnlab.errors import UserError, one_line
from attnlab.planning.command_files import find_program
from attnlab.study.execution.job import Ended, Killed, Raised
from attnlab.tracking.attempts import restored
from attnlab.training.result import History, Report, Result, load_result, save_result

TAIL = 20  # last lines of stderr that are kept for a failure
PRINTED_SHOWN = 100  # characters of a line, or of a name, in a message
# Colors and other control sequences of a terminal: CSI sequences, and OSC sequences such as links and titles.
CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\ufeff")
SPLIT_FIELDS = {"split", "set", "subset", "phase", "mode", "dataset", "data"}  # that say what a line of results is about
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
        """Take the lines that these bytes complete; return False when there are no bytes, at the end of the output."""
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


@dataclass
class PrintedMetrics:
    """The metrics that a program has printed, and the end of its errors.

    Attributes:
        report: called as ``report(step, metrics)`` with each point of a curve.
        notify: called with one line on each value that is left out, once for each name.
        metric: by which the study compares its cells.
        placeholders: names of the command's values, which no result replaces.
        results: metric -> its last value in a line without a step.
        history: the points of curves, in order.
        errors: the last lines of stderr.
        mention: the last line that has the name of the metric, but no number for it; "" if there is none.
    """

    report: Report
    notify: Callable[[str], object]
    metric: str
    placeholders: set[str]
    results: dict[str, float] = field(default_factory=dict)
    history: History = field(default_factory=list)
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))
    mention: str = ""
    _printed: dict[str, str] = field(default_factory=dict)  # recorded name -> printed name
    _noted: set[str] = field(default_factory=set)
    _splits: dict[str, str] = field(default_factory=dict)  # field that names a split -> its last text

    def read(self, line: str) -> None:
        """Take a line of stdout: metrics, or a line of the log."""
        metrics = parse_metrics(line)
        if metrics is None:
            print(line)
        else:
            self._take(*metrics)
            if metrics[0] is None and self.metric in map(result_name, metrics[1]):
                self._read_split(line)
        if self.metric in line and (metrics is None or self.metric not in map(result_name, metrics[1])):
            self.mention = visible(line)
            if (
                (fields := _json_object(self.mention.strip()))
                and metrics is None
                and _number(fields.get(self.metric)) is not None
            ):
                self._leave_out(self.metric, f"expected a whole number as step, got {_shorten(repr(fields['step']))}")
            if _is_result_without_number(self.mention, self.metric):
                self.results.pop(self.metric, None)  # the last value counts, and it is none: the earlier one is out of date

    def _read_split(self, line: str) -> None:
        """Notify when results in the study's metric are of several splits, of which the last one counts."""
        fields = _json_object(visible(line).strip()) or {}
        for name in SPLIT_FIELDS & fields.keys():
            before, now = self._splits.get(name), str(fields[name])
            if before not in (None, now) and name not in self._noted:
                self._noted.add(name)
                values = f"{_shorten(repr(before))} and {_shorten(repr(now))}"
                self.notify(f"{self.metric!r} is printed with {name} {values}: the last line counts")
            self._splits[name] = now

    def read_error(self, line: str) -> None:
        """Take a line of stderr."""
        print(line)
        if shown := line.rstrip().rpartition("\r")[2]:  # the last state of a progress bar
            self.errors.append(shown)

    def _take(self, step: int | None, values: Mapping[str, float]) -> None:
        naming = result_name if step is None else curve_name
        named: dict[str, float] = {}
        # A name that is recorded as it is goes first: another one that becomes the same is the one to leave out.
        for printed in sorted(values, key=lambda name: not naming(name).endswith(name)):
            if name := self._recorded(printed, naming(printed), is_result=step is None):
                named[name] = values[printed]
        if step is None:
            self.results |= named
        elif named:
            self.history.append((step, named))
            self.report(step, named)

    def _recorded(self, printed: str, name: str, *, is_result: bool) -> str:
        """Return the name under which a value is recorded; "" if it is left out."""
        if is_result and name in self.placeholders:
            return ""
        if is_result and name in COLUMNS:
            return self._leave_out(printed, "attnlab records a column of that name")
        if reason := describe_bad_name(name):
            return self._leave_out(printed, reason)
        first = self._printed.setdefault(name, printed)
        if first == printed:
            return name
        if is_result and printed == name:  # printed later than a name that became this one
            self._leave_out(first, f"it is recorded as {name!r}, which the program prints as well")
            self._printed[name] = printed
            return name
        return self._leave_out(printed, f"it would be recorded as {name!r}, like {first!r}, which the program prints as well")

    def _leave_out(self, printed: str, reason: str) -> str:
        if printed not in self._noted:
            self._noted.add(printed)
            self.notify(f"the printed value {_shorten(repr(printed))} is left out: {reason}")
        return ""


def visible(line: str) -> str:
    """Return what a terminal shows of a line: the text after the last carriage return, without colors."""
    return CONTROL.sub("", line).rstrip("\r").rpartition("\r")[2]


def parse_metrics(line: str) -> tuple[int | None, dict[str, float]] | None:
    """Return the step and the numbers of a line that is a JSON object with numbers; None for any other line.

    The step is None when the object has none, or ``null``. ``NaN`` and ``Infinity`` are numbers; values of other types, and
    whole numbers too large for a float, are left out. Colors are ignored, and so is a progress bar before the object.
    """
    text = visible(line).strip()
    if "\r" in line and not text.startswith("{"):
        text = text[text.find("{") :]
    fields = _json_object(text)
    if fields is None:
        return None
    numbers = {name: number for name, value in fields.items() if (number := _number(value)) is not None}
    step = None
    if fields.get("step") is not None:
        value = numbers.pop("step", math.nan)
        if not value.is_integer() or abs(value) >= 2**53:
            return None
        step = int(value)
    return (step, numbers) if numbers else None


def _json_object(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        fields = json.loads(text, parse_int=_whole_number)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _is_result_without_number(line: str, metric: str) -> bool:
    """Return True for an object without a step in which the metric is no number, for example ``null`` for NaN."""
    fields = _json_object(line.strip())
    return fields is not None and fields.get("step") is None and metric in fields and _number(fields[metric]) is None


def _whole_number(digits: str) -> int | str:
    """Return a whole number, or its text if no float is as large."""
    return int(digits) if math.isfinite(float(digits)) else digits


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def describe_missing(printed: PrintedMetrics) -> str:
    """Return the reason of the failure of a program that has not printed its metric."""
    metric = printed.metric
    got = f"got {', '.join(sorted(printed.results))}" if printed.results else "got no line with metrics"
    in_curve = any(curve_name(metric) in values for _, values in printed.history)
    if in_curve and not _is_result_without_number(printed.mention, metric):
        got = "got it only with a 'step', which is a point of a curve"
    elif printed.mention:
        got = f"got {_describe_mention(printed.mention, metric)}: {_shorten(printed.mention)}"
    return f'the program ended without its metric: expected a line such as {{"{metric}": 0.5}} on stdout, {got}'


def _describe_mention(line: str, metric: str) -> str:
    """Return the form in which a line has the metric."""
    if (fields := _json_object(line.strip())) is not None:
        if metric not in fields:
            return "it inside another value"
        found = fields[metric]
        whole = isinstance(found, str) and found.lstrip("-").isdigit() and not math.isfinite(float(found))
        kind = {bool: "true or false", str: "a text", dict: "an object", list: "a list"}.get(type(found), "null")
        return f"{'a number too large for a float' if whole else kind} instead of a number"
    start = line.find("{")
    text = line[start : line.rfind("}") + 1] if start >= 0 else ""
    try:
        is_python = isinstance(ast.literal_eval(text), dict)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        is_python = False
    if _json_object(text) is not None:
        return "an object with other text on its line"
    return "a dictionary in Python's notation, which is no JSON (print json.dumps(...))" if is_python else "it in another form"


def _shorten(text: str) -> str:
    return text if len(text) <= PRINTED_SHOWN else f"{text[:PRINTED_SHOWN]}..."
