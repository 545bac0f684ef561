"""One run in a process of its own: both ends of it.

The child is forked from a server that has imported torch already, so that it starts in hundredths of a second
and its peak memory is its own. It trains and reports over a pipe; the parent does all the logging. Whatever
happens to the child (an exception, a segmentation fault, the kernel's out-of-memory killer) is a reason that
the parent can read; and when the parent dies, a second pipe, the lifeline, closes and the child ends too.
"""

import faulthandler
import importlib
import io
import logging
import math
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from attnlab._util import memory
from attnlab._util.files import describe_disk_error
from attnlab._util.lock import file_lock
from attnlab._util.log import log_to
from attnlab._util.process import describe_exit_code, describe_raise_site, fork
from attnlab._util.redact import redact
from attnlab.config.run import RunConfig
from attnlab.errors import UserError, one_line
from attnlab.registry import load_sources
from attnlab.tasks import datasets
from attnlab.tracking.tags import device_name

TRAIN = "attnlab.training.train:train"
PRELOAD = "attnlab.training.preload"
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a child needs to know.

    Args:
        folder: for checkpoints and the child's own output (``log.txt``).
        share: of how many workers this is one; they divide the processor's threads where the configuration
            leaves the number open.
        anew: a result of an earlier attempt that lies in the folder is forgotten first.
        train: ``"module:function"`` called as ``function(config, report=..., folder=...)``.
    """

    config: RunConfig
    folder: Path
    share: int = 1
    train: str = TRAIN
    asks: str | None = None
    memory_limit: int | None = None
    anew: bool = False
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))


class Worker:
    """The parent's end of one child."""

    def __init__(self, job: Job) -> None:
        context = multiprocessing.get_context("forkserver")
        self.pipe, theirs = context.Pipe()
        lifeline, self._lifeline = context.Pipe(duplex=False)
        self._process = fork(_child, (job, theirs, lifeline), name="attnlab-run", preload=PRELOAD)
        theirs.close()
        lifeline.close()
        self.closed = self._broken = False
        self.inbox: deque[tuple[Any, ...]] = deque()

    @property
    def pid(self) -> int:
        """Of the process, which leads a process group of its own."""
        return self._process.pid or 0

    @property
    def waitables(self) -> list[Any]:
        """One of them becomes ready when the child has something to say or is gone."""
        return [self.pipe, self._process.sentinel]

    def receive(self) -> None:
        """Empty the pipe into ``inbox``, so that the child need not wait for a reader."""
        try:
            while not self.closed and self.pipe.poll():
                self.inbox.append(self.pipe.recv())
        except (EOFError, OSError):  # the child is gone, perhaps in the middle of a message
            self._broken = True

    def messages(self) -> Iterator[tuple[Any, ...]]:
        """What has arrived; afterwards ``closed`` says whether more can come."""
        gone = not self._process.is_alive()  # asked first: what it sent before it went is read below
        self.receive()
        while self.inbox:
            yield self.inbox.popleft()
        self.closed = self.closed or gone or self._broken

    @property
    def peak(self) -> int:
        """The most memory it has held so far, in bytes; 0 where that cannot be known (it is gone, or not Linux)."""
        return memory.peak_memory_of(self.pid)

    def end(self) -> tuple[str, int | None]:
        """Reap a child that is gone, with what it may have left behind; how it ended, in words and as exit code."""
        self._process.join(timeout=5)
        code = self._process.exitcode
        self.kill()
        return ("the process closed its pipe and did not end" if code is None else describe_exit_code(code)), code

    def kill(self) -> None:
        """End the child and whatever it started, at once: checkpoints are written atomically."""
        for send, target in ((os.killpg, self.pid), (os.kill, self.pid)):
            try:
                send(target, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):  # gone, or not yet leader of its own group
                continue
        self._process.join(timeout=5)
        self._release()

    def answer(self, *, stop: bool) -> None:
        """Tell a child that asks whether to stop or to go on."""
        with suppress(OSError):  # it is gone, as the next look at its messages will show
            self.pipe.send("stop" if stop else "go on")

    def _release(self) -> None:
        self.closed = True
        self.pipe.close()
        self._lifeline.close()


def start(job: Job) -> Worker:
    """A worker for ``job``; once more with a new server where the one that children are forked from was killed."""
    try:
        return Worker(job)
    except (EOFError, ConnectionError):
        return Worker(job)


