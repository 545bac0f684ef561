"""Data-parallel training of one run by several processes, its ranks, of which each computes its rows of every batch.

Every rank holds the whole model. Gradients are summed over the ranks, so that all take the same step. Rank 0 evaluates,
reports, and asks whether to stop, for all of them. Ranks are forked like the process of a run (``fork_with_pipe``). When one
dies, the process that started them kills the others; when this process dies, so do they.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import torch
from torch import Tensor

from attnlab._util.log import log_to
from attnlab._util.process import fork_with_pipe
from attnlab._util.progress import progress_to, show_progress
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.tasks import Batch
from attnlab.training.result import Report, Result

T = TypeVar("T")
PRELOAD = "attnlab.training.preload"
TIMEOUT = timedelta(days=30)  # the others wait while rank 0 evaluates; dead ranks are detected by their connections


def unsupported(config: RunConfig) -> str | None:
    """Return the reason why several processes (``machine.processes_per_run``) cannot share a run on this machine, or None.

    Args:
        config: resolved.
    """
    n, device = config.machine.processes_per_run, config.machine.device
    if not torch.distributed.is_available():
        return f"machine.processes_per_run {n}: this torch was built without torch.distributed"
    rows, parts = config.train.batch_size, n * config.train.gradient_accumulation
    if rows % parts:
        whole = f"{n} processes x {config.train.gradient_accumulation} micro-batches"
        return f"machine.processes_per_run {n}: expected a train.batch_size divisible by {whole}, got {rows}"
    if device.startswith("cuda:"):
        return f"machine.processes_per_run {n}: expected machine.device cuda, of which each process takes one, got {device}"
    if device == "cuda" and torch.cuda.device_count() < n:
        return f"machine.processes_per_run {n}: expected a CUDA device for each, found {torch.cuda.device_count()}"
    return None


class Group:
    """The ranks that share a run, connected by torch.distributed; a single one exchanges nothing."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    def rows(self, batch: Batch) -> tuple[Batch, bool]:
        """Return this rank's rows of ``batch``, and whether they count towards the loss.

        If a batch has fewer rows than ranks, the last ranks get rows that do not count.
        """
        parts = batch.split(self.size) if self.size > 1 else [batch]
        return parts[self.rank % len(parts)], self.rank < len(parts)

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor, in place, by its sum over the ranks."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])  # one message instead of hundreds
        with _collective():
            torch.distributed.all_reduce(flat)
        for tensor, total in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def on_rank_zero(self, function: Callable[[], T]) -> T:
        """Call ``function`` in rank 0 only, and return its result in every rank."""
        result: list[Any] = [function() if self.rank == 0 else None]
        if self.size > 1:
            with _collective():
                torch.distributed.broadcast_object_list(result)
        return result[0]

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks, in order of rank."""
        values: list[Any] = [value] * self.size
        if self.size > 1:
            with _collective():
                torch.distributed.all_gather_object(values, value)
        return values


class LostRank(RuntimeError):
    """Raised if another rank has died during a collective operation."""


@contextmanager
def _collective() -> Iterator[None]:
    """Turn the errors of a collective operation into ``LostRank``, except running out of memory."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise LostRank(str(error)) from error


def train_on_ranks(train_rank: Callable[..., Result], config: RunConfig, *, report: Report, folder: Path | None) -> Result:
    """Run ``attnlab.training.train.train`` on ``machine.processes_per_run`` ranks, with the same arguments and result.

    Args:
        train_rank: runs one rank's part, given its group.

    Raises:
        UserError: raised by one of the ranks.
        RuntimeError: a rank raised another error or died; the message names the rank.
    """
    ranks, threads = [], max(1, torch.get_num_threads() // config.machine.processes_per_run)
    with tempfile.TemporaryDirectory(prefix="attnlab-ranks-") as place:
        try:
            for rank in range(config.machine.processes_per_run):
                arguments = (train_rank, config, folder, rank, threads, f"file://{place}/ranks")
                ranks.append(fork_with_pipe(_run_rank, *arguments, name=f"attnlab-rank-{rank}", preload=PRELOAD, daemon=False))
            return _receive([pipe for _, pipe in ranks], report)
        finally:
            for process, _ in ranks:
                process.kill()
                process.join()


def _receive(pipes: list[Connection], report: Report) -> Result:
    """Pass on the reports and the progress of rank 0 until a rank sends the result."""
    names = {pipe: f"rank {number} of {len(pipes)}" for number, pipe in enumerate(pipes)}
    lost = ""
    while names:
        for pipe in wait(list(names)):
            assert isinstance(pipe, Connection)
            try:
                kind, value = pipe.recv()
            except (EOFError, OSError):
                raise RuntimeError(f"{names[pipe]} died without a message; its output may tell why") from None
            if kind == "metrics":
                pipe.send(report(*value))
            elif kind == "progress":
                show_progress(*value)
            elif kind == "result":
                return value
            elif kind == "mistake":
                raise value
            elif kind == "error":
                raise RuntimeError(f"{names[pipe]}: {value}")
            else:  # done, or lost another rank, whose own message or death names the cause
                lost = f"{names.pop(pipe)}: {value}"
    raise RuntimeError(f"the ranks lost each other: {lost}")


def _run_rank(
    train_rank: Callable[..., Result],
    config: RunConfig,
    folder: Path | None,
    rank: int,
    threads: int,
    rendezvous: str,
    pipe: Connection,
) -> None:
    """Train as one rank, and send one last message (kind, value); then wait to be killed.

    The kinds are ``result``, ``done`` (a rank other than 0), ``mistake`` (a ``UserError``), ``error`` and ``lost`` (another
    rank died).
    """
    answers: SimpleQueue[bool] = SimpleQueue()
    listener = threading.Thread(target=_listen, args=(pipe, answers), daemon=True)
    listener.start()

    def report(step: int, metrics: dict[str, float]) -> bool:
        pipe.send(("metrics", (step, metrics)))
        return answers.get()

    torch.set_num_threads(threads)
    if rank:  # every rank reads the same checkpoints: one of them logs
        logging.getLogger("attnlab").setLevel(logging.CRITICAL)
    with log_to(print), progress_to(lambda *progress: pipe.send(("progress", progress))):
        message = _train(partial(train_rank, config, report=report, folder=folder), config, rank, rendezvous)
    sys.stdout.flush()
    sys.stderr.flush()
    pipe.send(message)
    listener.join()  # torch's teardown would take seconds


def _train(train: Callable[..., Result], config: RunConfig, rank: int, rendezvous: str) -> tuple[str, Any]:
    from attnlab.training.device import resolve_device

    size = config.machine.processes_per_run
    try:
        backend = "nccl" if resolve_device(config.machine.device).startswith("cuda") else "gloo"
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):  # no port is open to the network
            os.environ.setdefault(name, "lo0" if sys.platform == "darwin" else "lo")
        with _collective():
            torch.distributed.init_process_group(backend, init_method=rendezvous, rank=rank, world_size=size, timeout=TIMEOUT)
        result = train(group=Group(rank, size))
    except UserError as error:
        return "mistake", error
    except LostRank as error:
        return "lost", str(error)
    except BaseException as error:
        traceback.print_exc()
        return "error", f"{type(error).__name__}: {error}"
    if rank == 0 or result.state == "out_of_memory":
        return "result", result
    return "done", None


def _listen(pipe: Connection, answers: SimpleQueue[bool]) -> None:
    """Queue the answers of the process that started the ranks; when it is gone, kill this one, even in a computation."""
    try:
        while True:
            answers.put(pipe.recv())
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGKILL)
