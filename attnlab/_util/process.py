"""Child processes forked from a server that has already imported torch."""

import multiprocessing
import signal
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerProcess
from typing import Any


def start_fork_server(preload: str) -> None:
    """Start the server that children are forked from, unless it runs; it imports the module ``preload`` in the background."""
    resource_tracker.ensure_running()  # the server would start it, and unblock Ctrl-C for itself in doing so
    forkserver.set_forkserver_preload([preload])
    with _hidden_main(), _blocked_interrupts():
        forkserver.ensure_running()


def fork(
    target: Callable[..., None], args: tuple[Any, ...], *, name: str, preload: str, daemon: bool = False
) -> ForkServerProcess:
    """Start a process that calls ``target(*args)``, forked from the server that has imported ``preload``."""
    start_fork_server(preload)
    process = multiprocessing.get_context("forkserver").Process(target=target, args=args, name=name, daemon=daemon)
    with _hidden_main(), _blocked_interrupts():
        process.start()
    return process


def describe_exit_code(code: int) -> str:
    """Describe a process's exit code in words; negative codes are signals."""
    if code >= 0:
        return f"the process ended with exit code {code}"
    hint = " (on Linux often: no memory left on the machine)" if code == -signal.SIGKILL else ""
    return f"the process was ended by {signal.Signals(-code).name}{hint}"


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Hide the caller's ``__main__`` while a process starts.

    multiprocessing would import it again in the child: a script without a main guard would start the study
    a second time, and a notebook has nothing to import.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _blocked_interrupts() -> Iterator[None]:
    """Block SIGINT while a process starts.

    Ctrl-C reaches every process of the terminal; the server and its children inherit the mask and ignore it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
