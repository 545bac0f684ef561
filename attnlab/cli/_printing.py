"""Tables and sentences as text: in full into a pipe or a file, fitted to a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Collection, Sequence
from itertools import zip_longest
from pathlib import Path

GAP = "  "
MIN_WRAPPED = 24  # characters: narrower sentences are hard to read


def terminal_width() -> int | None:
    """Return the width of the terminal in characters, or None if standard output is a pipe or a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


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
    print(format_table(kept_headings, kept_rows, width=terminal_width(), wrap=wrap, second_block=second_block))


def format_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None = None,
    wrap: Collection[str] = (),
    second_block: str = "",
) -> str:
    """Return a table as text, with numbers aligned right and words left.

    Args:
        width: of the terminal, in characters. A wider table is split into blocks of columns that all begin with the first
            column, so that no cell is truncated; rows with nothing in a further block are left out there. None: one block.
        wrap: headings of the columns whose cells may be broken between words.
        second_block: heading of the first column of the second block, if the table is split.
    """
    columns = list(zip(headings, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [_is_numeric(column[1:]) for column in columns]
    least = [min(n, MIN_WRAPPED) if heading in wrap else n for heading, n in zip(headings, widths, strict=True)]
    start = headings.index(second_block) if second_block in headings else None
    lines: list[str] = []
    for block in _blocks(least, width, start=start):
        fitted = _fit({i: widths[i] for i in block}, least, width)
        rule = ["-" * fitted.get(i, 0) for i in range(len(headings))]
        filled = [row for row in rows if not lines or any(row[i] for i in block[1:])]
        lines += [""] if lines else []
        for row in (headings, rule, *filled):
            lines += _format_row({i: row[i] for i in block}, fitted, right)
    return "\n".join(lines)


def _format_row(cells: dict[int, str], widths: dict[int, int], right: Sequence[bool]) -> list[str]:
    """Return the lines of a row, several if a cell is wider than its column."""
    wrapped = [[cell] if len(cell) <= widths[i] else textwrap.wrap(cell, widths[i]) for i, cell in cells.items()]
    return [
        GAP.join(
            text.rjust(widths[i]) if right[i] else text.ljust(widths[i]) for i, text in zip(cells, parts, strict=True)
        ).rstrip()
        for parts in zip_longest(*wrapped, fillvalue="")
    ]


def _is_numeric(cells: Sequence[str]) -> bool:
    """Return True if most of the non-empty cells begin with a digit, after an optional sign."""
    filled = [cell.lstrip("+-~") for cell in cells if cell]
    return sum(cell[:1].isdigit() for cell in filled) * 2 > len(filled)


def _blocks(widths: Sequence[int], width: int | None, *, start: int | None) -> list[list[int]]:
    """Split columns into blocks that begin with the first column and fit the width, unless a single column exceeds it.

    Args:
        start: the column at which the second block begins if one block is not enough.
    """
    if width is None or _total(widths) <= width:
        return [list(range(len(widths)))]
    blocks = [[0]]
    for i in range(1, len(widths)):
        too_wide = _total([widths[j] for j in (*blocks[-1], i)]) > width
        if len(blocks[-1]) > 1 and (too_wide or i == start):
            blocks.append([0])
        blocks[-1].append(i)
    return blocks


def _fit(widths: dict[int, int], least: Sequence[int], width: int | None) -> dict[int, int]:
    """Return the widths of a block's columns, the widest ones reduced, at most to ``least``, until the block fits."""
    fitted = dict(widths)
    while width is not None and _total(list(fitted.values())) > width:
        reducible = [i for i in fitted if fitted[i] > least[i]]
        if not reducible:
            break
        fitted[max(reducible, key=lambda i: fitted[i])] -= 1
    return fitted


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


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
    return os.path.relpath(path) if path.resolve().is_relative_to(Path.cwd()) else str(path)
