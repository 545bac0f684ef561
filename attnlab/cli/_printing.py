"""Print tables, sentences and the progress of a command that computes before it prints.

Tables and sentences are complete in a pipe or a file, and fitted to a terminal. Progress is a bar or a line on standard error,
on a terminal only.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attnlab._util.files import real_path
from attnlab._util.text import GAP, escape_controls, format_table

STYLES = {  # heading -> first word of a cell -> style
    "verdict": {"better": "green", "worse": "red", "equivalent": "blue", "inconclusive": "yellow"},
    "result": {"passed": "green", "failed": "red", "refused": "yellow"},
}


def terminal_width() -> int | None:
    """Return the width of the terminal in characters, or None when standard output is a pipe or a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def terminal_styles() -> dict[str, dict[str, str]] | None:
    """Return the styles of columns on a terminal, as for `format_table`; None in a pipe or a file, or with `NO_COLOR`."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown")
    return None if plain or not sys.stdout.isatty() else STYLES


def print_text(text: str) -> None:
    """Print a sentence: on one line into a pipe or a file, broken between words on a terminal, with an indent."""
    text, width = escape_controls(text), terminal_width()
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
    shown = [[row[i] for i in keep] for row in (headings, *rows)]
    options = {"width": terminal_width(), "wrap": wrap, "second_block": second_block, "styles": terminal_styles()}
    print(format_table(shown[0], shown[1:], **options))


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
    return escape_controls(os.path.relpath(path) if real_path(path).is_relative_to(Path.cwd()) else str(path))


@contextmanager
def show_progress() -> Iterator[Callable[..., None]]:
    """Show a bar on standard error while the block runs, if it is a terminal; the function takes a label and how much is done.

    Examples:
        >>> with show_progress() as progress:
        ...     progress("resolving cells", 3, 14)
        ...     progress("causality")  # without a number of steps
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    console = Console(file=sys.stderr)
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
    hidden = not sys.stderr.isatty() or console.is_dumb_terminal
    progress = Progress(*columns, TimeRemainingColumn(), console=console, transient=True, redirect_stdout=False, disable=hidden)
    task = progress.add_task("", visible=False, total=None)

    def show(label: str, done: int = 0, total: int | None = None) -> None:
        progress.update(task, description=label, completed=done, total=total, visible=total != 0)

    try:
        with progress:
            yield show
    finally:
        if not hidden:
            console.show_cursor()  # an interrupt while the bar starts has left it hidden
