"""Text for people: tables, also as HTML for notebooks, numbers with their nouns, and names and messages of unknown origin."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from html import escape
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

GAP = "  "
MIN_WRAPPED = 24  # characters: narrower sentences are hard to read


def format_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None = None,
    wrap: Collection[str] = (),
    second_block: str = "",
    styles: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """Return a table as text, with numbers aligned right, and control characters in its cells escaped.

    Args:
        width: of the terminal, in characters. A wider table is split into blocks of columns that all begin with the first
            column, so that no cell is truncated; rows with nothing in a further block are left out there. None: one block.
        wrap: headings of the columns that may be broken between words.
        second_block: heading of the first column of the second block, if the table is split.
        styles: heading -> first word of a cell -> rich's name of the style of cells that begin with it, such as "red".
    """
    from rich.cells import cell_len
    from rich.console import Console

    columns = [[escape_controls(cell) for cell in column] for column in zip(headings, *rows, strict=True)]
    widths = [max(map(cell_len, column)) for column in columns]
    least = [min(n, MIN_WRAPPED) if heading in wrap else n for heading, n in zip(headings, widths, strict=True)]
    room = _total(widths) if width is None else width
    start = headings.index(second_block) if second_block in headings else None
    text = StringIO()
    console = Console(file=text, width=max(room, _total(widths)), color_system="standard" if styles else None)
    for number, block in enumerate(_blocks(least, room, start=start)):
        console.print("\n" if number else "", end="")
        table = _table([columns[i] for i in block], wrap=wrap, styles=styles or {}, drop_empty=number > 0)
        console.print(table, width=max(room, _total([least[i] for i in block])))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _table(
    columns: Sequence[Sequence[str]], *, wrap: Collection[str], styles: Mapping[str, Mapping[str, str]], drop_empty: bool
) -> Table:
    """Return a table of rich with a line below the headings, which are the first cells of the columns."""
    from rich.rule import Rule
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, len(GAP), 0, 0))
    for heading, *cells in columns:
        right = heading not in wrap and _is_numeric(cells)
        table.add_column(justify="right" if right else "left", no_wrap=heading not in wrap, overflow="fold")
    headings, *rows = zip(*columns, strict=True)
    table.add_row(*map(Text, headings))
    table.add_row(*[Rule(characters="-", style="")] * len(headings))
    for row in rows:
        if not drop_empty or any(row[1:]):
            first_words = [re.split(r"\W", cell, maxsplit=1)[0] for cell in row]
            found = [styles.get(heading, {}).get(word, "") for heading, word in zip(headings, first_words, strict=True)]
            table.add_row(*(Text.assemble(part) for part in zip(row, found, strict=True)))
    return table


def _is_numeric(cells: Sequence[str]) -> bool:
    """Return True when most of the non-empty cells begin with a digit, after an optional sign."""
    filled = [cell.lstrip("+-~") for cell in cells if cell]
    return sum(cell[:1].isdigit() for cell in filled) * 2 > len(filled)


def _blocks(widths: Sequence[int], width: int, *, start: int | None) -> list[list[int]]:
    """Split columns into blocks that begin with the first column and fit the width, unless a single column exceeds it.

    Args:
        start: the column at which the second block begins if one block is not enough.
    """
    start = None if _total(widths) <= width else start
    blocks = [[0]]
    for i in range(1, len(widths)):
        if len(blocks[-1]) > 1 and (i == start or _total([widths[j] for j in (*blocks[-1], i)]) > width):
            blocks.append([0])
        blocks[-1].append(i)
    return blocks


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def html_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "") -> str:
    """Return an HTML table; columns without a value are left out, and markup in the texts is shown as it is."""
    columns = [i for i in range(len(headings)) if any(row[i] for row in rows)]
    lines = [_row("th", [headings[i] for i in columns]), *(_row("td", [row[i] for i in columns]) for row in rows)]
    return f"<table><caption>{escape(caption)}</caption>{''.join(lines)}</table>"


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def escape_controls(text: str, *, keep: str = "") -> str:
    r"""Return the text with control characters, bidirectional overrides and line separators as escapes such as ``\x1b``.

    Spaces of all widths stay.

    Args:
        keep: control characters that stay, for example ``"\n"``.

    Examples:
        >>> escape_controls("a\x1b[2Jb\u202e")
        'a\\x1b[2Jb\\u202e'
    """
    if text.isprintable():
        return text

    def escaped(found: re.Match[str]) -> str:
        character = found[0]
        harmless = character in keep or character.isprintable() or unicodedata.category(character) == "Zs"
        return character if harmless else character.encode("unicode_escape").decode()

    return re.sub("[^ -~]", escaped, text)


def escape_surrogates(text: str) -> str:
    r"""Return the text with lone surrogates, as in names of files that are not UTF-8, as escapes such as ``\udcff``."""
    return text.encode("utf-8", "backslashreplace").decode()


def count(n: int, noun: str) -> str:
    """Return a number with its noun: "1 seed", "5 seeds"."""
    return f"{n} {noun}{'' if n == 1 else 's'}"
