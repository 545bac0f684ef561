"""Signal handling: turn SIGTERM and SIGHUP into KeyboardInterrupt, and delay them around critical steps.

Signals that the process ignores from its start, as under nohup, stay ignored.
"""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def delayed_interrupts() -> Iterator[None]:
    """Delay SIGINT, SIGTERM and SIGHUP until the end of the block, then raise ``KeyboardInterrupt``.

    Uses handlers, not masks: another thread would receive a signal that the main thread masks.
    """
    received: list[str] = []
    with _handled(ENDING, lambda number, frame: received.append(signal.Signals(number).name)):
        yield
    if received:
        raise KeyboardInterrupt(received[0])


@contextmanager
def as_interrupts() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise ``KeyboardInterrupt`` in the block; no effect outside the main thread."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    with _handled((signal.SIGTERM, signal.SIGHUP), interrupt):
        yield


@contextmanager
def _handled(numbers: Iterable[int], handler: Callable[[int, object], None]) -> Iterator[None]:
    """Install ``handler`` for the signals that the process does not ignore; restore the handlers afterwards.

    Python allows handlers in the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, old_handler in previous.items():
            signal.signal(number, old_handler)
