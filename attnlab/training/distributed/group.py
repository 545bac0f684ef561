"""The processes that share one run, seen from one of them.

Every rank holds the whole model and takes its rows of every batch. Gradients are added up, so that each rank takes
the same step; what only one process can do (evaluate, ask whether to stop) the first rank does for all of them.
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
PATIENCE = timedelta(days=30)  # the others wait while the first evaluates; who dies is noticed by other means


class Group:
    """A run in one process: the group of one, in which there is nothing to do."""

    rank, size = 0, 1

    @property
    def first(self) -> bool:
        """Whether this is the rank that speaks for all."""
        return self.rank == 0

    def rows(self, batch: Batch) -> tuple[Batch, bool]:
        """This rank's rows of ``batch``, and whether they count."""
        return batch, True

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor, in place, by its sum over the ranks."""

    def on_rank_zero(self, act: Callable[[], T]) -> T:
        """What ``act`` returns in the first rank; in the others it is not called."""
        return act()

    def gather(self, value: T) -> list[T]:
        """The value of every rank, in order."""
        return [value]


class LostRank(RuntimeError):
    """Another rank has gone in the middle of something done together."""


class Ranks(Group):
    """One of several ranks on one machine: gloo on the CPU, nccl on CUDA.

    Args:
        meeting: a file that does not yet exist, the same for all: where the ranks find each other.
    """

    def __init__(self, rank: int, size: int, *, device: torch.device, meeting: Path) -> None:
        self.rank, self.size = rank, size
        with _together():
            torch.distributed.init_process_group(
                "nccl" if device.type == "cuda" else "gloo",
                init_method=f"file://{meeting}",
                rank=rank,
                world_size=size,
                timeout=PATIENCE,
            )

    def rows(self, batch: Batch) -> tuple[Batch, bool]:
        """As above; of a batch with fewer rows than ranks, the last ranks get rows that do not count."""
        parts = batch.split(self.size)
        return parts[self.rank % len(parts)], self.rank < len(parts)

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])  # one message rather than hundreds
        with _together():
            torch.distributed.all_reduce(flat)
        for tensor, total in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def on_rank_zero(self, act: Callable[[], T]) -> T:
        found = [act() if self.first else None]
        with _together():
            torch.distributed.broadcast_object_list(found)
        return found[0]  # type: ignore[return-value]

    def gather(self, value: T) -> list[T]:
        found: list[T | None] = [None] * self.size
        with _together():
            torch.distributed.all_gather_object(found, value)
        return found  # type: ignore[return-value]


@contextmanager
def _together() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise LostRank(str(error)) from error
