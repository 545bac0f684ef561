"""The parent's end of a process that trains one run.

The child (``child.py``) is forked from a server that has already imported torch, so that it starts in hundredths of a second
and its peak memory is its own. It sends messages over a pipe; only the parent writes to MLflow. If the child ends without a
message (a segmentation fault, the kernel's out-of-memory killer), its exit code says why. If the parent dies, a second pipe,
the lifeline, closes and the child ends too.
"""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from attnlab._util import machine
from attnlab._util.process import fork, fork_server_id
from attnlab.study.execution.child import run_job
from attnlab.study.execution.job import Job, Message


class Worker:
    """The parent's end of one child.

    Attributes:
        inbox: messages that have been received but not yet handled.
        closed: the child can send no more messages.
    """

    def __init__(self, job: Job) -> None:
        self._ends: list[Connection] = []
        self._process = fork(run_job, lambda: (job, *self._open_pipes()), name="attnlab-run", preload=job.preload)
        self._server_id = fork_server_id()
        for end in self._ends[:2]:
            end.close()
        self.closed = self._broken = False
        self.inbox: deque[Message] = deque()

    def _open_pipes(self) -> tuple[Connection, Connection]:
        """Open new pipes and return the ends of the child. A child of an earlier attempt loses its lifeline and ends."""
        for end in self._ends:
            end.close()
        context = multiprocessing.get_context("forkserver")
        self.pipe, child_pipe = context.Pipe()
        child_lifeline, self._lifeline = context.Pipe(duplex=False)
        self._ends = [child_pipe, child_lifeline, self.pipe, self._lifeline]
        return child_pipe, child_lifeline

    @property
    def pid(self) -> int:
        """The id of the process, which leads a separate process group."""
        return self._process.pid or 0

    @property
    def waitables(self) -> list[Any]:
        """Objects for ``multiprocessing.connection.wait``: one becomes ready when the child has sent a message or ended."""
        return [self.pipe, self._process.sentinel]

    def receive(self) -> None:
        """Move all messages from the pipe to ``inbox``, so that the child does not block on a full pipe."""
        try:
            while not self.closed and self.pipe.poll():
                self.inbox.append(self.pipe.recv())
        except (EOFError, OSError):  # the child ended, perhaps in the middle of a message
            self._broken = True

    def messages(self) -> Iterator[Message]:
        """Yield the messages received so far; update ``closed`` afterwards."""
        ended = not self._process.is_alive()  # before the pipe is read: messages sent before the end are read below
        self.receive()
        while self.inbox:
            yield self.inbox.popleft()
        self.closed = self.closed or ended or self._broken

    @property
    def peak_memory(self) -> int:
        """The peak resident size of the child in bytes; 0 when it has ended, or outside Linux."""
        return machine.peak_memory_of(self.pid)

    @property
    def lost_server(self) -> bool:
        """True when the server that forked the child has ended: the child then looks as if it had ended, too."""
        return self._server_id is None or self._server_id != fork_server_id()

    def reap(self) -> int | None:
        """Wait for a child that has closed its pipe, kill what it started, and return its exit code (None: still alive)."""
        self._process.join(timeout=5)
        code = self._process.exitcode
        self.kill()
        return code

    def kill(self) -> None:
        """Kill the child and every process that it started. Safe at any time: checkpoints are written atomically."""
        for send, target in ((os.killpg, self.pid), (os.kill, self.pid)):
            try:
                send(target, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):  # ended, or not yet leader of its own group
                continue
        self._process.join(timeout=5)
        self.closed = True
        self.pipe.close()
        self._lifeline.close()

    def answer(self, *, stop: bool) -> None:
        """Tell a trial that waits for an answer whether to stop."""
        with suppress(OSError):  # it has ended, as reading its messages will show
            self.pipe.send(stop)
