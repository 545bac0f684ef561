"""Print tables, sentences and the progress of a command that computes before it prints.

Tables and sentences are complete in a pipe or a file, and fitted to a terminal. Progress is a bar or a line on standard error,
on a terminal only.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from attnlab._util.files import real_path
from attnlab._util.process import delayed_interrupts
from attnlab._util.text import GAP, format_table

GREEN, RED, YELLOW, BLUE = "32", "31", "33", "34"
STYLES = {  # heading -> first word of a cell -> style
    "verdict": {"better": GREEN, "worse": RED, "equivalent": BLUE, "inconclusive": YELLOW},
    "result": {"passed": GREEN, "failed": RED, "refused": YELLOW},
}
DELAY = 2.0  # seconds without output that need no explanation


def terminal_width() -> int | None:
    """Return the width of the terminal in characters, or None when standard output is a pipe or a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def terminal_styles() -> dict[str, dict[str, str]] | None:
    """Return the styles of columns on a terminal, as for `format_table`; None in a pipe or a file, or with `NO_COLOR`."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown")
    return None if plain or not sys.stdout.isatty() else STYLES


def print_text(text: str) -> None:
    """Print a sentence: on one line into a pipe or a file, broken between words on a terminal, with an indent."""
    width = terminal_width()
    if width is not None:
        text = textwrap.fill(text, width, subsequent_indent=GAP, break_long_words=False, break_on_hyphens=False)
    print(text)


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    keep_empty: bool = False,
    wrap: Collection[str] = (),
    second_block: str = "",
) -> None:
    """Print a table: in full into a pipe or a file, fitted to a terminal. Empty columns are dropped, unless `keep_empty`.

    Args:
        wrap, second_block: as for `format_table`.
    """
    keep = [i for i in range(len(headings)) if keep_empty or i == 0 or any(row[i] for row in rows)]
    kept_rows = [[row[i] for i in keep] for row in rows]
    kept_headings = [headings[i] for i in keep]
    options = {"width": terminal_width(), "wrap": wrap, "second_block": second_block, "styles": terminal_styles()}
    print(format_table(kept_headings, kept_rows, **options))


def constant_columns(headings: Sequence[str], rows: Sequence[Sequence[str]], *, among: Collection[str]) -> dict[str, str]:
    """Return heading -> value of the columns in `among` with the same value in every row that has one, at least two."""
    constant = {}
    for heading, column in zip(headings, zip(*rows, strict=True), strict=True):
        filled = [cell for cell in column if cell]
        if heading in among and len(filled) > 1 and len(set(filled)) == 1:
            constant[heading] = filled[0]
    return constant


def format_duration(seconds: float) -> str:
    """Return "45 s", "12 min", "3.4 h" or "2.1 days"."""
    for unit, size, digits in (("days", 86_400, 1), ("h", 3_600, 1), ("min", 60, 0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "< 1 s"


def relative(path: Path) -> str:
    """Return the path relative to the working directory if it is inside it, else in full."""
    return os.path.relpath(path) if real_path(path).is_relative_to(Path.cwd()) else str(path)


class DelayedProgress:
    """A context manager that shows one bar from `DELAY` seconds after its start and removes it at its end.

    Call it with a label, the completed number and the total.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(file=sys.stderr)
        columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        hidden = not sys.stderr.isatty() or console.is_dumb_terminal
        self._started = time.monotonic()
        self._progress = Progress(*columns, console=console, transient=True, disable=hidden)
        self._task = self._progress.add_task("", visible=False, total=None)

    def __call__(self, label: str, done: int, total: int) -> None:
        visible = time.monotonic() - self._started >= DELAY and total > 0
        self._progress.update(self._task, description=label, completed=done, total=total, visible=visible)

    def __enter__(self) -> Self:
        try:
            with delayed_interrupts():  # half started, a display cannot be stopped
                self._progress.start()
        except KeyboardInterrupt:
            self._progress.stop()
            raise KeyboardInterrupt from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()


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
