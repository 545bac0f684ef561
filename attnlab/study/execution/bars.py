"""The live display of a study: one line per bar, fitted to the width of the terminal.

A line holds the name, the bar, the count and the time left, which are always shown, and then as many metrics as fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

GAP = 2  # columns between two parts of a line
MIN_NAME = 8
BAR_WIDTH = (6, 24)  # least and most columns


@dataclass(frozen=True)
class Bar:
    """One line of the display.

    Attributes:
        name: shortened in the middle if it is too long, because its end holds the seed.
        done: completed steps or runs.
        total: None if it is not known yet.
        seconds_left: None if it is not known yet.
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
