"""The parent's end of a process that trains one run, or several as one model.

The child (``child.py``) is forked from a server that has already imported torch, so that it starts in hundredths of a second
and its peak memory is its own. It sends messages over a pipe; only the parent writes to MLflow. If the child ends without a
message (a segmentation fault, the kernel's out-of-memory killer), its exit code says why. If the parent dies, a second pipe,
the lifeline, closes and the child ends too.

Runs that share a process have a pipe each. The child closes it after the run's last message, while it trains the others.
"""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Self

from attnlab._util import memory
from attnlab._util.process import fork, fork_server_id
from attnlab.study.execution.child import run_jobs
from attnlab.study.execution.job import Job
from attnlab.study.execution.messages import Message, Outcome


class _Process:
    """A child, and the parent's ends of its pipes: one for each of its runs, and the lifeline."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._ends: list[Connection] = []
        self._child = fork(run_jobs, lambda: (jobs, *self._open_pipes(len(jobs))), name="attnlab-run", preload=jobs[0].preload)
        self._server_id = fork_server_id()
        for end in (*self._child_pipes, self._child_lifeline):
            end.close()

    def _open_pipes(self, runs: int) -> tuple[list[Connection], Connection]:
        """Open new pipes and return the ends of the child. A child of an earlier attempt loses its lifeline and ends."""
        for end in self._ends:
            end.close()
        context = multiprocessing.get_context("forkserver")
        pairs = [context.Pipe() for _ in range(runs)]
        self.pipes, self._child_pipes = [ours for ours, _ in pairs], [theirs for _, theirs in pairs]
        self._child_lifeline, self.lifeline = context.Pipe(duplex=False)
        self._ends = [*self.pipes, *self._child_pipes, self.lifeline, self._child_lifeline]
        return self._child_pipes, self._child_lifeline

    @property
    def pid(self) -> int:
        """The id of the process, which leads a process group of its own."""
        return self._child.pid or 0

    @property
    def sentinel(self) -> int:
        """Ready when the process has ended."""
        return self._child.sentinel

    @property
    def is_alive(self) -> bool:
        return self._child.is_alive()

    @property
    def lost_server(self) -> bool:
        return self._server_id is None or self._server_id != fork_server_id()

    @property
    def is_shared(self) -> bool:
        """True while the process trains several runs."""
        return sum(not pipe.closed for pipe in self.pipes) > 1

    def wait(self) -> int | None:
        """Wait a few seconds for the end of the process; return its exit code (None: still alive)."""
        self._child.join(timeout=5)
        return self._child.exitcode

    def kill(self) -> None:
        """Kill the process and every process that it started."""
        for send, target in ((os.killpg, self.pid), (os.kill, self.pid)):
            try:
                send(target, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):  # ended, or not yet leader of its own group
                continue
        self._child.join(timeout=5)
        self.lifeline.close()


class Worker:
    """The parent's end of one run.

    Attributes:
        inbox: messages that have been received but not yet handled.
        closed: the child can send no more messages about the run.
    """

    def __init__(self, process: _Process, pipe: Connection) -> None:
        self._process, self.pipe = process, pipe
        self.closed = self._broken = self._has_outcome = False
        self.inbox: deque[Message] = deque()

    @classmethod
    def start(cls, jobs: Sequence[Job]) -> list[Self]:
        """Start a process for one run, or for several that are trained as one model; return a worker for each of them."""
        process = _Process(jobs)
        return [cls(process, pipe) for pipe in process.pipes]

    @property
    def pid(self) -> int:
        """The id of the process, which leads a process group of its own."""
        return self._process.pid

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
        ended = not self._process.is_alive  # before the pipe is read: messages sent before the end are read below
        self.receive()
        while self.inbox:
            message = self.inbox.popleft()
            self._has_outcome |= isinstance(message, Outcome)
            yield message
        self.closed = self.closed or ended or self._broken

    @property
    def peak_memory(self) -> int:
        """The peak resident size of the child in bytes; 0 if it has ended, or outside Linux."""
        return memory.peak_memory_of(self.pid)

    @property
    def lost_server(self) -> bool:
        """True if the server that forked the child has ended: the child then looks as if it had ended, too."""
        return self._process.lost_server

    def reap(self) -> int | None:
        """Wait for a child that has closed its pipe, kill what it started, and return its exit code (None: still alive).

        A child that has sent the outcome of this run and trains others is left alone.
        """
        if self._has_outcome and self._process.is_shared:
            self._close()
            return None
        code = self._process.wait()
        self.kill()
        return code

    def stop(self) -> None:
        """End the run: kill its process, unless that trains other runs, which then leaves this one out."""
        if self._process.is_shared:
            self._close()
        else:
            self.kill()

    def kill(self) -> None:
        """Kill the child and every process that it started. Safe at any time: checkpoints are written atomically."""
        self._process.kill()
        self._close()

    def answer(self, *, stop: bool) -> None:
        """Tell a trial that waits for an answer whether to stop."""
        with suppress(OSError):  # it has ended, as reading its messages will show
            self.pipe.send(stop)

    def _close(self) -> None:
        self.closed = True
        self.pipe.close()
