"""A file lock that says who holds it and that the kernel gives back when its holder dies, however it dies."""

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attnlab.errors import UserError

SHORT = 1.0  # seconds in which an owner that was just killed is gone


@contextmanager
def hold(path: Path, *, what: str, wait: float = 0.0, say: Callable[[str], None] | None = None) -> Iterator[None]:
    """Own ``path`` while the block runs.

    ``flock`` rather than ``lockf``: a second call in the same process (another thread, say) is refused too.

    Args:
        what: what is owned, for the message: ``"the study 'wo'"``.
        wait: seconds to wait for the present owner, which may be on its way out.
        say: told once who that is, when the wait is not over in ``SHORT`` seconds.

    Raises:
        UserError: someone else has it; the line names their process and host.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:  # opened close-on-exec: no helper process can keep the lock by accident
        began = time.monotonic()
        while not _taken(file.fileno()):
            waited = time.monotonic() - began
            file.seek(0)
            owned = f"{what} is being run by {file.read().strip() or 'another process'}"
            if waited >= wait:
                raise UserError(owned)
            if say is not None and waited >= SHORT:
                say(f"waiting: {owned}")
                say = None
            time.sleep(0.05)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
