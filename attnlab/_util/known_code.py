"""Digests of the users' code that this user has run, so that code that somebody else names is not run by accident.

The file lies in the user's state folder (``ATTNLAB_STATE`` names another), never in a folder of runs.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

FILE = "code-digests.txt"


def remember(digests: Iterable[str]) -> None:
    """Add digests of code that the user runs. If the folder cannot be written, models of that code require ``--trust``."""
    new = sorted(set(digests) - _known())
    if new:
        with suppress(OSError):
            _file().parent.mkdir(parents=True, exist_ok=True)
            with _file().open("a", encoding="utf-8") as file:
                file.write("".join(f"{digest}\n" for digest in new))


def is_known(digest: str) -> bool:
    """Return whether the user has run code with this digest."""
    return digest in _known()


def _known() -> set[str]:
    try:
        return set(_file().read_text(encoding="utf-8").split())
    except (OSError, ValueError):
        return set()


def _file() -> Path:
    from platformdirs import user_state_path

    folder = os.environ.get("ATTNLAB_STATE")
    return (Path(folder) if folder else user_state_path("attnlab", appauthor=False)) / FILE
