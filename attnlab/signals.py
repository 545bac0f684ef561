"""Being asked to end, politely: SIGTERM and SIGHUP count as Ctrl-C."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Inside, requests to end wait: for the few moments in which half a job would be worse than none.

    By handlers, not by masks: a signal that the main thread masks arrives through any other thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[str] = []
    before = {n: signal.signal(n, lambda number, frame: came.append(signal.Signals(number).name)) for n in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt(came[0])


@contextmanager
def as_interrupts() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise ``KeyboardInterrupt``; outside the main thread Python forbids to say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
