"""Progress of a study: live bars on a terminal, plain lines in a pipe or a file.

The live display has one line per bar, fitted to the width of the terminal. A line holds the name, the bar, the count and the
time left, which are always shown, and then as many metrics as fit.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO, cast

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from attnlab._util.redact import redact
from attnlab._util.text import count, escape_controls
from attnlab.study.execution.job import Ending

GAP = 2  # columns between two parts of a line
MIN_NAME = 8
BAR_WIDTH = (6, 24)  # least and most columns
PLAIN_SECONDS = 20.0  # between two lines of one run in a pipe; every evaluation gets a line


@dataclass(frozen=True)
class Bar:
    """One line of the display.

    Attributes:
        name: shortened in the middle if it is too long, because its end holds the seed.
        done: completed steps or runs.
        total: None when it is not known yet.
        seconds_left: None when it is not known yet.
        notes: most important first; those that do not fit are left out.
    """

    name: str
    done: int
    total: int | None
    seconds_left: float | None = None
    notes: Sequence[str] = ()
    style: str = ""

    @property
    def count(self) -> str:
        return f"{self.done}/{'?' if self.total is None else self.total}"

    @property
    def time_left(self) -> str:
        return f"{'-:--' if self.seconds_left is None else format_clock(self.seconds_left)} left"


class Bars:
    """A renderable for rich: a line for each bar, with their parts aligned."""

    def __init__(self, bars: Sequence[Bar]) -> None:
        self._bars = bars

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self._bars:
            return
        width = options.max_width
        count = max(len(bar.count) for bar in self._bars)
        left = max(len(bar.time_left) for bar in self._bars)
        bar_width = min(max(width * 3 // 20, BAR_WIDTH[0]), BAR_WIDTH[1])
        room = width - bar_width - count - left - 3 * GAP
        name = min(max(cell_len(bar.name) for bar in self._bars), max(room, MIN_NAME))
        note = room - name - GAP
        table = Table.grid(
            Column(width=name, no_wrap=True),
            Column(width=bar_width),
            Column(width=count, no_wrap=True, justify="right"),
            Column(width=left, no_wrap=True, justify="right"),
            *([Column(width=note, no_wrap=True)] if note > 0 else []),
            padding=(0, GAP, 0, 0),
        )
        for bar in self._bars:
            table.add_row(
                Text(shorten(bar.name, name), style=bar.style),
                ProgressBar(total=bar.total or 1, completed=bar.done if bar.total else 0, width=bar_width),
                Text(bar.count, style=bar.style),
                Text(bar.time_left),
                *([Text(fitting(bar.notes, note))] if note > 0 else []),
            )
        yield table


def shorten(text: str, width: int) -> str:
    """Return the text in at most ``width`` columns, with an ellipsis in its middle if it is longer."""
    if cell_len(text) <= width:
        return text
    end = max(0, min(width // 2, width - 2))
    tail = set_cell_size(text[::-1], end)[::-1] if end else ""
    return f"{set_cell_size(text, max(0, width - end - 1))}…{tail}"


def fitting(notes: Sequence[str], width: int) -> str:
    """Join the notes that fit into ``width`` columns, in their order."""
    line = ""
    for note in notes:
        longer = f"{line}{' ' * GAP}{note}" if line else note
        line = longer if cell_len(longer) <= width else line
    return line


def format_clock(seconds: float) -> str:
    """Return a duration as in "0:42", "12:05" or "3:12:05"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


