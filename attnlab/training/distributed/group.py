"""Communication between the ranks that share one run.

Every rank holds the whole model and computes its rows of every batch. Gradients are summed over the ranks, so that all
ranks take the same step. Rank 0 evaluates, and asks whether to stop, for all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from attnlab.tasks import Batch

T = TypeVar("T")
TIMEOUT = timedelta(days=30)  # the others wait while rank 0 evaluates; dead ranks are detected by their connections


class Group:
    """The group of a run in a single process: all operations are trivial."""

    rank, size = 0, 1

    @property
    def is_rank_zero(self) -> bool:
        """True in the rank that writes, evaluates and reports."""
        return self.rank == 0

    def rows(self, batch: Batch) -> tuple[Batch, bool]:
        """Return this rank's rows of ``batch``, and whether they count towards the loss."""
        return batch, True

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor, in place, by its sum over the ranks."""

    def on_rank_zero(self, function: Callable[[], T]) -> T:
        """Call ``function`` in rank 0 only, and return its result in every rank."""
        return function()

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks, in order of rank."""
        return [value]


class LostRank(RuntimeError):
    """Raised if another rank has died during a collective operation."""


class Ranks(Group):
    """One of several ranks on one machine, connected by gloo on CPUs and by NCCL on CUDA.

    Args:
        rank, size: this rank's number, and the number of ranks.
        device: the device of this rank.
        rendezvous: a path that does not yet exist, the same for all ranks.
    """

    def __init__(self, rank: int, size: int, *, device: torch.device, rendezvous: Path) -> None:
        self.rank, self.size = rank, size
        with _collective():
            torch.distributed.init_process_group(
                "nccl" if device.type == "cuda" else "gloo",
                init_method=f"file://{rendezvous}",
                rank=rank,
                world_size=size,
                timeout=TIMEOUT,
            )

    def rows(self, batch: Batch) -> tuple[Batch, bool]:
        """As in ``Group``; if a batch has fewer rows than ranks, the last ranks get rows that do not count."""
        parts = batch.split(self.size)
        return parts[self.rank % len(parts)], self.rank < len(parts)

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])  # one message instead of hundreds
        with _collective():
            torch.distributed.all_reduce(flat)
        for tensor, total in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def on_rank_zero(self, function: Callable[[], T]) -> T:
        result = [function() if self.is_rank_zero else None]
        with _collective():
            torch.distributed.broadcast_object_list(result)
        return result[0]  # type: ignore[return-value]

    def gather(self, value: T) -> list[T]:
        values: list[T | None] = [None] * self.size
        with _collective():
            torch.distributed.all_gather_object(values, value)
        return values  # type: ignore[return-value]


@contextmanager
def _collective() -> Iterator[None]:
    """Turn the errors of a collective operation into ``LostRank``, except running out of memory."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise LostRank(str(error)) from error
