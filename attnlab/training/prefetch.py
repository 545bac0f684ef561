"""Training batches where they are computed on, drawn one step ahead so that no step waits for data."""

from dataclasses import dataclass
from time import perf_counter

import torch

from attnlab.config.run import RunConfig
from attnlab.tasks import Batch, Task
from attnlab.training.distributed.group import Group


@dataclass(frozen=True)
class RankBatch:
    """What one rank reads of one batch, on its device.

    Attributes:
        parts: its micro-batches.
        shares: of what the whole batch wants predicted, the part of each.
        tokens: of the whole batch.
    """

    parts: list[Batch]
    shares: list[float]
    tokens: int


class Prefetcher:
    """One rank's portions of the batches of a run.

    On CUDA a step is computed while the program goes on: what ``draw`` draws then is there, pinned and on its way, before the
    device asks for it. Nothing is counted on the device, so nothing waits for it.

    Attributes:
        seconds: that drawing, and beginning to copy, took of the program.
    """

    def __init__(self, task: Task, config: RunConfig, *, group: Group, device: torch.device) -> None:
        self._task, self._config, self._group, self._device = task, config, group, device
        self._ahead: dict[int, RankBatch] = {}
        self.seconds = 0.0

    def take(self, step: int) -> RankBatch:
        """The portion of a step, whether it was drawn before or not."""
        if step not in self._ahead:
            self.draw(step)
        return self._ahead.pop(step)

    def draw(self, step: int) -> None:
        """Draw the portion of a step that is to come."""
        begin = perf_counter()
        how = self._config.train
        batch = self._task.train_batch(step, seed=self._config.seed, batch_size=how.batch_size)
        wanted = max(1, int((batch.targets >= 0).sum()))  # a batch that wants nothing predicted has shares of nothing
        mine, counts = self._group.rows(batch)
        parts = mine.split(how.gradient_accumulation)
        shares = [int((part.targets >= 0).sum()) * counts / wanted for part in parts]
        self._ahead = {step: RankBatch([part.to(self._device) for part in parts], shares, batch.tokens)}
        self.seconds += perf_counter() - begin
