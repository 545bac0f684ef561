"""Training batches, drawn one step ahead and moved to the device so that no step waits for data."""

from dataclasses import dataclass
from time import perf_counter

import torch

from attnlab.config.run import RunConfig
from attnlab.tasks import Batch, Task
from attnlab.training.distributed.group import Group


@dataclass(frozen=True)
class RankBatch:
    """One rank's part of a batch, on its device.

    Attributes:
        parts: the rank's micro-batches.
        shares: of all targets in the whole batch, the fraction in each micro-batch.
        tokens: tokens of the whole batch.
    """

    parts: list[Batch]
    shares: list[float]
    tokens: int


class Prefetcher:
    """Draw one rank's parts of the training batches.

    On CUDA a step runs asynchronously: a batch that ``prefetch`` draws meanwhile is pinned and on its way before the device
    needs it. Targets are counted on the CPU, so that no step synchronises with the device.

    Attributes:
        seconds: time that the program spent on drawing batches and on starting their copies.
    """

    def __init__(self, task: Task, config: RunConfig, *, group: Group, device: torch.device) -> None:
        self._task, self._config, self._group, self._device = task, config, group, device
        self._ahead: dict[int, RankBatch] = {}
        self.seconds = 0.0

    def take(self, step: int) -> RankBatch:
        """Return the batch of ``step``, drawing it now if it was not prefetched, and forget it."""
        if step not in self._ahead:
            self.prefetch(step)
        return self._ahead.pop(step)

    def prefetch(self, step: int) -> None:
        """Draw the batch of a coming step."""
        start = perf_counter()
        train_config = self._config.train
        batch = self._task.train_batch(step, seed=self._config.seed, batch_size=train_config.batch_size)
        targets = max(1, int((batch.targets >= 0).sum()))  # a batch without targets has shares of 0
        rows, counts = self._group.rows(batch)
        parts = rows.split(train_config.gradient_accumulation)
        shares = [int((part.targets >= 0).sum()) * counts / targets for part in parts]
        self._ahead = {step: RankBatch([part.to(self._device) for part in parts], shares, batch.tokens)}
        self.seconds += perf_counter() - start
