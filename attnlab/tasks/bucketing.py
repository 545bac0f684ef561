"""Batches of rows of similar lengths, which keep padding small, and the base of the tasks that have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab._util.rng import derive_seed
from attnlab.errors import UserError
from attnlab.tasks import Batch, Task, datasets

if TYPE_CHECKING:
    from attnlab.config.run import RunConfig

POOL = 64  # batches that are sorted together: a larger pool needs less padding, a smaller one mixes better


def shuffled_by_length(lengths: np.ndarray, rng: np.random.Generator, *, batch_size: int) -> list[np.ndarray]:
    """Return the batches of one epoch: every row once, in random batches of similar lengths, in random order.

    Rows are shuffled, cut into pools and sorted by length within each pool, so that a row is batched with other rows in every
    epoch.

    Args:
        lengths: (n,) int, the tokens of each row that are read.
        rng: determines the batches.

    Returns:
        ceil(n / batch_size) arrays of row indices; their sizes differ by at most one.
    """
    rows = rng.permutation(len(lengths))
    pools = np.array_split(rows, max(1, round(len(rows) / (POOL * batch_size))))
    ordered = [pool[np.argsort(lengths[pool], kind="stable")] for pool in pools]
    # Reverse every second pool: a batch that spans two pools then has similar lengths, too.
    joined = np.concatenate([pool[::-1] if number % 2 else pool for number, pool in enumerate(ordered)])
    batches = np.array_split(joined, -(-len(rows) // batch_size))
    return [batches[i] for i in rng.permutation(len(batches))]


def by_length(lengths: np.ndarray, *, tokens: int) -> list[np.ndarray]:
    """Return batches of every row once, from the longest to the shortest, of at most ``tokens`` each with padding.

    A batch has at least one row. It ends where the length changes, unless it would use less than half of its tokens: a batch
    without padding needs no mask.

    Args:
        lengths: (n,) int, the tokens of each row.
        tokens: the most tokens of a batch.
    """
    order = np.argsort(-lengths.astype(np.int64), kind="stable")
    batches, begin = [], 0
    while begin < len(order):
        longest = int(lengths[order[begin]])
        room = max(1, tokens // max(1, longest))
        alike = int((lengths[order[begin : begin + room]] == longest).sum())
        rows = alike if 2 * alike >= room else room
        batches.append(order[begin : begin + rows])
        begin += rows
    return batches


def padding_share(lengths: np.ndarray, batches: Sequence[np.ndarray]) -> float:
    """Return the fraction of all tokens in ``batches`` that are padding."""
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1 - int(sum(lengths[batch].sum() for batch in batches)) / padded


class BucketedTask(Task):
    """Base class of tasks with rows of unequal lengths.

    Training batches have rows of similar lengths, and each row once per epoch. Evaluation batches are ordered from the longest
    row to the shortest, and have at most ``batch_size * length`` tokens each, with padding.

    Attributes:
        item: the name of a row in messages.
    """

    item: str = "row"
    shapes_vary = True
    _place: Path | None = None  # of the prepared data
    _epoch: tuple[tuple[int, int, int], list[np.ndarray]] | None = None  # the batches of the latest epoch

    # ------------------------------------------------------------ defined by a subclass

    @property
    def data_name(self) -> str:
        """Prefix of the folder of the prepared data."""
        raise NotImplementedError

    def data_key(self) -> dict[str, Any]:
        """Return everything that determines the prepared data, as for ``datasets.prepared``."""
        raise NotImplementedError

    def build_data(self, place: Path) -> None:
        """Write the prepared data into the empty folder ``place``."""
        raise NotImplementedError

    def count(self, split: str) -> int:
        """Return the number of rows of a split; callable before ``prepare``."""
        raise NotImplementedError

    def row_lengths(self, split: str) -> np.ndarray:
        """Return the tokens of each row of a split that are read, (n,); of pairs on both sides, (n, 2)."""
        raise NotImplementedError

    def evaluated_rows(self, split: str, limit: int | None) -> np.ndarray:
        """Return the numbers of the rows that an evaluation reads: all of a split, or always the same ``limit`` of them."""
        raise NotImplementedError

    def batch(self, split: str, rows: np.ndarray) -> Batch:
        """Return these rows of a split, padded to the longest of them."""
        raise NotImplementedError

    # ------------------------------------------------------------ data

    def prepare(self) -> None:
        if self._place is None:
            self._place = datasets.prepared(self.data_name, self.data_key(), self.build_data)

    def has_data(self) -> bool:
        """Return True when rows can be read without a download or a long preparation."""
        return self._place is not None or datasets.is_prepared(self.data_name, self.data_key())

    @property
    def prepared_folder(self) -> Path:
        """The folder of the prepared data, which are prepared if they have not been."""
        self.prepare()
        assert self._place is not None
        return self._place

    def unsupported(self, config: RunConfig) -> str | None:
        if config.model.mem_len:
            return f"memory requires a continuous text: {self.item}s are independent of each other"
        if config.evaluate.protocol != "segment":
            return f"the {config.evaluate.protocol} protocol is for language models: {self.item}s are read whole"
        return None

    # ------------------------------------------------------------ batches

    def steps_per_epoch(self, batch_size: int) -> int:
        return -(-self.count("train") // batch_size)

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        """Return rows of similar lengths: each row once per epoch, in batches of equal size or one less."""
        epoch, number = divmod(step, self.steps_per_epoch(batch_size))
        return self.batch("train", self.epoch_batches(epoch, seed=seed, batch_size=batch_size)[number])

    def epoch_batches(self, epoch: int, *, seed: int, batch_size: int) -> list[np.ndarray]:
        """Return the numbers of the rows of each training batch of an epoch."""
        key = (epoch, seed, batch_size)  # with the task's own options, everything that determines the batches
        if self._epoch is None or self._epoch[0] != key:
            rng = np.random.default_rng(derive_seed(seed, "order", epoch))
            self._epoch = key, shuffled_by_length(_longest(self.row_lengths("train")), rng, batch_size=batch_size)
        return self._epoch[1]

    def eval_batches(
        self,
        split: str,
        *,
        batch_size: int,
        limit: int | None = None,
        protocol: str = "segment",
        stride: int | None = None,
    ) -> Iterator[Batch]:
        """Yield rows from the longest to the shortest; a batch has at most ``batch_size * length`` tokens, with padding.

        ``limit`` selects that many of the rows, always the same ones (``evaluated_rows``).
        """
        if protocol != "segment":
            raise UserError(f"{self.item}s are read whole: there is no protocol {protocol!r}")
        rows = self.evaluated_rows(split, limit)
        for batch in by_length(_longest(self.row_lengths(split)[rows]), tokens=batch_size * self.length):
            yield self.batch(split, rows[batch])

    def eval_tokens(self, split: str, *, limit: int | None, protocol: str, stride: int | None) -> int:
        count = self.count(split)
        return min(count, limit or count) * self.length

    def split_size(self, split: str) -> int | None:
        return self.count(split)

    def mean_length(self, split: str) -> float | None:
        return float(self.row_lengths(split).mean()) if self.has_data() else None

    def padding(self, *, batch_size: int, seed: int = 0, epoch: int = 0) -> float:
        """Return the fraction of an epoch's training tokens that are padding; of pairs, on the side where it is larger."""
        lengths, batches = self.row_lengths("train"), self.epoch_batches(epoch, seed=seed, batch_size=batch_size)
        return max(padding_share(side, batches) for side in lengths.reshape(len(lengths), -1).T)


def _longest(lengths: np.ndarray) -> np.ndarray:
    """Return the tokens of each row, (n,), of pairs on the longer side."""
    return lengths if lengths.ndim == 1 else lengths.max(axis=1)
