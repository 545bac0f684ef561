"""Associative recall: pairs of a key and a value, then the same keys in another order, whose values are the targets.

    aQ cM bT  cM aQ bT
               ^  ^  ^        targets: the values of the second half, predicted at their keys; all other tokens are random

Attention can look a value up; a recurrent network must hold all pairs in a state of fixed size. Ba et al. 2016, "Using Fast
Weights to Attend to the Recent Past" (one query per row); Arora et al. 2023, "Zoology" (several, as here).

Nothing is downloaded. Rows are drawn from a seed, the same for every variant.
"""

import hashlib
import string
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from attnlab import register_task
from attnlab.errors import UserError
from attnlab.tasks import IGNORED, SPLITS, Batch, Task, whole_number

LETTERS = string.ascii_lowercase + string.ascii_uppercase  # 26 keys, 26 values; a token is an index into it
ROWS = 2_000  # in each of valid and test, and per training epoch


@register_task("recall")
class Recall(Task):
    """Language modelling of ``pairs`` key-value pairs; the metric is the share of values predicted correctly."""

    kind = "language_model"
    role = "causal"
    metric, direction = "recall", "max"
    vocabulary = len(LETTERS)

    def __init__(self, *, pairs: int = 8) -> None:
        self.pairs = whole_number(pairs, name="pairs")
        if pairs > 26:
            raise UserError(f"pairs: expected at most 26, the number of keys, got {pairs}")
        self.length = 4 * pairs - 1  # the pairs twice, without the last value, which is only a target

    def identity(self) -> str:
        """Return a digest of drawn rows, because another version of numpy may draw other ones."""
        return f"recall sha256:{hashlib.sha256(self._rows([2], 10).tobytes()).hexdigest()}"

    def prepare(self) -> None:
        """Do nothing: there is nothing to download."""

    def steps_per_epoch(self, batch_size: int) -> int:
        return max(1, ROWS // batch_size)

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        return self._batch(self._rows([0, seed, step], batch_size))

    def eval_batches(self, split: str, *, batch_size: int, limit: int | None = None, **protocol: object) -> Iterator[Batch]:
        rows = self._rows([SPLITS.index(split)], ROWS)[:limit]  # without the run's seed: the same rows for every run
        return (self._batch(rows[i : i + batch_size]) for i in range(0, len(rows), batch_size))

    def score(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        scored = batch.targets != IGNORED
        right = (logits.argmax(-1) == batch.targets) & scored
        return {"recall": (right.sum().double(), scored.sum())}  # numerator and denominator, summed over batches

    def encode(self, text: str) -> list[int]:
        return [LETTERS.index(letter) for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(LETTERS[token] for token in ids)

    def _rows(self, seed: list[int], count: int) -> np.ndarray:
        """Return (count, 4 pairs) tokens: each key with its value, then the same pairs in another order."""
        rng = np.random.default_rng(seed)
        keys = rng.permuted(np.tile(np.arange(26), (count, 1)), axis=1)[:, : self.pairs]
        first = np.stack([keys, rng.integers(26, 52, size=keys.shape)], axis=-1)  # (count, pairs, 2)
        order = rng.permuted(np.tile(np.arange(self.pairs), (count, 1)), axis=1)
        second = np.take_along_axis(first, order[:, :, None], axis=1)
        return np.concatenate([first, second], axis=1).reshape(count, -1)

    def _batch(self, rows: np.ndarray) -> Batch:
        tokens = torch.from_numpy(rows.astype(np.int64))
        targets = torch.full_like(tokens, IGNORED)[:, 1:]
        targets[:, 2 * self.pairs :: 2] = tokens[:, 2 * self.pairs + 1 :: 2]  # each key of the second half predicts its value
        return Batch(tokens[:, :-1], targets)
