"""Child processes forked from a server that has already imported torch, and the signals that end a process.

``as_interrupts`` turns SIGTERM and SIGHUP into KeyboardInterrupt; signals that the process ignores from its start, as under
nohup, stay ignored.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

from attnlab.errors import UserError

PAUSES = (0.2, 1.0, 3.0)  # seconds before each further attempt to start a process whose server ended
MAX_SOCKET_PATH = 107 if sys.platform == "linux" else 103  # bytes, of the kernel
SOCKET_NAME = 40  # bytes that multiprocessing adds to the folder
_main_lock = threading.Lock()
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def start_fork_server(preload: str) -> None:
    """Start the server that children are forked from, unless it runs; it imports the module ``preload`` in the background.

    Raises:
        UserError: this process may not start processes, because it is daemonic.
    """
    if multiprocessing.current_process().daemon:
        raise UserError("expected a process that may start others, got a daemonic one: create it with daemon=False")
    require_short_temporary_folder()
    forkserver.set_forkserver_preload([preload])
    with _hidden_main(), _safe_path():
        resource_tracker.ensure_running()  # the server would start it, and unblock Ctrl-C for itself in doing so
        with _blocked_interrupts():
            forkserver.ensure_running()


def require_short_temporary_folder() -> None:
    """Raise `UserError` when the path of the folder for temporary files leaves no room for the name of a socket in it."""
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) > MAX_SOCKET_PATH - SOCKET_NAME:
        most = MAX_SOCKET_PATH - SOCKET_NAME
        message = f"expected a folder for temporary files with a path of at most {most} bytes, got {len(os.fsencode(folder))}"
        raise UserError(f"{message} ({folder}): processes talk over sockets there; set TMPDIR=/tmp, for example", "TMPDIR")


def fork(
    target: Callable[..., None], arguments: tuple[Any, ...], *, name: str, preload: str, daemon: bool = False
) -> ForkServerProcess:
    """Start a process that calls ``target(*arguments)``, forked from the server that has imported ``preload``.

    A server that ended before is started again.

    Raises:
        UserError: this process is daemonic.
    """
    start_fork_server(preload)
    process = multiprocessing.get_context("forkserver").Process(target=target, args=arguments, name=name, daemon=daemon)
    with _hidden_main(), _safe_path(), _blocked_interrupts():
        process.start()
    return process


def outlive_servers(start: Callable[[], ForkServerProcess]) -> ForkServerProcess:
    """Return what a function that forks returns, called again after a pause when the server ends meanwhile.

    The server may have forked a process of which this one knows nothing, so that each call has to open pipes of its own.

    Raises:
        UserError: the server ended each time.
    """
    for pause in (*PAUSES, None):
        try:
            return start()
        except (EOFError, ConnectionError) as error:
            if pause is None:
                cause = "another program may kill it, or the machine may have no memory left"
                message = f"cannot start a process: the server that forks it ended {len(PAUSES) + 1} times; {cause}"
                raise UserError(message) from error
            time.sleep(pause)
    raise AssertionError("unreachable")


def fork_with_pipe(
    target: Callable[..., None], *arguments: Any, name: str, preload: str, daemon: bool = True
) -> tuple[ForkServerProcess, Connection]:
    """Start a process that calls ``target(*arguments, pipe)``, and return it with the other end of its pipe.

    Raises:
        UserError: as ``fork``, or the server that forks ended each time.
    """
    pipes: list[Connection] = []

    def start() -> ForkServerProcess:
        pipe, end = multiprocessing.get_context("forkserver").Pipe()
        pipes.append(pipe)
        with end:  # closed here, so that the end of the process is the end of the pipe
            return fork(target, (*arguments, end), name=name, preload=preload, daemon=daemon)

    return outlive_servers(start), pipes[-1]


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
    a second time, and a notebook has nothing to import. Threads do this one after the other, so that each restores the
    true one.
    """
    with _main_lock:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keep the working directory off the import path of the interpreters that multiprocessing starts inside.

    It starts the fork server and the resource tracker with ``python -c``, which would import a ``copy.py`` or ``select.py`` of
    the working directory instead of the standard library's. PYTHONSAFEPATH would do the same, but programs that another thread
    starts meanwhile would inherit it.
    """
    flags = util._args_from_interpreter_flags  # type: ignore[attr-defined]
    util._args_from_interpreter_flags = lambda: [*flags(), "-P"]  # type: ignore[attr-defined]
    try:
        yield
    finally:
        util._args_from_interpreter_flags = flags  # type: ignore[attr-defined]


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
