"""Progress of a command that computes before it prints: a bar or a line on standard error, on a terminal only."""

from __future__ import annotations

import os
import shutil
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from attnlab._util.process import delayed_interrupts

if TYPE_CHECKING:
    from rich.live import Live

    from attnlab.study.execution.progress import Bars

DELAY = 2.0  # seconds without output that need no explanation


class DelayedProgress:
    """A context manager that shows one bar from `DELAY` seconds after its start and removes it at its end.

    Call it with a label, the completed number and the total; a new label starts a new bar.
    """

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._stage, self._stage_started = ("", 0, 0), self._started
        self._live: Live | None = None

    def __call__(self, label: str, done: int, total: int) -> None:
        if label != self._stage[0]:
            self._stage_started = time.monotonic()
        self._stage = label, done, total

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=sys.stderr)
        if sys.stderr.isatty() and not console.is_dumb_terminal:
            self._live = Live(console=console, transient=True, refresh_per_second=4, get_renderable=self._bars)
            try:
                with delayed_interrupts():  # half started, a display cannot be stopped
                    self._live.start()
            except KeyboardInterrupt:
                self._live.stop()
                raise KeyboardInterrupt from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def _bars(self) -> Bars:
        from attnlab.study.execution.progress import Bar, Bars

        now, (label, done, total) = time.monotonic(), self._stage
        if not total or now - self._started < DELAY:
            return Bars([])
        left = (now - self._stage_started) / done * (total - done) if done else None
        return Bars([Bar(label, done, total, left)])


class ProgressLine:
    """A line on standard error that names the current step and is removed at the end.

    Nothing is printed into a file, a pipe or a terminal that cannot move its cursor (``TERM=dumb``).
    """

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *error: object) -> None:
        self._write("")

    def show(self, text: str) -> None:
        """Replace the line, cut to the width of the terminal."""
        self._write(f"{text} ..."[: shutil.get_terminal_size().columns - 1])

    def _write(self, line: str) -> None:
        if sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
