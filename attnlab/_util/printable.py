"""Escaping of characters that control a terminal or the direction of text, in names and messages of unknown origin."""

import unicodedata
from typing import Any, TextIO


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
