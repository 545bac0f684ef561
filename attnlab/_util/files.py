"""A disk that takes nothing more, recognised in whatever a library made of it, and told in one line."""

import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path

# What no run is to blame for, and what the next one would meet as well.
_FULL = {errno.ENOSPC: "it is full", errno.EDQUOT: "its quota is used up", errno.EROFS: "it may only be read"}
_WORDS = {  # of libraries that pass on no number: sqlite's, the tokenizers', numpy's
    "database or disk is full": "it is full",
    "No space left on device": "it is full",
    r"^\d+ requested and \d+ written$": "it is full",
    "readonly database": "it may only be read",
    "Read-only file system": "it may only be read",
}


def refused(error: BaseException, *, within: Sequence[Path] = ()) -> str | None:
    """``the disk takes nothing more: it is full (...)``; None where the error is about something else.

    Args:
        within: folders: a file that lies in none of them is something else, too. None given: every file counts.
    """
    for cause in _causes(error):
        if within and _elsewhere(cause, within):
            return None
        why = _FULL.get(cause.errno or 0) if isinstance(cause, OSError) else None
        why = why or next((meaning for words, meaning in _WORDS.items() if re.search(words, str(cause))), None)
        if why is not None:
            return f"the disk takes nothing more: {why} ({told(cause)}); once it does, the same command goes on"
    return None


def told(error: BaseException) -> str:
    """An error of the system's in a few words: what, and of which file."""
    if isinstance(error, OSError) and error.strerror:
        name = error.filename2 or error.filename  # the second is the one that is written
        return f"{error.strerror}: {name}" if name else error.strerror
    return (str(error).splitlines() or [type(error).__name__])[0]


def _elsewhere(error: BaseException, within: Sequence[Path]) -> bool:
    name = (error.filename2 or error.filename) if isinstance(error, OSError) else None
    if not isinstance(name, str | bytes):  # a number where it was opened by one: which file that is nobody says
        return False
    path = Path(os.fsdecode(name)).resolve()
    return not any(path.is_relative_to(folder.resolve()) for folder in within)


def _causes(error: BaseException | None) -> list[BaseException]:
    """The error and what led to it, the first cause first."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.insert(0, error)
        error = error.__cause__ or error.__context__
    return found