@dataclass
class _RunProgress:
    """The progress of a run; times are on the display's clock."""

    started: float
    total: int | None = None  # steps
    values: dict[str, float] = field(default_factory=dict)  # the newest of each curve
    first: tuple[float, int] | None = None  # time and step of the first point: a resumed run does not begin at 0
    newest: tuple[float, int] = (0.0, 0)
    last_line: float = 0.0
    evaluation: str = ""  # the progress of the evaluation that is under way

    def update(self, now: float, step: int, values: dict[str, float]) -> None:
        self.values |= values
        self.evaluation = ""
        self.newest = (now, step)
        self.first = self.first or self.newest

    @property
    def fraction(self) -> float:
        """The trained part of the run, from 0 to 1."""
        return min(1.0, self.newest[1] / self.total) if self.total else 0.0

    @property
    def fraction_before(self) -> float:
        """The part that an earlier call trained, as far as the first point shows it."""
        return 0.0 if self.first is None or not self.total else min(1.0, self.first[1] / self.total)

    def seconds_left(self, now: float) -> float | None:
        """Return the time to the last step at the average rate since the first point; None before the second point."""
        if self.first is None or self.total is None or self.newest[1] <= self.first[1]:
            return None
        (begin, first_step), (time_, step) = self.first, self.newest
        return max(0.0, (time_ - begin) / (step - first_step) * (self.total - step) - (now - time_))


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
        self._started = 0.0
        self._metrics: Sequence[str] = ()
        self._live: Live | None = None

    def start_study(self, study: str, *, runs: int, finished: int, workers: int, metrics: Sequence[str] = ()) -> None:
        """Announce a study.

        Args:
            runs: the number of runs that are left.
            finished: the number of runs that earlier calls finished.
            workers: the number of runs that train at the same time.
            metrics: the final metric to show when a run ends is the first of these that it has.
        """
        self._count, self._done, self._metrics, self._started = runs, 0, metrics, self._clock()
        before = f", {finished} finished before" if finished else ""
        together = f", {min(workers, runs)} at a time" if min(workers, runs) > 1 else ""
        self.print(f"{study}: {count(runs, 'run')} to do{before}{together}")
        if self._is_live and runs:
            self._live = Live(console=self._console, refresh_per_second=4, get_renderable=lambda: Bars(self.bars()))
            self._live.start()

    def start_run(self, name: str, *, total: int | None = None) -> None:
        """Show that a run starts, or that its length of ``total`` steps becomes known."""
        new = name not in self._runs
        run = self._progress_of(name)
        run.total = total or run.total
        if self._live is None and new:
            self.print(f"[{self._done + len(self._runs)}/{self._count}] {name}: started")

    def metrics(self, name: str, step: int, values: dict[str, float]) -> None:
        """Show new points of a run's curves."""
        run, now = self._progress_of(name), self._clock()
        run.update(now, step, values)
        evaluated = any(key.startswith("valid/") for key in values)
        if self._live is None and (evaluated or now - run.last_line >= PLAIN_SECONDS):
            run.last_line = now
            of = f"/{run.total}" if run.total else ""
            left = run.seconds_left(now)
            notes = [*_describe(run.values), *([] if left is None else [f"{format_clock(left)} left"])]
            self.print(f"  {name}: step {step}{of}  {'  '.join(notes)}")

    def evaluation(self, name: str, label: str, done: int, total: int) -> None:
        """Show how much of an evaluation of a run is done; the next points of its curves end it."""
        run, now = self._progress_of(name), self._clock()
        run.evaluation = f"{label} {done / total:.0%}"
        if self._live is None and now - run.last_line >= PLAIN_SECONDS:
            run.last_line = now
            self.print(f"  {name}: evaluating {run.evaluation}")

    def end_run(self, name: str, ending: Ending, *, again: bool = False) -> None:
        """Show how a run ended, and whether it is tried ``again`` at once."""
        run = self._runs.pop(name, None) or _RunProgress(self._clock())
        if not again:
            self._done += 1
        summary, metrics = ending.summary, (*self._metrics, *(f"valid_{name}" for name in self._metrics))  # a trial has no test
        score = next((f"{metric} {summary[metric]:.4f}" for metric in metrics if metric in summary), "")
        seconds = f"{self._clock() - run.started:.0f} s"
        left = self._seconds_left() if self._live is None and self._done < self._count else None
        parts = [ending.state, score, ending.reason, seconds, "trying again" if again else ""]
        parts.append("" if left is None else f"{format_clock(left)} left for all runs")
        self.print(f"[{self._done}/{self._count}] {name}: {', '.join(part for part in parts if part)}")

    def bars(self) -> list[Bar]:
        """Return the lines of the live display: all runs, then each run that is training."""
        now = self._clock()
        notes = [f"{format_clock(now - self._started)} elapsed"]
        bars = [
            Bar(
                "all runs", self._done, self._count, self._seconds_left(), notes, style="" if self._console.no_color else "bold"
            )
        ]
        for name, run in list(self._runs.items()):
            evaluation = [f"evaluating {run.evaluation}"] if run.evaluation else []
            notes = [*evaluation, *_describe(run.values, metrics=self._metrics)] or ["starting"]
            bars.append(Bar(name, run.newest[1], run.total, run.seconds_left(now), notes))
        return bars

    def _seconds_left(self) -> float | None:
        """Return the time to the end of all runs at the average rate so far; None when nothing has been trained yet."""
        trained = self._done + sum(run.fraction - run.fraction_before for run in self._runs.values())
        open_ = self._count - self._done - sum(run.fraction for run in self._runs.values())
        return (self._clock() - self._started) / trained * max(0.0, open_) if trained else None

    def print(self, text: str) -> None:
        """Print one line above the bars, with secrets redacted."""
        self._console.print(escape_controls(redact(text)), markup=False)

    def close(self) -> None:
        """Restore the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _progress_of(self, name: str) -> _RunProgress:
        if name not in self._runs:
            now = self._clock()
            self._runs[name] = _RunProgress(now, last_line=now)
        return self._runs[name]


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
