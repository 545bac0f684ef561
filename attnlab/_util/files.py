"""Files: atomic writes, digests, locks that name their owner, and errors of a full or read-only disk.

The kernel releases a lock when its owner dies.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attnlab.errors import UserError

HALF = ".half"  # suffix of a file that is still being written

# Errors that no run causes and that every other run would hit too.
_DISK_ERRORS = {errno.ENOSPC: "full", errno.EDQUOT: "over its quota", errno.EROFS: "read-only"}
_DISK_MESSAGES = {  # of libraries that raise no errno: sqlite, tokenizers, numpy
    "database or disk is full": "full",
    "No space left on device": "full",
    r"^\d+ requested and \d+ written$": "full",
    "disk I/O error": "failing",
    "readonly database": "read-only",
    "Read-only file system": "read-only",
}
NOTICE_AFTER = 1.0  # seconds; an owner that has just been killed is gone by then


def real_path(path: str | Path) -> Path:
    """Return an absolute path without links. `Path.resolve` raises for a link that leads to itself; reading it says why."""
    return Path(os.path.realpath(path))


def why_no_file(path: Path) -> str:
    """Return why `path` is not a regular file, in words for a message."""
    if not path.exists():
        return "it does not exist"
    kinds = {"a folder": path.is_dir, "a named pipe (FIFO)": path.is_fifo, "a socket": path.is_socket}
    return f"it is {next((kind for kind, found in kinds.items() if found()), 'a device')}"


def sha256(path: Path) -> str:
    """Return the SHA-256 digest of a file's contents, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file or a folder to the disk (``fsync``)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write a file atomically: yield a temporary path next to ``path``, and rename it to ``path`` if the block succeeds.

    A reader of ``path`` sees the old file or the new one, each complete, even if this process is killed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}{HALF}")
    temporary.touch(exist_ok=False)  # with the permissions that the umask allows
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def read_end(path: Path, limit: int) -> str:
    """Return the last ``limit`` bytes of a text file, from the start of a line, with a note if the beginning is left out."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - limit))
        end = file.read()
    if len(end) < size:
        end = end.partition(b"\n")[2] or end
        end = f"[the first {size - len(end):,} bytes are omitted]\n".encode() + end
    return end.decode(errors="replace")


def describe_disk_error(error: BaseException, *, within: Sequence[Path] = ()) -> str | None:
    """Return one line for an error of a full or read-only disk, or None when the error has another cause.

    Args:
        error: the exception; its causes count too.
        within: folders. An error about a file outside all of them returns None; without folders, every file counts.
    """
    for cause in causes(error):
        if within and _is_outside(cause, within):
            return None
        problem = _DISK_ERRORS.get(cause.errno or 0) if isinstance(cause, OSError) else None
        problem = problem or next((meaning for words, meaning in _DISK_MESSAGES.items() if re.search(words, str(cause))), None)
        if problem is not None:
            return f"the disk is {problem} ({describe_error(cause)}); rerun the same command to resume once it is writable"
    return None


def describe_error(error: BaseException) -> str:
    """Describe an error in a few words: for an error of the operating system, its text and its file."""
    if isinstance(error, OSError) and error.strerror:
        name = error.filename2 or error.filename  # of a rename: the second is the one that is written
        return f"{error.strerror}: {name}" if name else error.strerror
    return (str(error).splitlines() or [type(error).__name__])[0]


def _is_outside(error: BaseException, folders: Sequence[Path]) -> bool:
    name = (error.filename2 or error.filename) if isinstance(error, OSError) else None
    if not isinstance(name, str | bytes):  # no name, or a file descriptor: the file is unknown
        return False
    path = real_path(os.fsdecode(name))
    return not any(path.is_relative_to(real_path(folder)) for folder in folders)


def causes(error: BaseException | None) -> list[BaseException]:
    """Return the error and the errors that led to it, the first cause first."""
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.insert(0, error)
        error = error.__cause__ or error.__context__
    return causes


@contextmanager
def file_lock(
    path: Path, *, activity: str, timeout: float = 0.0, on_wait: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Hold an exclusive lock on ``path`` while the block runs.

    The lock is ``flock``, not ``lockf``, so a second call in the same process (from another thread, say) is refused
    too. The file keeps the owner's name, which is why it is not truncated on opening.

    Args:
        path: the lock file, created if missing and never removed.
        activity: what the owner does, for the message: ``"the study 'wo' is being run"``.
        timeout: seconds to wait for the present owner; ``math.inf`` waits forever.
        on_wait: called once with a line that names the owner, if the wait exceeds ``NOTICE_AFTER`` seconds.

    Raises:
        UserError: another owner still holds the lock after ``timeout`` seconds; the message names its process and host.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8", errors="replace") as file:  # close-on-exec: no child keeps the lock by accident
        start = time.monotonic()
        while not _acquire(file.fileno()):
            waited = time.monotonic() - start
            file.seek(0)
            owner = file.read().strip() or "another process"
            if waited >= timeout:
                raise UserError(f"{activity} by {owner}")
            if on_wait is not None and waited >= NOTICE_AFTER:
                on_wait(f"waiting: {activity} by {owner}")
                on_wait = None
            time.sleep(0.05)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _acquire(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
