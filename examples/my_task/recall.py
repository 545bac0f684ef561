"""Associative recall: pairs of a key and a value, then the keys again, whose values are to be told.

    aQ cM bT  cM aQ bT        Told: the values of the second half, each after its key. Everything else is chance.
              ^^ ^^ ^^

What attention does in one look, a recurrent network must hold in a state of fixed size: Ba et al. 2016, "Using Fast Weights to
Attend to the Recent Past" (one question a row); Arora et al. 2023, "Zoology" (many, as here).

Nothing is downloaded. A row is a function of a seed and its number, so that every variant sees the same ones.
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

LETTERS = string.ascii_lowercase + string.ascii_uppercase  # 26 keys, 26 values; a token is a letter's place in it
ROWS = 2_000  # of valid, and of test; and what an epoch comes to


@register_task("recall")
class Recall(Task):
    """A language model that is asked for the values of ``pairs`` keys; scored by the share that it tells rightly."""

    kind = "language_model"
    role = "causal"
    metric, direction = "recall", "max"
    vocabulary = len(LETTERS)

    def __init__(self, *, pairs: int = 8) -> None:
        self.pairs = whole_number(pairs, name="pairs")
        if pairs > 26:
            raise UserError(f"pairs: expected at most 26, one for each key, got {pairs}")
        self.length = 4 * pairs - 1  # pairs, and pairs again, of which the last value is read by nobody

    def identity(self) -> str:
        """Of what is drawn, and not of its description: another numpy may draw other rows."""
        return f"recall sha256:{hashlib.sha256(self._rows([2], 10).tobytes()).hexdigest()}"

    def prepare(self) -> None:
        """Nothing to fetch."""

    def steps_per_epoch(self, batch_size: int) -> int:
        return max(1, ROWS // batch_size)

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        return self._batch(self._rows([0, seed, step], batch_size))

    def eval_batches(self, split: str, *, batch_size: int, limit: int | None = None, **protocol: object) -> Iterator[Batch]:
        rows = self._rows([SPLITS.index(split)], ROWS)[:limit]  # no seed: the same ones for every run
        return (self._batch(rows[i : i + batch_size]) for i in range(0, len(rows), batch_size))

    def score(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        asked = batch.targets != IGNORED
        right = (logits.argmax(-1) == batch.targets) & asked
        return {"recall": (right.sum().double(), asked.sum())}  # a sum and a count, added up over all batches

    def encode(self, text: str) -> list[int]:
        return [LETTERS.index(letter) for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(LETTERS[token] for token in ids)

    def _rows(self, seed: list[int], count: int) -> np.ndarray:
        """(count, 4 pairs) tokens: each key with its value, then both again in another order."""
        rng = np.random.default_rng(seed)
        keys = rng.permuted(np.tile(np.arange(26), (count, 1)), axis=1)[:, : self.pairs]
        told = np.stack([keys, rng.integers(26, 52, size=keys.shape)], axis=-1)  # (count, pairs, 2)
        order = rng.permuted(np.tile(np.arange(self.pairs), (count, 1)), axis=1)
        asked = np.take_along_axis(told, order[:, :, None], axis=1)
        return np.concatenate([told, asked], axis=1).reshape(count, -1)

    def _batch(self, rows: np.ndarray) -> Batch:
        tokens = torch.from_numpy(rows.astype(np.int64))
        targets = torch.full_like(tokens, IGNORED)[:, 1:]
        targets[:, 2 * self.pairs :: 2] = tokens[:, 2 * self.pairs + 1 :: 2]  # after each key of the second half its value
        return Batch(tokens[:, :-1], targets)
