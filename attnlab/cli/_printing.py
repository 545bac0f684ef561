"""Tables as text: aligned columns that survive a pipe, split into blocks if the terminal is too narrow for all of them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

GAP = "  "


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, keep_empty: bool = False) -> None:
    """Print a table: in full into a pipe or a file, fitted to a terminal. Empty columns are dropped, unless `keep_empty`."""
    keep = [i for i in range(len(headings)) if keep_empty or i == 0 or any(row[i] for row in rows)]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(format_table([headings[i] for i in keep], [[row[i] for i in keep] for row in rows], width=width))


def format_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None = None) -> str:
    """Return a table as text, with numbers aligned right and words left.

    Args:
        width: of the terminal, in characters. A wider table is split into blocks of columns that all begin with the first
            column, so that no cell is wrapped or truncated. None: one block.
    """
    columns = list(zip(headings, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [_is_numeric(column[1:]) for column in columns]
    lines: list[str] = []
    for block in _blocks(widths, width):
        lines += [""] if lines else []
        for row in (headings, ["-" * n for n in widths], *rows):
            cells = [row[i].rjust(widths[i]) if right[i] else row[i].ljust(widths[i]) for i in block]
            lines.append(GAP.join(cells).rstrip())
    return "\n".join(lines)


def _is_numeric(cells: Sequence[str]) -> bool:
    """Return True if most of the non-empty cells begin with a digit, after an optional sign."""
    filled = [cell.lstrip("+-~") for cell in cells if cell]
    return sum(cell[:1].isdigit() for cell in filled) * 2 > len(filled)


def _blocks(widths: Sequence[int], width: int | None) -> list[list[int]]:
    """Split columns into blocks that begin with the first column and fit the width, unless a single column exceeds it."""
    blocks = [[0]]
    used = widths[0]
    for i in range(1, len(widths)):
        if width is not None and used + len(GAP) + widths[i] > width and len(blocks[-1]) > 1:
            blocks.append([0])
            used = widths[0]
        blocks[-1].append(i)
        used += len(GAP) + widths[i]
    return blocks


def relative(path: Path) -> str:
    """Return the path relative to the working directory if it is inside it, else in full."""
    return os.path.relpath(path) if path.resolve().is_relative_to(Path.cwd()) else str(path)
