"""Progress of long computations: a library function calls a ``Progress``, the command line shows it."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Progress = Callable[[str, int, int], None]  # label, completed number, total
T = TypeVar("T")


def no_progress(label: str, done: int, total: int) -> None:
    """Show nothing."""


def track(items: Sequence[T], label: str, progress: Progress) -> Iterator[T]:
    """Yield the items, and report how many of them are completed."""
    for done, item in enumerate(items):
        progress(label, done, len(items))
        yield item
    progress(label, len(items), len(items))
