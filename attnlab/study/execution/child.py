"""The process that trains one run, and the parent's end of it.

The child is forked from a server that has already imported torch, so that it starts in hundredths of a second and its peak
memory is its own. It sends messages about the run over a pipe; only the parent writes to MLflow. Its output goes to the run's
``log.txt``. If the child ends without a message (a segmentation fault, the kernel's out-of-memory killer), its exit code says
why. If the parent dies, a second pipe, the lifeline, closes and the child ends too.
"""

from __future__ import annotations

import faulthandler
import importlib
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from attnlab._util import machine
from attnlab._util.files import describe_disk_error, file_lock
from attnlab._util.log import log_to
from attnlab._util.process import fork, outlive_servers
from attnlab._util.progress import progress_to
from attnlab._util.raise_site import describe_error
from attnlab._util.redact import redact
from attnlab._util.run_state import Reset, RunState
from attnlab._util.text import count
from attnlab.config.command import CommandConfig
from attnlab.config.run import RunConfig
from attnlab.errors import UserError, one_line
from attnlab.study.execution.command import run_command
from attnlab.study.execution.job import TRAIN, Job, Message, describe_loss
from attnlab.tasks import datasets
from attnlab.tracking.tags import device_name
from attnlab.training.result import Result


def run_job(job: Job, pipe: Connection, lifeline: Connection) -> None:
    """Train the run of a job, and exit.

    Args:
        pipe: carries messages to the parent, and its answers about a trial.
        lifeline: closes when the parent dies.
    """
    os.setpgid(0, 0)  # so that the parent can kill this process together with every process that it starts
    threading.Thread(target=die_with_parent, args=(lifeline,), daemon=True).start()
    os.environ.clear()
    os.environ.update(job.environment)  # the server may have an older environment
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        output_to(job.folder / "log.txt")
        if job.memory_limit is not None:
            machine.limit_memory(job.memory_limit)

        # Another study that contains this run may be training it; its result then serves both. `run.timeout` limits the wait.
        activity, notify = "this configuration is being trained", _notifier(pipe)
        lock = file_lock(job.folder / "lock", activity=activity, timeout=math.inf, on_wait=notify)
        with log_to(notify), lock:
            if job.reset is not Reset.NONE:
                from attnlab.training.weights import reset

                reset(job.folder, job.reset)
            pipe.send(("end", _train(job, pipe)))
    except BrokenPipeError:  # the parent has died
        _exit(1)
    except BaseException as error:
        _send(pipe, _last_message(error, job))
    _exit(0)


def _last_message(error: BaseException, job: Job) -> Message:
    """Return the message about an exception that ended a run."""
    if isinstance(error, UserError):
        return "end", Result(RunState.FAILED, reason=redact(str(error)))
    # A full disk is not this run's fault and would stop the others too, if the file is one of attnlab's own.
    folders = (job.folder.parents[1], datasets.folder(), datasets.prepared_folder())
    disk_error = describe_disk_error(error, within=folders)
    if disk_error is not None:
        return "stop", disk_error
    traceback.print_exception(error)
    trace = redact("".join(traceback.format_exception(error)))
    return "end", Result(RunState.FAILED, reason=redact(one_line(describe_error(error))), traceback=trace)


def _send(pipe: Connection, message: Message) -> None:
    """Send a message, unless the parent has closed its end of the pipe."""
    with suppress(OSError):
        pipe.send(message)


def _notifier(pipe: Connection) -> Callable[[str], None]:
    """Return a function that prints a line, and sends it as a notice about the run."""

    def notify(text: str) -> None:
        print(text)
        if threading.current_thread() is threading.main_thread():  # a pipe is not safe to share between threads
            _send(pipe, ("notice", text))

    return notify


def _exit(code: int) -> None:
    """Exit without the interpreter's shutdown: quick, and no thread of the user's code can block it."""
    with suppress(OSError):  # the disk may be full
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _train(job: Job, pipe: Connection) -> Result:
    def report(step: int, metrics: dict[str, float]) -> bool:
        """Send points of curves; return whether to stop."""
        pipe.send(("metrics", step, {name: float(value) for name, value in metrics.items()}))
        return job.pruning_metric in metrics and pipe.recv()

    if isinstance(job.settings, CommandConfig):
        pipe.send(("started", f"{device_name('cpu')} ({count(job.threads, 'thread')})"))
        options = {"metric": job.metric, "threads": job.threads, "folder": job.folder}
        return run_command(job.settings, **options, report=report, notify=_notifier(pipe))
    pipe.send(("started", _set_up_threads(job.settings, job.threads)))
    with progress_to(lambda *progress: pipe.send(("evaluation", *progress))):
        own = {"figures": job.figures} if job.train == TRAIN else {}
        result = _function(job.train)(job.settings, report=report, folder=job.folder, **own)
    summary = {name: float(value) for name, value in result.summary.items()}
    return Result(RunState(result.state), summary, result.step, result.reason, result.tags)


def _function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _set_up_threads(config: RunConfig, threads: int) -> str:
    """Set the number of threads of this process, ``threads`` unless its run has its own; return a description of its device."""
    import torch

    threads = config.machine.threads or threads
    torch.set_num_threads(threads)
    device = config.machine.device
    return device_name(device) + ("" if device.startswith("cuda") else f" ({count(threads, 'thread')})")


def die_with_parent(lifeline: Connection) -> None:
    """Wait until the parent's end of a pipe is closed, then kill the process group of this process."""
    try:
        lifeline.recv()  # nothing is ever sent: this raises when the parent dies
    except (EOFError, OSError):
        os.killpg(0, signal.SIGKILL)


def output_to(path: Path) -> None:
    """Redirect the output of this process to a file: the terminal belongs to the parent's display."""
    with path.open("ab") as file:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = sys.stderr = os.fdopen(1, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    faulthandler.enable(2)


class Worker:
    """The parent's end of one child.

    Attributes:
        inbox: messages that have been received but not yet handled.
        closed: the child can send no more messages.
        result: that the child has sent.
        peak_memory: of the child in bytes, the largest value so far; 0 outside Linux.
    """

    def __init__(self, job: Job) -> None:
        self._process = outlive_servers(lambda: self._start(job))
        self._started, self._oom_kills = time.monotonic(), machine.oom_kills()
        self.closed = self._broken = False
        self.inbox: deque[Message] = deque()
        self.result: Result | None = None
        self.peak_memory = 0

    def _start(self, job: Job) -> ForkServerProcess:
        """Start the child with new pipes; a child of an earlier attempt loses its lifeline, and ends."""
        context = multiprocessing.get_context("forkserver")
        self.pipe, child_pipe = context.Pipe()
        child_lifeline, self._lifeline = context.Pipe(duplex=False)
        with child_pipe, child_lifeline:
            return fork(run_job, (job, child_pipe, child_lifeline), name="attnlab-run", preload=job.preload)

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
    def seconds(self) -> float:
        """The time since the child was started."""
        return time.monotonic() - self._started

    def reap(self) -> Result:
        """Wait for a child that has closed its pipe, kill what it started, and return its result."""
        self._process.join(timeout=5)
        code = self._process.exitcode
        self.kill()
        oom_kill = machine.oom_kills() > self._oom_kills
        return self.result or describe_loss(code, oom_kill=oom_kill, peak=self.peak_memory)

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
