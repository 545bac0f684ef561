"""Tables as text."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from itertools import zip_longest

GAP = "  "
MIN_WRAPPED = 24  # characters: narrower sentences are hard to read


def format_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None = None,
    wrap: Collection[str] = (),
    second_block: str = "",
) -> str:
    """Return a table as text, with numbers aligned right; words and what may be broken between them, left.

    Args:
        width: of the terminal, in characters. A wider table is split into blocks of columns that all begin with the first
            column, so that no cell is truncated; rows with nothing in a further block are left out there. None: one block.
        wrap: headings of the columns that may be broken between words.
        second_block: heading of the first column of the second block, if the table is split.
    """
    columns = list(zip(headings, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [_is_numeric(column[1:]) and heading not in wrap for heading, column in zip(headings, columns, strict=True)]
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
    """Return True when most of the non-empty cells begin with a digit, after an optional sign."""
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
