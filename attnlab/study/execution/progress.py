"""Progress of a study: live bars on a terminal, plain lines in a pipe or a file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.table import Column

from attnlab._util.redact import redact
from attnlab._util.text import count, escape_controls
from attnlab.training.result import Result

LONGEST_NAME = 32  # columns; a longer name is cut in its middle, because its end holds the seed
BAR_WIDTH = 12
PLAIN_SECONDS = 20.0  # between two lines of one run in a pipe; every evaluation gets a line
RATE_SECONDS = 3_600.0  # the time left follows the average rate over this time


def shorten(text: str) -> str:
    """Return a name in at most ``LONGEST_NAME`` characters, with an ellipsis in its middle if it is longer."""
    half = LONGEST_NAME // 2
    return text if len(text) <= LONGEST_NAME else f"{text[: half - 1]}…{text[-half:]}"


def format_clock(seconds: float) -> str:
    """Return a duration as in "0:42", "12:05" or "3:12:05"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


@dataclass
class _RunProgress:
    """A run that is training: its bar, the newest value of each curve, and times on the display's clock."""

    bar: Task
    started: float
    last_line: float
    values: dict[str, float] = field(default_factory=dict)


class _DetachableStream:
    """A stream that may lose its reader (a terminal is closed): later output is dropped and the study continues."""

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

    A terminal gets live bars. A file, a pipe and a terminal that cannot move its cursor (``TERM=dumb``) get plain lines.
    Another program passes a subclass, or ``ProgressDisplay(quiet=True)`` for no output.

    Args:
        clock: returns seconds.
    """

    def __init__(
        self, stream: TextIO | None = None, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        file = cast(TextIO, _DetachableStream(stream or sys.stderr))
        no_color = True if os.environ.get("NO_COLOR") else None
        self._console = Console(file=file, quiet=quiet, highlight=False, soft_wrap=True, no_color=no_color)
        # Not `is_terminal` alone: FORCE_COLOR makes it true for a file, too.
        self._is_live = file.isatty() and self._console.is_terminal and not self._console.is_dumb_terminal and not quiet
        self._clock = clock
        self._runs: dict[str, _RunProgress] = {}
        self._count = self._done = 0
        self._metrics: Sequence[str] = ()
        self._progress = self._bars()
        self._all: Task | None = None  # the bar of all runs; None before the study starts

    def _bars(self) -> Progress:
        return Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
            BarColumn(BAR_WIDTH),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[notes]}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
            console=self._console,
            refresh_per_second=4,
            speed_estimate_period=RATE_SECONDS,
            get_time=self._clock,
            expand=True,
        )

    def start_study(self, study: str, *, runs: int, finished: int, workers: int, metrics: Sequence[str] = ()) -> None:
        """Announce a study.

        Args:
            runs: the number of runs that are left.
            finished: the number of runs that are finished; later ones of other parents are in `count_ended`.
            workers: the number of runs that train at the same time.
            metrics: the final metric to show when a run ends is the first of these that it has.
        """
        self._count, self._done, self._metrics, self._progress = finished + runs, finished, metrics, self._bars()
        self._runs.clear()  # an aborted study, which left the bars of its runs, may have used this display
        self._all = self._add_bar("all runs", total=self._count, completed=finished)
        before = f", {finished} finished before" if finished else ""
        together = f", {min(workers, runs)} at a time" if min(workers, runs) > 1 else ""
        self.print(f"{study}: {count(runs, 'run')} to do{before}{together}")
        if self._is_live and runs:
            self._progress.start()

    @property
    def _has_bars(self) -> bool:
        return self._progress.live.is_started

    def count_ended(self, left: int) -> None:
        """Show how many runs of the study are left, waiting or training, here or in other parents."""
        self._done = max(self._done, self._count - left)
        self._update_all()

    def start_run(self, name: str, *, total: int | None = None) -> None:
        """Show that a run of ``total`` steps starts; None: their number is not known."""
        run = self._progress_of(name)
        if total is not None:
            self._progress.update(run.bar.id, total=total)
        if not self._has_bars:
            self.print(f"[{self._done + len(self._runs)}/{self._count}] {name}: started")

    def metrics(self, name: str, step: int, values: dict[str, float]) -> None:
        """Show new points of a run's curves."""
        run, now = self._progress_of(name), self._clock()
        run.values |= values
        self._progress.update(run.bar.id, completed=step, notes="  ".join(_describe(run.values, metrics=self._metrics)))
        self._update_all()
        evaluated = any(key.startswith("valid/") for key in values)
        if not self._has_bars and (evaluated or now - run.last_line >= PLAIN_SECONDS):
            run.last_line = now
            of = f"/{run.bar.total:.0f}" if run.bar.total else ""
            notes = [*_describe(run.values), *_left(run.bar)]
            self.print(f"  {name}: step {step}{of}  {'  '.join(notes)}")

    def evaluation(self, name: str, label: str, done: int, total: int) -> None:
        """Show how much of an evaluation of a run is done; the next points of its curves end it."""
        run, now = self._progress_of(name), self._clock()
        self._progress.update(run.bar.id, notes=f"evaluating {label} {done / total:.0%}")
        if not self._has_bars and now - run.last_line >= PLAIN_SECONDS:
            run.last_line = now
            self.print(f"  {name}: evaluating {label} {done / total:.0%}")

    def end_run(self, name: str, ending: Result, *, again: bool = False) -> None:
        """Show how a run ended, and whether it is tried ``again`` at once."""
        run = self._progress_of(name)
        self._progress.remove_task(self._runs.pop(name).bar.id)
        if not again:
            self._done += 1
        self._update_all()
        summary, metrics = ending.summary, (*self._metrics, *(f"valid_{name}" for name in self._metrics))  # a trial has no test
        score = next((f"{metric} {summary[metric]:.4f}" for metric in metrics if metric in summary), "")
        seconds = f"{self._clock() - run.started:.0f} s"
        left = _left(self._all) if not self._has_bars and self._done < self._count else []
        parts = [
            ending.state,
            score,
            ending.reason,
            seconds,
            "trying again" if again else "",
            *(f"{t} for all runs" for t in left),
        ]
        self.print(f"[{self._done}/{self._count}] {name}: {', '.join(part for part in parts if part)}")

    def _update_all(self) -> None:
        """Show the trained part of all runs."""
        if self._all is not None:
            trained = sum(run.bar.percentage / 100 for run in self._runs.values())
            self._progress.update(self._all.id, completed=self._done + trained)

    def print(self, text: str) -> None:
        """Print one line above the bars, with secrets redacted."""
        self._console.print(escape_controls(redact(text)), markup=False)

    def close(self) -> None:
        """Restore the terminal."""
        if self._has_bars:
            self._progress.stop()

    def _progress_of(self, name: str) -> _RunProgress:
        if name not in self._runs:
            now = self._clock()
            self._runs[name] = _RunProgress(self._add_bar(escape_controls(shorten(name)), notes="starting"), now, now)
        return self._runs[name]

    def _add_bar(self, name: str, *, total: int | None = None, completed: int = 0, notes: str = "") -> Task:
        self._progress.add_task(name, total=total, completed=completed, notes=notes)
        return self._progress.tasks[-1]


def _left(bar: Task | None) -> list[str]:
    """Return the time left of a bar; nothing where it is not known."""
    seconds = bar.time_remaining if bar is not None else None
    return [] if seconds is None else [f"{format_clock(seconds)} left"]


def _describe(values: dict[str, float], *, metrics: Sequence[str] = ()) -> list[str]:
    """Format the newest values: ``loss 2.310``, ``valid/bits_per_byte 3.1000``, ``12.3k tokens/s``.

    Args:
        metrics: of the study; the value of one is labelled ``valid``, which is shorter.
    """
    parts = [f"loss {values['train/loss']:.3f}"] if "train/loss" in values else []
    for key, value in values.items():
        name = key.removeprefix("valid/")
        if key.startswith("valid/") and (name != "loss" or "loss" in metrics):
            parts.append(f"{'valid' if name in metrics else key} {value:.4f}")
    if "train/tokens_per_s" in values:
        parts.append(f"{values['train/tokens_per_s'] / 1_000:,.1f}k tokens/s")
    return parts
