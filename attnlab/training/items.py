"""Scores of the single items of ``test``: segments of a text, or documents.

They are kept with a run, so that a report can tell how much of a difference's uncertainty comes from the choice of test items,
and load as ``attnlab.load_items``. Few items are kept one by one; of many segments, runs of consecutive ones are added up.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attnlab._util.files import replacing
from attnlab._util.metrics import ITEMS_FILE
from attnlab.errors import one_line
from attnlab.training.device import is_out_of_memory

if TYPE_CHECKING:
    from attnlab.tasks import Batch, Task

logger = logging.getLogger(__name__)

MAX_SEGMENTS, MAX_DOCUMENTS = 1_024, 32_768  # items that are kept; a file then has a few kB


class ItemScores:
    """Collects ``Task.item_metric``, or else the primary metric, of each row of an evaluation.

    Sums stay on their device until ``save``.
    """

    def __init__(self) -> None:
        self._numbers: list[Tensor] = []
        self._sums: list[Tensor] = []
        self._counts: list[Tensor] = []
        self._rows = 0
        self._failed = False
        self._limit = MAX_SEGMENTS
        self._metric = ""

    def add(self, task: Task, logits: Tensor, batch: Batch) -> None:
        """Score each row of a batch. Rows without a number are numbered in the order of the evaluation.

        A user's task that cannot score rows one by one keeps its result: it has no items, with a warning.
        """
        if self._failed:
            return
        try:
            sums, counts = task.item_scores(logits, batch)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            logger.warning("no scores of single test items: %s", one_line(f"{type(error).__name__}: {error}"))
            self._failed, self._rows = True, 0
            return
        rows = len(sums)
        numbers = torch.arange(self._rows, self._rows + rows) if batch.items is None else batch.items
        self._numbers.append(numbers)
        self._sums.append(sums)
        self._counts.append(counts)
        self._rows += rows
        self._metric = task.item_metric or task.metric
        self._limit = MAX_DOCUMENTS if task.kind == "classifier" else MAX_SEGMENTS

    def save(self, folder: Path) -> None:
        """Write ``items.npz``: ``score`` (n,) float32, the mean of each item; ``count`` (n,), what it is a mean of; ``metric``.

        Items without a target are left out. Nothing is written if nothing was scored.
        """
        if not self._rows:
            return
        sums = torch.cat([part.double().cpu() for part in self._sums]).numpy()
        counts = torch.cat([part.cpu() for part in self._counts]).numpy()
        order = np.argsort(torch.cat(self._numbers).numpy(), kind="stable")
        order = order[counts[order] > 0]
        sums, counts = _merged(sums[order], counts[order], self._limit)
        with replacing(folder / ITEMS_FILE) as half, half.open("wb") as file:
            score = (sums / counts).astype(np.float32)
            np.savez_compressed(file, score=score, count=counts.astype(np.int32), metric=np.array(self._metric))


def _merged(sums: np.ndarray, counts: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Add up runs of consecutive items, of sizes that differ by at most one, until at most ``limit`` are left."""
    if len(sums) <= limit:
        return sums, counts
    starts = np.arange(limit) * len(sums) // limit
    return np.add.reduceat(sums, starts), np.add.reduceat(counts, starts)
