"""What goes wrong through no fault of the program, told to the person in one line."""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 4_000  # characters of a line
ALIKE = 0.65  # difflib's ratio: what is less like a name was not meant by it (einsum by nosuch: 0.5)


class UserError(Exception):
    """Bad input: one line that says what was expected, what came and where.

    Args:
        message: what was expected and what came.
        where: the place, as ``file.yaml:12:5`` or the assignment on the command line.
    """

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where

    def __str__(self) -> str:
        return one_line(f"{self.where}: {self.message}" if self.where else self.message)

    def __reduce__(self) -> tuple[type["UserError"], tuple[str, str]]:
        return type(self), (self.message, self.where)  # crosses a process boundary with its place


def one_line(text: str) -> str:
    """The text on one line that a terminal prints as it stands: what a file holds may be quoted in it.

    Control characters become their escapes; of a text without end the middle is left out.
    """
    text = text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def nearest(name: str, names: Iterable[str]) -> str:
    """``" (did you mean 'x'?)"`` for the known name nearest to ``name``, or ``""`` when none is near."""
    close = get_close_matches(str(name), list(names), n=1, cutoff=ALIKE)
    return f" (did you mean {close[0]!r}?)" if close else ""
