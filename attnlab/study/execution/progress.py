"""What a person sees while a study runs: live bars on a terminal, plain lines in a pipe or a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO, cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from attnlab._util.redact import redact

PLAIN_SECONDS = 20.0  # between two lines of one run in a pipe; evaluations always get theirs


@dataclass
class _Line:
    total: int | None = None
    step: int = 0
    shown: dict[str, float] = field(default_factory=dict)
    task: TaskID | None = None
    said: float = field(default_factory=time.monotonic)
    began: float = field(default_factory=time.monotonic)


class _Stream:
    """A stream whose reader may go away, as when a terminal is closed: the study does not depend on being watched."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._gone = stream, False

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, act: Callable[[], Any]) -> None:
        try:
            if not self._gone:
                act()
        except (OSError, ValueError):  # EIO of a closed terminal, EPIPE of a pipe without a reader; a closed file
            self._gone = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Display:
    """Shows a study's progress on ``stream`` (default: standard error, so that a table can be piped).

    A notebook, a test or another program passes a subclass, or ``Display(quiet=True)``.
    """

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        file = cast(TextIO, _Stream(stream or sys.stderr))
        self._console = Console(file=file, quiet=quiet, highlight=False, soft_wrap=True)
        self._live = self._console.is_terminal and not quiet
        self._lines: dict[str, _Line] = {}
        self._count = self._done = 0
        self._metric = ""
        self._progress: Progress | None = None
        self._overall: TaskID | None = None

    def begin(self, study: str, *, runs: int, finished: int, workers: int, metric: str = "") -> None:
        """The study starts: ``runs`` are left to do, ``finished`` were done before; their lines end with ``metric``."""
        self._count, self._metric = runs, metric
        before = f", {finished} finished before" if finished else ""
        together = f", {workers} at a time" if workers > 1 else ""
        self.print(f"{study}: {runs} run{'' if runs == 1 else 's'} to do{before}{together}")
        if self._live and runs:
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
            more = (TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[note]}"))
            self._progress = Progress(*columns, *more, console=self._console, refresh_per_second=4)
            self._progress.start()
            self._overall = self._progress.add_task("[bold]all runs", total=runs, note="")

    def started(self, name: str, *, total: int | None = None) -> None:
        """A run starts, or its length in steps becomes known."""
        new = name not in self._lines
        line = self._lines.setdefault(name, _Line())
        line.total = total or line.total
        if self._progress is not None:
            if line.task is None:
                line.task = self._progress.add_task(name, total=line.total, note="starting")
            self._progress.update(line.task, total=line.total)
        elif new:
            self.print(f"[{self._done + len(self._lines)}/{self._count}] {name}: started")

    def metrics(self, name: str, step: int, values: dict[str, float]) -> None:
        """Points of a run's curves arrived."""
        line = self._lines.setdefault(name, _Line())
        line.step = step
        line.shown |= values
        if self._progress is not None and line.task is not None:
            self._progress.update(line.task, completed=step, note=_text(line.shown))
            return
        evaluated = any(key.startswith("valid/") for key in values)
        if evaluated or time.monotonic() - line.said >= PLAIN_SECONDS:
            line.said = time.monotonic()
            of = f"/{line.total}" if line.total else ""
            self.print(f"  {name}: step {step}{of}  {_text(line.shown)}")

    def ended(self, name: str, state: str, *, summary: dict[str, float], reason: str = "", again: bool = False) -> None:
        """A run ended; ``again`` when it is about to be tried again."""
        line = self._lines.pop(name, _Line())
        if self._progress is not None and line.task is not None:
            self._progress.remove_task(line.task)
        if not again:
            self._done += 1
        if self._progress is not None and self._overall is not None:
            self._progress.update(self._overall, completed=self._done)
        names = (self._metric, f"valid_{self._metric}")  # a trial of a search has the second alone
        figures = next((f"{name} {summary[name]:.4f}" for name in names if name in summary), "")
        parts = [
            state,
            figures,
            reason,
            f"{time.monotonic() - line.began:.0f} s",
            "trying again" if again else "",
        ]
        self.print(f"[{self._done}/{self._count}] {name}: {', '.join(part for part in parts if part)}")

    def print(self, text: str) -> None:
        """Print one line above the bars, with secrets redacted."""
        self._console.print(redact(text), markup=False)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _text(shown: dict[str, float]) -> str:
    """``loss 2.31  bits_per_byte 3.1  12.3k tokens/s`` of the last values."""
    parts = [f"loss {shown['train/loss']:.3f}"] if "train/loss" in shown else []
    for key, value in shown.items():
        if key.startswith("valid/") and key != "valid/loss":
            parts.append(f"{key} {value:.4f}")
    if "train/tokens_per_s" in shown:
        parts.append(f"{shown['train/tokens_per_s'] / 1_000:,.1f}k tokens/s")
    return "  ".join(parts)
