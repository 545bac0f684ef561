"""The rule by which every task cuts a text into lines, and the form of texts that are compared.

A line ends with ``\\n`` or ``\\r\\n``, and with nothing else. ``str.splitlines`` and files in text mode also cut at a lone
carriage return, and the former at form feeds, U+0085, U+2028 and others: if two sides of a comparison are read by two rules,
all lines after such a character are paired with wrong ones.

The form of a text is its line ends, its encoding, and whether it has capital letters. Texts in different forms are compared as
they are, byte by byte: a model that was trained on one finds the other improbable, and passages that both contain are not
found. Such a difference between the files of two splits is a note in the plan.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from attnlab.errors import UserError

OTHER_BREAKS = re.compile("[\r\x0b\x0c\x1c-\x1f\x85\u2028\u2029]")  # line ends of other programs, which end no line here
SHOWN = 60  # characters of a line in a message
HEAD = 1 << 20  # bytes of a file that are read
CASED = 500  # letters with two cases, from which on their case is described
CAPITALS = 0.005  # share of them, at least, in a text with capital letters
MARKS = {codecs.BOM_UTF8: "a byte order mark", codecs.BOM_UTF16_LE: "text in UTF-16", codecs.BOM_UTF16_BE: "text in UTF-16"}
PROPERTIES = ("line ends", "mark", "encoding", "case")


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


def form_notes(files: Mapping[str, Path], *, of: Collection[str] = PROPERTIES) -> Iterator[str]:
    """Yield a note on each property in which the file of a split differs from the file of ``train``.

    Args:
        files: of each split, ``train`` first.
        of: the properties that are compared.
    """
    (_, train), *others = files.items()
    expected = describe(_head(train))
    for split, path in others:
        form = describe(_head(path)) if path != train else expected
        for name in of:
            if form[name] and expected[name] and form[name] != expected[name]:
                yield f"{split} ({path.name}) has {form[name]}, but train ({train.name}) has {expected[name]}"


def describe(text: bytes) -> dict[str, str]:
    """Return the ``PROPERTIES`` of a text; "" for what it does not show."""
    mark = next((name for mark, name in MARKS.items() if text.startswith(mark)), "no byte order mark")
    values = _line_ends(text), mark, _encoding(text), _case(text.decode("utf-8", errors="replace"))
    return dict(zip(PROPERTIES, values, strict=True))


def _encoding(text: bytes) -> str:
    if text.isascii():
        return ""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(text) - 3:  # else the last character is cut
            return "bytes that are not UTF-8"
    return "text in UTF-8"


def _line_ends(text: bytes) -> str:
    feeds, pairs = text.count(b"\n"), text.count(b"\r\n")
    if feeds:
        return "line ends \\r\\n" if 2 * pairs > feeds else "line ends \\n"
    return "line ends \\r" if b"\r" in text else ""


def _case(text: str) -> str:
    upper, lower = (sum(map(test, text[: CASED * 100])) for test in (str.isupper, str.islower))
    if upper + lower < CASED:
        return ""
    return "capital letters" if upper >= CAPITALS * (upper + lower) else "no capital letters" if not upper else ""


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)
