"""Child processes forked from a server that has imported torch."""

import multiprocessing
import signal
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any


def warm_up(preload: str) -> None:
    """Start the server that children are forked from, where it does not run: it imports torch while the caller goes on."""
    resource_tracker.ensure_running()  # the server would start it, and let Ctrl-C through to itself in doing so
    forkserver.set_forkserver_preload([preload])
    with _no_main(), _no_interrupts():
        forkserver.ensure_running()


def fork(
    target: Callable[..., None], args: tuple[Any, ...], *, name: str, preload: str, daemon: bool = False
) -> ForkServerProcess:
    """A process of the server's, which has imported torch already, that calls ``target``."""
    warm_up(preload)
    process = multiprocessing.get_context("forkserver").Process(target=target, args=args, name=name, daemon=daemon)
    with _no_main(), _no_interrupts():
        process.start()
    return process


def how_it_ended(code: int) -> str:
    """A process's exit code in words."""
    if code >= 0:
        return f"the process ended with exit code {code}"
    hint = " (on Linux often: no memory left on the machine)" if code == -signal.SIGKILL else ""
    return f"the process was ended by {signal.Signals(-code).name}{hint}"


@contextmanager
def _no_main() -> Iterator[None]:
    """Hide the caller's ``__main__`` while a process starts.

    multiprocessing would import it again in the child: a script without a main guard would start the study
    anew, and a notebook has nothing to import.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Ctrl-C goes to every process on the terminal; the server, started here, and its children ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def raised_at() -> str:
    """`` (file.py:12)`` of the exception being handled."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