def _child(job: Job, pipe: Connection, lifeline: Connection) -> None:
    os.setpgid(0, 0)  # the parent ends us together with whatever we start
    threading.Thread(target=_die_with_parent, args=(lifeline,), daemon=True).start()
    os.environ.clear()
    os.environ.update(job.environment)  # the server may be older than a change to it
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        _output_to(job.folder / "log.txt")
        if job.memory_limit is not None:
            memory.limit_memory(job.memory_limit)

        def wait(text: str) -> None:
            logger.info(text)
            pipe.send(("waits", text))

        # Another study that has this run in common may train it: its result will be ours. The run's own timeout is the limit.
        activity = "this configuration is being trained"
        owned = file_lock(job.folder / "lock", activity=activity, timeout=math.inf, on_wait=wait)
        with log_to(print), owned:
            if job.anew:
                _forget(job.folder)
            pipe.send(_train(job, pipe))
    except BrokenPipeError:  # the parent is gone; so are we in a moment
        _end(1)
    except UserError as error:
        pipe.send(("raised", redact(str(error)), ""))
    except BaseException as error:
        ours = (job.folder.parents[1], datasets.folder(), datasets.prepared_folder())
        if (
            trouble := describe_disk_error(error, within=ours)
        ) is not None:  # no fault of the run: the others would meet it, too
            pipe.send(("disk", trouble))
            _end(1)
        traceback.print_exc()
        reason = one_line(f"{type(error).__name__}: {error}" + describe_raise_site())
        pipe.send(("raised", redact(reason), redact(traceback.format_exc())))
    _end(0)


def _forget(folder: Path) -> None:
    """Have a run begin anew. Without a result it keeps its checkpoints: that was forgotten earlier, or memory had run out."""
    from attnlab.training import checkpoint
    from attnlab.training.result import FILE, remove_result

    if (folder / FILE).exists():
        checkpoint.remove(folder)  # before the result: a kill in between must not leave one to go on from
        remove_result(folder)


def _end(code: int) -> None:
    """Leave without tearing torch down: quick, and no thread of the user's can hold it up."""
    with suppress(OSError):  # a full disk has no room for last words
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _train(job: Job, pipe: Connection) -> tuple[Any, ...]:
    pipe.send(("started", _machine(job)))

    def report(step: int, metrics: dict[str, float]) -> bool:
        pipe.send(("metrics", step, {name: float(value) for name, value in metrics.items()}))
        return job.asks in metrics and pipe.recv() == "stop"

    result = _function(job.train)(job.config, report=report, folder=job.folder)
    for name, text in result.tags.items():
        pipe.send(("tag", name, text))
    summary = {name: float(value) for name, value in result.summary.items()}
    return ("ended", result.state, summary, result.step, result.reason)


def _function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _machine(job: Job) -> dict[str, Any]:
    """Divide the processor among the workers; say what this one has and how many steps lie ahead."""
    import torch

    threads = _shared(torch.get_num_threads(), job)
    torch.set_num_threads(threads)
    device = job.config.machine.device
    name = device_name(device) + ("" if device.startswith("cuda") else f" ({threads} thread{'' if threads == 1 else 's'})")
    return {"device": name, "total": _total(job)}


def _shared(threads: int, job: Job) -> int:
    """This worker's part of the threads that torch would take; what the configuration says goes before."""
    return job.config.machine.threads or max(1, threads // job.share)


def _total(job: Job) -> int | None:
    """The length of the run in steps, for the display; None where it is not known before the run."""
    if job.config.train.steps is not None or job.train != TRAIN:
        return job.config.train.steps
    from attnlab.registry import TASKS
    from attnlab.training.train import total_steps

    load_sources(job.config.sources)  # the task may be the user's own
    task = TASKS.get(job.config.task.name)(**job.config.task.options)
    task.prepare()
    return total_steps(job.config.train, task)


def _die_with_parent(lifeline: Connection) -> None:
    try:
        lifeline.recv()  # nothing is ever sent: this returns when the parent is gone
    except (EOFError, OSError):
        os.killpg(0, signal.SIGKILL)


def _output_to(path: Path) -> None:
    """Send what this process prints to a file, without secrets: the terminal belongs to the parent's display."""
    with path.open("ab") as file:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    out = os.fdopen(1, "wb", closefd=False)
    sys.stdout = sys.stderr = _Redacted(out, errors="backslashreplace", line_buffering=True)
    faulthandler.enable(2)


class _Redacted(io.TextIOWrapper):
    """What Python code prints: the file becomes an artifact of the run when that fails."""

    def write(self, text: str, /) -> int:
        return super().write(redact(text))
