"""Tables as text: aligned columns that survive a pipe, cut into blocks where a terminal is narrow."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

GAP = "  "


def columns(headings: Sequence[str], lines: Sequence[Sequence[str]], *, width: int | None = None) -> str:
    """Align a table as text; figures stand right, words left.

    Args:
        width: of the terminal, in characters. A table that is wider is printed in blocks of columns, each
        with the
            first column again. None: one block, however wide.
    """
    right = [_is_figures([line[i] for line in lines]) for i in range(len(headings))]
    widths = [max(len(cell) for cell in column) for column in zip(headings, *lines, strict=True)]
    blocks = _blocks(widths, width)
    text = []
    for block in blocks:
        for line in (headings, ["-" * each for each in widths], *lines):
            cells = [line[i].rjust(widths[i]) if right[i] else line[i].ljust(widths[i]) for i in block]
            text.append(GAP.join(cells).rstrip())
        text.append("")
    return "\n".join(text[:-1])


def print_table(headings: Sequence[str], lines: Sequence[Sequence[str]], *, keep_empty: bool = False) -> None:
    """Print a table: in full into a pipe or a file, fitted to a terminal. Empty columns are dropped, unless `keep_empty`."""
    keep = [i for i in range(len(headings)) if keep_empty or i == 0 or any(line[i] for line in lines)]
    headings, lines = [headings[i] for i in keep], [[line[i] for i in keep] for line in lines]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(columns(headings, lines, width=width))


def _is_figures(cells: Sequence[str]) -> bool:
    given = [cell.lstrip("+-~") for cell in cells if cell]
    return bool(given) and sum(cell[:1].isdigit() for cell in given) * 2 > len(given)


def _blocks(widths: Sequence[int], width: int | None) -> list[list[int]]:
    """Split columns so that each block, led by the first column, fits the width where that can be done."""
    blocks: list[list[int]] = [[0]]
    used = widths[0]
    for i in range(1, len(widths)):
        if width is not None and used + len(GAP) + widths[i] > width and len(blocks[-1]) > 1:
            blocks.append([0])
            used = widths[0]
        blocks[-1].append(i)
        used += len(GAP) + widths[i]
    return blocks


def relative(path: Path) -> str:
    """Return the path relative to the working directory where it lies inside, else in full."""
    return os.path.relpath(path) if path.resolve().is_relative_to(Path.cwd()) else str(path)
