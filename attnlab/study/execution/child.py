"""The process that trains one run, or several as one model: the child of ``worker.py``.

It sends messages about each run over the run's pipe, and ends when its parent dies. Its output goes to the run's ``log.txt``.
"""

import faulthandler
import importlib
import io
import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from attnlab._util import memory
from attnlab._util.files import describe_disk_error
from attnlab._util.lock import file_lock
from attnlab._util.log import log_to
from attnlab._util.plural import count
from attnlab._util.progress import progress_to
from attnlab._util.raise_site import describe_error
from attnlab._util.redact import redact
from attnlab._util.run_state import Reset, RunState
from attnlab._util.user_code import load_sources
from attnlab.config.command import CommandConfig
from attnlab.config.run import RunConfig
from attnlab.errors import UserError, one_line
from attnlab.study.execution.command import run_command
from attnlab.study.execution.job import TRAIN, Job
from attnlab.study.execution.messages import (
    DiskFull,
    Ended,
    Evaluation,
    Message,
    Metrics,
    Notice,
    Outcome,
    Raised,
    Started,
    Tag,
)
from attnlab.tasks import datasets
from attnlab.tracking.tags import device_name


def run_jobs(jobs: Sequence[Job], pipes: Sequence[Connection], lifeline: Connection) -> None:
    """Train the run of one job, or those of several as one model, and exit.

    Args:
        jobs: what to train; the first gives the environment and the limit of memory.
        pipes: one for each job; they carry messages to the parent, and its answers about a trial.
        lifeline: closes when the parent dies.
    """
    os.setpgid(0, 0)  # so that the parent can kill this process together with every process that it starts
    threading.Thread(target=die_with_parent, args=(lifeline,), daemon=True).start()
    first = jobs[0]
    os.environ.clear()
    os.environ.update(first.environment)  # the server may have an older environment
    try:
        for job in jobs:
            job.folder.mkdir(parents=True, exist_ok=True)
        output_to(first.folder / "log.txt")
        for job in jobs[1:]:
            _point_to_log(job.folder / "log.txt", first.folder)
        if first.memory_limit is not None:
            memory.limit_memory(first.memory_limit)

        with log_to(_notifier(pipes[0])), ExitStack() as locks:
            # In one order, so that two studies do not wait for each other.
            for job, pipe in sorted(zip(jobs, pipes, strict=True), key=lambda pair: pair[0].folder):
                # Another study that contains this run may be training it; its result then serves both. `run.timeout` limits
                # the wait.
                activity = "this configuration is being trained"
                lock = file_lock(job.folder / "lock", activity=activity, timeout=math.inf, on_wait=_notifier(pipe))
                locks.enter_context(lock)
            for job in jobs:
                _remove_files(job.folder, job.reset)
            if len(jobs) == 1:
                pipes[0].send(_train(first, pipes[0]))
            else:
                _train_together(jobs, pipes)
    except BrokenPipeError:  # the parent has died
        _exit(1)
    except BaseException as error:
        outcome = _outcome_of(error, first)
        _send(pipes, outcome)
        if isinstance(outcome, DiskFull):
            _exit(1)
    _exit(0)


def _outcome_of(error: BaseException, job: Job) -> Outcome:
    """Return the message about an exception that ended a run."""
    if isinstance(error, UserError):
        return Raised(redact(str(error)))
    # A full disk is not this run's fault and would stop the others too, if the file is one of attnlab's own.
    folders = (job.folder.parents[1], datasets.folder(), datasets.prepared_folder())
    disk_error = describe_disk_error(error, within=folders)
    if disk_error is not None:
        return DiskFull(disk_error)
    traceback.print_exception(error)
    return Raised(redact(one_line(describe_error(error))), redact("".join(traceback.format_exception(error))))


def _send(pipes: Iterable[Connection], message: Message) -> None:
    """Send a message about each run whose pipe is open at both ends."""
    for pipe in pipes:
        with suppress(OSError):  # closed: the run has ended, here or for the parent
            pipe.send(message)


def _notifier(pipe: Connection) -> Callable[[str], None]:
    """Return a function that prints a line, and sends it as a notice about the run of the pipe."""

    def notify(text: str) -> None:
        print(text)
        if threading.current_thread() is threading.main_thread():  # a pipe is not safe to share between threads
            _send([pipe], Notice(text))

    return notify


