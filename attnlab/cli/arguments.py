"""The parser of the command line: it tells of a mistake in one line, and lists of words end where another argument begins."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from attnlab.errors import UserError


class Parser(argparse.ArgumentParser):
    """Tells of a mistake in one line, as the rest of the program does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lists: dict[str, Callable[[str], bool]] = {}

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")

    def add_list(self, name: str, *, goes_on: Callable[[str], bool], **how: Any) -> None:
        """An option with one value or more, which may be given more than once.

        Args:
            goes_on: whether a word after the first belongs to the list, too, rather than to the verb.
        """
        self.add_argument(name, nargs="+", action="extend", default=[], **how)
        self._lists[name] = goes_on

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse has it, but what a verb does not know is that verb's mistake, with its own help."""
        found, unknown = super().parse_known_args(None if args is None else self._ended(args), namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def _ended(self, words: Sequence[str]) -> list[str]:
        """`--set A=1 B=2 wo.yaml` as `--set=A=1 --set=B=2 wo.yaml`: argparse would take the study for another value."""
        found: list[str] = []
        name = ""  # of the list that the next word may belong to
        for i, word in enumerate(words):
            if word == "--":
                return [*found, *words[i:]]
            if name and not word.startswith("-") and (found[-1] == name or self._lists[name](word)):
                found = found[:-1] if found[-1] == name else found
                found.append(f"{name}={word}")
            else:
                name = word if word in self._lists else ""
                found.append(word)
        return found
