"""Tasks whose splits disagree, or whose inputs show the targets, which the contract of tasks must catch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from attnlab.tasks import IGNORED, SPLITS, Batch, Task

if TYPE_CHECKING:
    from attnlab._util.metrics import Score

ROWS = 600  # of valid and of test


class Chain(Task):
    """A correct language model of a drawn Markov chain, whose metric is accuracy: the base of several mutants."""

    kind = "language_model"
    role = "causal"
    metric, direction = "accuracy", "max"
    vocabulary, length = 24, 19

    def identity(self) -> str:
        return "chain 0"

    def prepare(self) -> None:
        self.prepared = True

    def steps_per_epoch(self, batch_size: int) -> int:
        return -(-500 // batch_size)

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        return self.batch(self.rows([0, seed, step], batch_size), "train")

    def eval_batches(self, split: str, *, batch_size: int, limit: int | None = None, **_: Any) -> Iterator[Batch]:
        rows = self.rows([SPLITS.index(split)], ROWS)[:limit]
        return (self.batch(rows[i : i + batch_size], split) for i in range(0, len(rows), batch_size))

    def rows(self, seed: list[int], count: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        rows = rng.integers(self.vocabulary, size=(count, self.length + 1))
        for t in range(1, self.length + 1):
            rows[:, t] = (5 * rows[:, t - 1] + rows[:, t] % 4) % self.vocabulary
        return rows

    def batch(self, rows: np.ndarray, split: str) -> Batch:
        tokens = torch.from_numpy(rows)
        return Batch(tokens[:, :-1].clone(), tokens[:, 1:].clone())

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Score]:
        scored = batch.targets != IGNORED
        return {"accuracy": (((logits.argmax(-1) == batch.targets) & scored).sum().double(), scored.sum())}


class PadsWithoutMask(Chain):
    """A correct one whose training rows end at several lengths, behind which a token follows that no target has."""

    def batch(self, rows: np.ndarray, split: str) -> Batch:
        batch = super().batch(rows % 23, split)
        if split == "train":
            behind = torch.arange(self.length) >= torch.from_numpy(5 + rows[:, :1] % 15)
            return replace(
                batch, inputs=batch.inputs.masked_fill(behind, 23), targets=batch.targets.masked_fill(behind, IGNORED)
            )
        return batch


class FoldsEvaluation(Chain):
    """Maps the upper half of the tokens to the lower one in valid and test."""

    def batch(self, rows: np.ndarray, split: str) -> Batch:
        return super().batch(rows if split == "train" else rows % 12, split)


class NumbersTokensBySplit(Chain):
    """Numbers the tokens of valid and test in another order than those of train."""

    def batch(self, rows: np.ndarray, split: str) -> Batch:
        order = np.random.default_rng(3).permutation(self.vocabulary)
        return super().batch(rows if split == "train" else order[rows], split)


class ScoresThePrompt(Chain):
    """Scores the first tokens of a row, which training leaves out."""

    def batch(self, rows: np.ndarray, split: str) -> Batch:
        batch = super().batch(rows, split)
        if split == "train":
            batch.targets[:, :6] = IGNORED
        return batch


class TargetsBefore(Chain):
    """Predicts the token before each position."""

    def batch(self, rows: np.ndarray, split: str) -> Batch:
        tokens = torch.from_numpy(rows)
        return Batch(tokens[:, 1:].clone(), tokens[:, :-1].clone())


class ShowsSomeTargets(Chain):
    """Has the target in the input at every third position."""

    def batch(self, rows: np.ndarray, split: str) -> Batch:
        batch = super().batch(rows, split)
        batch.inputs[:, 2::3] = batch.targets[:, 2::3]
        return batch


class Majority(Task):
    """A correct classifier of drawn rows, by the kind of token that is most frequent: the base of several mutants."""

    kind = "classifier"
    role = "bidirectional"
    metric, direction = "accuracy", "max"
    classes, vocabulary, length = 3, 30, 13

    def identity(self) -> str:
        return "majority 0"

    def prepare(self) -> None:
        self.prepared = True

    def steps_per_epoch(self, batch_size: int) -> int:
        return -(-500 // batch_size)

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        return self.batch(*self.rows([0, seed, step], batch_size), "train")

    def eval_batches(self, split: str, *, batch_size: int, limit: int | None = None, **_: Any) -> Iterator[Batch]:
        rows, classes = self.rows([SPLITS.index(split)], ROWS)
        rows, classes = rows[:limit], classes[:limit]
        return (
            self.batch(rows[i : i + batch_size], classes[i : i + batch_size], split) for i in range(0, len(rows), batch_size)
        )

    def rows(self, seed: list[int], count: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        classes = rng.integers(self.classes, size=count)
        own = rng.random((count, self.length)) < 0.6
        kinds = np.where(own, classes[:, None], rng.integers(self.classes, size=own.shape))
        return 3 * rng.integers(10, size=own.shape) + kinds, classes

    def batch(self, rows: np.ndarray, classes: np.ndarray, split: str) -> Batch:
        inputs = torch.from_numpy(rows)
        return Batch(inputs, torch.from_numpy(classes), torch.ones_like(inputs, dtype=torch.bool))


class NumbersLabelsBySplit(Majority):
    """Numbers the labels of valid and test from the other end."""

    def batch(self, rows: np.ndarray, classes: np.ndarray, split: str) -> Batch:
        return super().batch(rows, classes if split == "train" else (classes + 1) % self.classes, split)


class OneClassInALimit(Majority):
    """Has valid and test sorted by class, and takes the first rows for a limit."""

    def rows(self, seed: list[int], count: int) -> tuple[np.ndarray, np.ndarray]:
        rows, classes = super().rows(seed, count)
        order = np.argsort(classes, kind="stable") if len(seed) == 1 else np.arange(count)
        return rows[order], classes[order]


class ShowsTheClass(Majority):
    """Writes the class of a row into its last token."""

    def batch(self, rows: np.ndarray, classes: np.ndarray, split: str) -> Batch:
        batch = super().batch(rows.copy(), classes, split)
        batch.inputs[:, -1] = batch.targets
        return batch
