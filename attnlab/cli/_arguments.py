"""The argument parser of the command line and the argument types that several verbs share."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from attnlab.errors import UserError, nearest


class Parser(argparse.ArgumentParser):
    """An argument parser that reports a mistake as a `UserError` that points to the help of its verb."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._repeatable: list[str] = []

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise argparse's error for a value that is not among the choices of an argument, with the nearest of them."""
        if action.choices is not None and value not in action.choices:
            known = list(map(str, action.choices))
            raise argparse.ArgumentError(
                action, f"unknown {value!r}{nearest(value, known)}: expected one of {', '.join(known)}"
            )

    def add_repeatable(self, flag: str, **kwargs: Any) -> None:
        """Add an option that takes one value each time and can be repeated; the parsed argument is a list."""
        self._repeatable.append(flag)
        self.add_argument(flag, action="append", default=[], **kwargs)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as argparse does, but reject unknown arguments here: argparse would return them to the parent parser."""
        words = sys.argv[1:] if args is None else list(args)
        arguments, unknown = super().parse_known_args(words, namespace)
        if unknown:
            hints = [
                nearest(word.partition("=")[0], self._option_string_actions) for word in unknown[:1] if word.startswith("--")
            ]
            hints += [f"; {flag} takes one value: repeat {flag} for another" for flag in self._repeatable if flag in words]
            self.error(f"unrecognized arguments: {' '.join(unknown)}{''.join(hints)}")
        return arguments, unknown


def add_imports(parser: Parser) -> None:
    """Add `--imports` for the code of trained models."""
    parser.add_repeatable("--imports", metavar="FILE", help="Python file with classes of the model (repeatable)")


def positive_int(text: str) -> int:
    """Return the integer of an argument that must be at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, got {text!r}")
    return int(text)


def workers(text: str) -> int | str:
    """Return the number of an argument that must be at least 1, or "auto"."""
    return text if text == "auto" else positive_int(text)


def comma_separated(text: str) -> list[str]:
    """Return the words between the commas."""
    return text.split(",")


def number(text: str) -> float:
    """Return the number, or NaN, which is in no range, if the text is not a number."""
    try:
        return float(text)
    except ValueError:
        return float("nan")
