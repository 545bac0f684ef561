"""The form of a text: its line ends, its encoding, and whether it has capital letters.

Texts in different forms are compared as they are, byte by byte: a model that was trained on one finds the other improbable, and
passages that both contain are not found. Such a difference between the files of two splits is a note in the plan.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

HEAD = 1 << 20  # bytes of a file that are read
CASED = 500  # letters with two cases, from which on their case is described
CAPITALS = 0.005  # share of them, at least, in a text with capital letters
MARKS = {codecs.BOM_UTF8: "a byte order mark", codecs.BOM_UTF16_LE: "text in UTF-16", codecs.BOM_UTF16_BE: "text in UTF-16"}
PROPERTIES = ("line ends", "mark", "encoding", "case")


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
