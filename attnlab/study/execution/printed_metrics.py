"""The metrics that a program prints: the lines that have some, their recorded names, and what is left out."""

from __future__ import annotations

import ast
import json
import math
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from attnlab.config.command import COLUMNS, curve_name, describe_bad_name, result_name
from attnlab.training.result import History, Report

TAIL = 20  # last lines of stderr that are kept for a failure
SHOWN = 100  # characters of a line, or of a name, in a message
# Colours and other control sequences of a terminal: CSI sequences, and OSC sequences such as links and titles.
CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\ufeff")


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

    def read(self, line: str) -> None:
        """Take a line of stdout: metrics, or a line of the log."""
        metrics = parse_metrics(line)
        if metrics is None:
            print(line)
        else:
            self._take(*metrics)
        if self.metric in line and (metrics is None or self.metric not in map(result_name, metrics[1])):
            self.mention = visible(line)
            if _is_result_without_number(self.mention, self.metric):
                self.results.pop(self.metric, None)  # the last value counts, and it is none: the earlier one is out of date

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
    """Return what a terminal shows of a line: the text after the last carriage return, without colours."""
    return CONTROL.sub("", line).rstrip("\r").rpartition("\r")[2]


def parse_metrics(line: str) -> tuple[int | None, dict[str, float]] | None:
    """Return the step and the numbers of a line that is a JSON object with numbers; None for any other line.

    The step is None where the object has none. ``NaN`` and ``Infinity`` are numbers; values of other types, and whole numbers
    too large for a float, are left out. Colours are ignored, and so is a progress bar before the object.
    """
    text = visible(line).strip()
    if "\r" in line and not text.startswith("{"):
        text = text[text.find("{") :]
    fields = _json_object(text)
    if fields is None:
        return None
    numbers = {name: number for name, value in fields.items() if (number := _number(value)) is not None}
    step = None
    if "step" in fields:
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
    """Return True for an object without a step in which the metric is no number, such as ``null`` for NaN."""
    fields = _json_object(line.strip())
    return fields is not None and "step" not in fields and metric in fields and _number(fields[metric]) is None


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
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
