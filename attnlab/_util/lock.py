"""A file lock that names its owner. The kernel releases it when the owner dies."""

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attnlab._util.files import require_no_pipe
from attnlab.errors import UserError

NOTICE_AFTER = 1.0  # seconds; an owner that has just been killed is gone by then


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
    require_no_pipe(path)
    with path.open(
        "a+", encoding="utf-8", errors="replace"
    ) as file:  # close-on-exec: no child process keeps the lock by accident
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
