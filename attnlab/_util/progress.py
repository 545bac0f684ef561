"""Progress of long computations.

A library function calls a ``Progress`` that it receives, and the command line shows it. A run calls ``show_progress``; the
process that trains the run passes the calls to its parent with ``progress_to``.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Progress = Callable[[str, int, int], None]  # label, completed number, total
T = TypeVar("T")


def no_progress(label: str, done: int, total: int) -> None:
    """Show nothing."""


_shown = ContextVar[Progress]("progress", default=no_progress)


@contextmanager
def progress_to(progress: Progress) -> Iterator[None]:
    """Pass the calls of ``show_progress`` in this thread to ``progress`` while the block runs."""
    token = _shown.set(progress)
    try:
        yield
    finally:
        _shown.reset(token)


def show_progress(label: str, done: int, total: int) -> None:
    """Call the ``Progress`` of the innermost ``progress_to``, if any."""
    _shown.get()(label, done, total)


def track(items: Sequence[T], label: str, progress: Progress) -> Iterator[T]:
    """Yield the items, and report how many of them are completed."""
    for done, item in enumerate(items):
        progress(label, done, len(items))
        yield item
    progress(label, len(items), len(items))
