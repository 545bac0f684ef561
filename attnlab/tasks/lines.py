"""The rule by which every task cuts a text into lines, and the form of texts that are compared.

A line ends with ``\\n`` or ``\\r\\n``, and with nothing else. ``str.splitlines`` and files in text mode also cut at a lone
carriage return, and the former at form feeds, U+0085, U+2028 and others: if two sides of a comparison are read by two rules,
all lines after such a character are paired with wrong ones.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from attnlab.errors import UserError

OTHER_BREAKS = re.compile("[\r\x0b\x0c\x1c-\x1f\x85\u2028\u2029]")  # line ends of other programs, which end no line here
SHOWN = 60  # characters of a line in a message


@dataclass(frozen=True)
class Found:
    """The lines with some property: their number, and the first one, counted from 1; 0 when there is none."""

    count: int = 0
    first: int = 0


def split_lines(text: str) -> list[str]:
    """Return the lines of a text without their ends, ``\\n`` or ``\\r\\n``; the last one may have no end.

    Examples:
        >>> split_lines("a\\r\\nb\\rc\\u2028d\\n")
        ['a', 'b\\rc\\u2028d']
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def require_line_ends(text: str, *, place: str) -> None:
    """Raise ``UserError`` when the only line ends of a text are carriage returns, as old Macintosh programs write them.

    Args:
        place: names the file in messages.
    """
    breaks = text.rstrip("\r\n").count("\r")
    if breaks and "\n" not in text:
        raise UserError(f"{place}: expected lines that end with \\n or \\r\\n, got {breaks + 1:,} that end with \\r alone")


def find(lines: Iterable[str], has_property: Callable[[str], object]) -> Found:
    """Return the number of the lines with a property, and the first of them."""
    numbers = [number for number, line in enumerate(lines, start=1) if has_property(line)]
    return Found(len(numbers), numbers[0]) if numbers else Found()


def is_not_nfc(line: str) -> bool:
    """Return True when a line is not in Unicode's normal form C, in which equal texts are equal strings."""
    return not unicodedata.is_normalized("NFC", line)


def quoted(line: str) -> str:
    """Return a line in quotes for a message, shortened; what cannot be seen is escaped."""
    return ascii(line[:SHOWN]) if OTHER_BREAKS.search(line) or is_not_nfc(line) else repr(line[:SHOWN])