def _point_to_log(path: Path, folder: Path) -> None:
    """Write into the log of a run in which other run's folder the output of their process is."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"trained together with {folder.name}; the output is in its log.txt\n")


def _remove_files(folder: Path, reset: Reset) -> None:
    """Remove files of an earlier attempt from a run's folder, so that the run starts from its first step.

    ``Reset.RESULT`` keeps the checkpoints of a run without a result: the result was removed earlier, or the run had none
    because memory ran out.
    """
    if reset is Reset.NONE:
        return
    from attnlab._util.metrics import ITEMS_FILE
    from attnlab.training import checkpoint
    from attnlab.training.result import FILE, remove_result
    from attnlab.training.weights import CONFIG, WEIGHTS

    if reset is Reset.FOLDER or (reset is Reset.RESULT and (folder / FILE).exists()):
        checkpoint.remove(folder)  # first: a kill in between must leave no checkpoint to resume from
        for name in (WEIGHTS, CONFIG, ITEMS_FILE):  # the new attempt may end without a model
            (folder / name).unlink(missing_ok=True)
        remove_result(folder)


def _exit(code: int) -> None:
    """Exit without the interpreter's shutdown: quick, and no thread of the user's code can block it."""
    with suppress(OSError):  # the disk may be full
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _train(job: Job, pipe: Connection) -> Outcome:
    report = _reporter(job, pipe)
    if isinstance(job.settings, CommandConfig):
        pipe.send(Started(f"{device_name('cpu')} ({count(job.threads, 'thread')})", None))
        options = {"metric": job.metric, "threads": job.threads, "folder": job.folder}
        return run_command(job.settings, **options, report=report, notify=_notifier(pipe))
    device = _set_up_threads(job.settings, job.threads)
    pipe.send(Started(device, _total_steps(job.settings, job.train)))
    with progress_to(lambda *progress: pipe.send(Evaluation(*progress))):
        own = {"figures": job.figures} if job.train == TRAIN else {}
        result = _function(job.train)(job.settings, report=report, folder=job.folder, **own)
    return _ended(result, pipe)


def _train_together(jobs: Sequence[Job], pipes: Sequence[Connection]) -> None:
    """Train runs as one model; send the outcome of each when it ends, and close its pipe."""
    from attnlab.training.fused.train import FusedRun, train_fused

    runs = []
    for job, pipe in zip(jobs, pipes, strict=True):
        assert isinstance(job.settings, RunConfig)  # the plan refuses to fuse programs
        device = f"{_set_up_threads(job.settings, job.threads)}, {len(jobs)} seeds as one model"
        _send([pipe], Started(device, _total_steps(job.settings, job.train)))
        runs.append(FusedRun(job.settings, _reporter(job, pipe), job.folder, _notifier(pipe)))
    for number, outcome in train_fused(runs):
        pipe, job = pipes[number], jobs[number]
        with suppress(OSError):  # the parent has ended the run
            pipe.send(_outcome_of(outcome, job) if isinstance(outcome, Exception) else _ended(outcome, pipe))
        pipe.close()


def _reporter(job: Job, pipe: Connection) -> Callable[[int, dict[str, float]], bool]:
    def report(step: int, metrics: dict[str, float]) -> bool:
        """Send points of curves; return whether to stop."""
        pipe.send(Metrics(step, {name: float(value) for name, value in metrics.items()}))
        return job.pruning_metric in metrics and pipe.recv()

    return report


def _ended(result: Any, pipe: Connection) -> Ended:
    """Send the tags of a result, and return the message about its end."""
    for name, text in result.tags.items():
        pipe.send(Tag(name, text))
    summary = {name: float(value) for name, value in result.summary.items()}
    return Ended(RunState(result.state), summary, result.reason)


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


def _total_steps(config: RunConfig, train: str) -> int | None:
    """Return the length of the run in steps, for the display; None where it is not known in advance."""
    if config.train.steps is not None or train != TRAIN:
        return config.train.steps
    from attnlab.registry import TASKS
    from attnlab.training.train import total_steps

    load_sources(config.sources)  # the task may be the user's own
    task = TASKS.get(config.task.name)(**config.task.options)
    task.prepare()
    return total_steps(config.train, task)


def die_with_parent(lifeline: Connection) -> None:
    """Wait until the parent's end of a pipe is closed, then kill the process group of this process."""
    try:
        lifeline.recv()  # nothing is ever sent: this raises when the parent dies
    except (EOFError, OSError):
        os.killpg(0, signal.SIGKILL)


def output_to(path: Path) -> None:
    """Redirect the output of this process to a file, without secrets: the terminal belongs to the parent's display."""
    with path.open("ab") as file:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    out = os.fdopen(1, "wb", closefd=False)
    sys.stdout = sys.stderr = _Redacted(out, encoding="utf-8", errors="backslashreplace", line_buffering=True)
    faulthandler.enable(2)


class _Redacted(io.TextIOWrapper):
    """A text stream without secrets: the log becomes an artifact of the run if the run fails."""

    def write(self, text: str, /) -> int:
        return super().write(redact(text))
