"""Errors in the user's input, reported in one line."""

from collections.abc import Iterable
from difflib import get_close_matches

from attnlab._util.text import escape_controls
from attnlab.field_names import find_ours, stated_as, with_options
from attnlab.removed import REMOVED

LONGEST = 4_000  # characters of a line
SIMILARITY = 0.65  # smallest difflib ratio of a suggested name; unrelated names reach 0.5 ("einsum" for "nosuch")


class UserError(Exception):
    """An error in the input, as one line: where, what was expected, and what was given.

    Args:
        message: what was expected and what was given.
        where: the place, as ``file.yaml:12:5`` or the assignment on the command line.
    """

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where

    def __str__(self) -> str:
        return one_line(f"{self.where}: {self.message}" if self.where else self.message)

    def __reduce__(self) -> tuple[type["UserError"], tuple[str, str]]:
        return type(self), (self.message, self.where)  # keeps the place when the error crosses a process boundary


def one_line(text: str) -> str:
    """Return `text` as one line that is safe to print, since it may quote the content of a file.

    Control characters are escaped, and the middle of a text longer than `LONGEST` is left out.
    """
    text = text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    return escape_controls(text)


def nearest(name: str, names: Iterable[str], *, anywhere: bool = False) -> str:
    """Return ``" (did you mean 'x'?)"`` with the one of `names` that was probably meant, or ``""`` if none is similar enough.

    A name that an earlier version had is answered with what replaced it. Otherwise it is the same name in another case,
    attnlab's name for a name of the field (``rotary`` for ``RoPE``), or the most similar.

    Args:
        anywhere: a name of the field that has its place elsewhere in a study is answered with that place, as in
            ``position: rotary``.
    """
    name, names = str(name), list(names)
    if name in REMOVED:
        return f" (removed in 0.9: {REMOVED[name]})"
    ours = find_ours(name, names)
    meant = with_options(name, ours) if ours else stated_as(name) if anywhere else None
    if meant is None:
        spellings = {known.casefold(): known for known in reversed(names)}
        close = get_close_matches(name.casefold(), [*spellings], n=1, cutoff=SIMILARITY)
        meant = spellings[close[0]] if close else None
    return f" (did you mean {meant!r}?)" if meant else ""
