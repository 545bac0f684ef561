"""Progress of a study: live bars on a terminal, plain lines in a pipe or a file."""

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
from attnlab.study.execution.ending import Ending

PLAIN_SECONDS = 20.0  # between two lines of one run in a pipe; every evaluation gets a line


@dataclass
class _RunProgress:
    total: int | None = None  # steps
    values: dict[str, float] = field(default_factory=dict)  # the newest of each curve
    task: TaskID | None = None
    last_line: float = field(default_factory=time.monotonic)
    started: float = field(default_factory=time.monotonic)


class _DetachableStream:
    """A stream whose reader may disappear (a terminal is closed): later output is dropped and the study continues."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._detached = stream, False

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, operation: Callable[[], Any]) -> None:
        try:
            if not self._detached:
                operation()
        except (OSError, ValueError):  # EIO of a closed terminal, EPIPE of a pipe without a reader; a closed file
            self._detached = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class ProgressDisplay:
    """Show a study's progress on ``stream`` (default: standard error, so that a table can be piped).

    Another program passes a subclass, or ``ProgressDisplay(quiet=True)`` for no output.
    """

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        file = cast(TextIO, _DetachableStream(stream or sys.stderr))
        self._console = Console(file=file, quiet=quiet, highlight=False, soft_wrap=True)
        self._live = self._console.is_terminal and not quiet
        self._runs: dict[str, _RunProgress] = {}
        self._count = self._done = 0
        self._metric = ""
        self._progress: Progress | None = None
        self._overall: TaskID | None = None

    def start_study(self, study: str, *, runs: int, finished: int, workers: int, metric: str = "") -> None:
        """Announce a study.

        Args:
            runs: the number of runs that are left.
            finished: the number of runs that earlier calls finished.
            workers: the number of runs that train at the same time.
            metric: the final metric to show when a run ends.
        """
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

    def start_run(self, name: str, *, total: int | None = None) -> None:
        """Show that a run starts, or that its length of ``total`` steps becomes known."""
        new = name not in self._runs
        line = self._runs.setdefault(name, _RunProgress())
        line.total = total or line.total
        if self._progress is not None:
            if line.task is None:
                line.task = self._progress.add_task(name, total=line.total, note="starting")
            self._progress.update(line.task, total=line.total)
        elif new:
            self.print(f"[{self._done + len(self._runs)}/{self._count}] {name}: started")

    def metrics(self, name: str, step: int, values: dict[str, float]) -> None:
        """Show new points of a run's curves."""
        line = self._runs.setdefault(name, _RunProgress())
        line.values |= values
        if self._progress is not None and line.task is not None:
            self._progress.update(line.task, completed=step, note=_summarize(line.values))
            return
        evaluated = any(key.startswith("valid/") for key in values)
        if evaluated or time.monotonic() - line.last_line >= PLAIN_SECONDS:
            line.last_line = time.monotonic()
            of = f"/{line.total}" if line.total else ""
            self.print(f"  {name}: step {step}{of}  {_summarize(line.values)}")

    def end_run(self, name: str, ending: Ending, *, again: bool = False) -> None:
        """Show how a run ended, and whether it is tried ``again`` at once."""
        line = self._runs.pop(name, _RunProgress())
        if self._progress is not None and line.task is not None:
            self._progress.remove_task(line.task)
        if not again:
            self._done += 1
        if self._progress is not None and self._overall is not None:
            self._progress.update(self._overall, completed=self._done)
        summary, metrics = ending.summary, (self._metric, f"valid_{self._metric}")  # a trial has only the validation metric
        score = next((f"{metric} {summary[metric]:.4f}" for metric in metrics if metric in summary), "")
        parts = [
            ending.state,
            score,
            ending.reason,
            f"{time.monotonic() - line.started:.0f} s",
            "trying again" if again else "",
        ]
        self.print(f"[{self._done}/{self._count}] {name}: {', '.join(part for part in parts if part)}")

    def print(self, text: str) -> None:
        """Print one line above the bars, with secrets redacted."""
        self._console.print(redact(text), markup=False)

    def close(self) -> None:
        """Restore the terminal."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _summarize(values: dict[str, float]) -> str:
    """Format the newest values: ``loss 2.310  valid/bits_per_byte 3.1000  12.3k tokens/s``."""
    parts = [f"loss {values['train/loss']:.3f}"] if "train/loss" in values else []
    for key, value in values.items():
        if key.startswith("valid/") and key != "valid/loss":
            parts.append(f"{key} {value:.4f}")
    if "train/tokens_per_s" in values:
        parts.append(f"{values['train/tokens_per_s'] / 1_000:,.1f}k tokens/s")
    return "  ".join(parts)
