"""Text for people: tables, also as HTML for notebooks, numbers with their nouns, and names and messages of unknown origin."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from html import escape
from itertools import zip_longest
from typing import Any, TextIO

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
    """Return a table as text, with numbers aligned right; words and what may be broken between them, left.

    Args:
        width: of the terminal, in characters. A wider table is split into blocks of columns that all begin with the first
            column, so that no cell is truncated; rows with nothing in a further block are left out there. None: one block.
        wrap: headings of the columns that may be broken between words.
        second_block: heading of the first column of the second block, if the table is split.
        styles: heading -> first word of a cell -> code of the ANSI style (SGR) of cells that begin with it, such as "31".
    """
    columns = list(zip(headings, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [_is_numeric(column[1:]) and heading not in wrap for heading, column in zip(headings, columns, strict=True)]
    start = headings.index(second_block) if second_block in headings else None
    words = [max((len(word) for cell in column for word in cell.split()), default=0) for column in columns]
    least, whole = (
        [
            min(n, max(MIN_WRAPPED, longest)) if h in wrap else n
            for h, n, longest in zip(headings, widths, longest_words, strict=True)
        ]
        for longest_words in ([0] * len(words), words)
    )
    if len(_blocks(whole, width, start=start)) == len(_blocks(least, width, start=start)):
        least = whole  # a further block would be worse than a word that is broken
    styled = {headings.index(heading): of_word for heading, of_word in (styles or {}).items() if heading in headings}
    lines: list[str] = []
    for block in _blocks(least, width, start=start):
        fitted = _fit({i: widths[i] for i in block}, least, width)
        rule = ["-" * fitted.get(i, 0) for i in range(len(headings))]
        filled = [row for row in rows if not lines or any(row[i] for i in block[1:])]
        lines += [""] if lines else []
        for row in (headings, rule, *filled):
            lines += _format_row({i: row[i] for i in block}, fitted, right, styled)
    return "\n".join(lines)


def _format_row(
    cells: dict[int, str], widths: dict[int, int], right: Sequence[bool], styled: Mapping[int, Mapping[str, str]]
) -> list[str]:
    """Return the lines of a row, several if a cell is wider than its column."""
    wrapped = [
        [cell] if len(cell) <= widths[i] else textwrap.wrap(cell, widths[i], break_on_hyphens=False)
        for i, cell in cells.items()
    ]
    codes = {i: styled.get(i, {}).get(re.split(r"\W", cell, maxsplit=1)[0], "") for i, cell in cells.items()}
    return [
        GAP.join(
            _paint(text.rjust(widths[i]) if right[i] else text.ljust(widths[i]), codes[i])
            for i, text in zip(cells, parts, strict=True)
        ).rstrip()
        for parts in zip_longest(*wrapped, fillvalue="")
    ]


def _paint(text: str, code: str) -> str:
    """Return a padded text with a style, but its padding without."""
    word = text.strip()
    return text.replace(word, f"\x1b[{code}m{word}\x1b[0m", 1) if code and word else text


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
    return "".join(c if c in keep or _is_harmless(c) else c.encode("unicode_escape").decode() for c in text)


def _is_harmless(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def escape_surrogates(text: str) -> str:
    r"""Return the text with lone surrogates, as in names of files that are not UTF-8, as escapes such as ``\udcff``."""
    return text.encode("utf-8", "backslashreplace").decode()


class EscapingStream:
    """A text stream that escapes control characters, except for line breaks and tabs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(escape_controls(text, keep="\n\t"))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def count(n: int, noun: str) -> str:
    """Return a number with its noun: "1 seed", "5 seeds"."""
    return f"{n} {noun}{'' if n == 1 else 's'}"
