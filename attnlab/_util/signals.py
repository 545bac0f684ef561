"""Being asked to end, politely: SIGTERM and SIGHUP count as Ctrl-C. What nohup said to ignore is ignored."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Inside, requests to end wait: for the few moments in which half a job would be worse than none.

    By handlers, not by masks: a signal that the main thread masks arrives through any other thread.
    """
    came: list[str] = []
    with _handled(ENDING, lambda number, frame: came.append(signal.Signals(number).name)):
        yield
    if came:
        raise KeyboardInterrupt(came[0])


@contextmanager
def as_interrupts() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise ``KeyboardInterrupt``; outside the main thread Python forbids to say so."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    with _handled((signal.SIGTERM, signal.SIGHUP), interrupt):
        yield


@contextmanager
def _handled(numbers: Iterable[int], handler: Callable[[int, object], None]) -> Iterator[None]:
    """Inside, these signals go to ``handler``, unless this process was started to ignore them (nohup does so)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
