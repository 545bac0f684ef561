"""Training and evaluation: the same positions are scored, and tokens and classes mean the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from attnlab.tasks import IGNORED, SPLITS, Batch
from attnlab.testing.checks.result import Check, Failure
from attnlab.testing.task_checks.target import TaskTarget, real_tokens

ROWS = 32  # of a batch
BATCHES = 16  # of training, spread over two epochs, and of each evaluation
FEW = 64  # rows that decide about a position, and rows of a limited evaluation
EXPECTED = 20  # occurrences of a token or class, from which its absence is no chance
ABSENT = 0.1  # largest share of tokens or rows that may be of an absent kind: another domain has other rare words
WEIGHTS = (0.8, 0.15, 0.05)  # of the previous token, of the token alone, and of a uniform guess, in a bigram model
LEARNED = 0.5  # bits by which such a model must beat a uniform guess on train to be of use
BETTER = 0.1  # accuracy by which naive Bayes must beat the commonest class on train to be of use
COMMON = 0.7  # a class of a larger share may be the only one in ``FEW`` rows
ERRORS = 4  # standard errors


@dataclass(frozen=True)
class Rows:
    """Rows of a split.

    Attributes:
        tokens: (n, t), padded with -1.
        targets: (n, t), padded with -1, or classes (n,).
    """

    tokens: np.ndarray
    targets: np.ndarray

    @classmethod
    def of(cls, batches: Sequence[Batch]) -> Rows:
        """Return the rows of batches."""
        width = max(batch.inputs.shape[1] for batch in batches)
        targets = [batch.targets if batch.targets.dim() == 1 else _padded(batch.targets, width) for batch in batches]
        tokens = [_padded(real_tokens(batch), width) for batch in batches]
        return cls(torch.cat(tokens).numpy(), torch.cat(targets).numpy())

    @property
    def known(self) -> np.ndarray:
        """(m,) all tokens."""
        return self.tokens[self.tokens >= 0]

    @property
    def pairs(self) -> np.ndarray:
        """(m, 2) adjacent tokens."""
        pairs = np.stack([self.tokens[:, :-1].ravel(), self.tokens[:, 1:].ravel()], axis=1)
        return pairs[(pairs >= 0).all(1)]

    def half(self, number: int) -> Rows:
        """Return every second row."""
        return Rows(self.tokens[number::2], self.targets[number::2])


def _padded(values: Tensor, width: int) -> Tensor:
    return functional.pad(values, (0, width - values.shape[1]), value=-1)


def agreement(target: TaskTarget) -> str:
    """An evaluation scores positions that training scores, reads the same tokens and classes, and they mean the same."""
    task, epoch = target.task, target.task.steps_per_epoch(ROWS)
    steps = sorted({i * 2 * epoch // BATCHES for i in range(BATCHES)})
    train = Rows.of([target.train(step, seed=i % 2, batch_size=ROWS) for i, step in enumerate(steps)])
    for split in SPLITS[1:]:
        rows = Rows.of(list(islice(target.evaluation(split, rows=ROWS * BATCHES, batch_size=ROWS), BATCHES)))
        if not target.is_language_model:
            _require_same_kinds(train.targets, rows.targets, split, "class", task.classes)
            _require_spread(target, train.targets, split)
            _require_same_labels(train, rows, split, task.classes)
        elif not target.is_masked:
            _require_trained_positions(train, rows, split)
        _require_same_kinds(train.known, rows.known, split, "token", task.vocabulary)
        if target.is_language_model:
            _require_same_tokens(train, rows, split, task.vocabulary)
    return f"{len(train.tokens):,} rows of train agree with the rows of valid and test"


def _require_trained_positions(train: Rows, rows: Rows, split: str) -> None:
    """Raise ``Failure`` when an evaluation scores a position that training leaves out."""
    width = min(train.tokens.shape[1], rows.tokens.shape[1])
    scored = [(part.targets[:, :width] >= 0).sum(0) for part in (train, rows)]
    present = [(part.tokens[:, :width] >= 0).sum(0) for part in (train, rows)]
    left_out = (scored[0] == 0) & (present[0] >= FEW) & (scored[1] * 2 > present[1])
    if left_out.any():
        raise Failure(
            f"{int(left_out.sum())} positions, the first one {int(left_out.argmax())}, have targets in {split} and never in "
            f"{len(train.tokens):,} rows of train",
            f"Set the targets of a prompt to {IGNORED} in every split: a model is not trained to predict them.",
        )


def _require_same_kinds(train: np.ndarray, evaluated: np.ndarray, split: str, kind: str, number: int) -> None:
    """Raise ``Failure`` when tokens or classes that are common on one side are absent on the other."""
    number = max(number, *(int(values.max(initial=-1)) + 1 for values in (train, evaluated)))
    counts = {name: np.bincount(values, minlength=number) for name, values in (("train", train), (split, evaluated))}
    for one, other in (("train", split), (split, "train")):
        shares = counts[one] / counts[one].sum()
        absent = (counts[other] == 0) & (shares * counts[other].sum() >= EXPECTED)
        if shares[absent].sum() > ABSENT:
            raise Failure(
                f"{shares[absent].sum():.0%} of the {'tokens' if kind == 'token' else 'rows'} of {one} are of a {kind} that "
                f"does not occur in {other}, the first one {kind} {int(absent.argmax())}",
                "Map texts and labels to numbers in the same way in every split.",
            )


def _require_same_tokens(train: Rows, rows: Rows, split: str, vocabulary: int) -> None:
    """Raise ``Failure`` when a bigram model of train is of use on train, and worse than a uniform guess on an evaluation."""
    pairs, uniform = train.half(0).pairs, math.log2(vocabulary)
    known, counts = np.unique(pairs[:, 0] * vocabulary + pairs[:, 1], return_counts=True)
    singles = np.bincount(pairs[:, 1], minlength=vocabulary) / max(1, len(pairs))
    before = np.bincount(pairs[:, 0], minlength=vocabulary).clip(min=1)

    def bits(part: Rows) -> float:
        first, second = part.pairs.T
        codes = first * vocabulary + second
        at = np.searchsorted(known, codes).clip(max=max(0, len(known) - 1))
        found = np.where(known[at] == codes, counts[at], 0) / before[first] if len(known) else 0.0
        both, single, guess = WEIGHTS
        return float(-np.log2(both * found + single * singles[second] + guess / vocabulary).mean())

    if not len(pairs) or not len(rows.pairs):
        return
    usual, seen = bits(train.half(1)), bits(rows)
    if usual < uniform - LEARNED and seen > uniform:
        raise Failure(
            f"a bigram model of train needs {usual:.2g} bits for a token of train, and {seen:.2g} for one of {split}, more "
            f"than a uniform guess ({uniform:.2g})",
            "The numbers of tokens must mean the same in every split: build one vocabulary, from train.",
        )


def _require_same_labels(train: Rows, rows: Rows, split: str, classes: int) -> None:
    """Raise ``Failure`` when naive Bayes on the tokens is of use on train, and worse than chance on an evaluation."""
    first, second = train.half(0), train.half(1)
    size = max(part.tokens.max() for part in (train, rows)) + 1
    weights = np.ones((classes, size))
    for label in range(classes):
        tokens = first.tokens[first.targets == label]
        weights[label] += np.bincount(tokens[tokens >= 0], minlength=size)
    weights = np.log(weights / weights.sum(1, keepdims=True))
    prior = np.log(np.bincount(first.targets, minlength=classes) + 1.0)

    def accuracy(part: Rows) -> float:
        padded = np.concatenate([weights, np.zeros((classes, 1))], axis=1)  # token -1 is padding, which adds nothing
        return float(((padded[:, part.tokens].sum(2) + prior[:, None]).argmax(0) == part.targets).mean())

    common = np.bincount(second.targets, minlength=classes).max() / len(second.targets)
    usual, seen = accuracy(second), accuracy(rows)
    if usual > common + BETTER and seen + ERRORS * (0.25 / len(rows.targets)) ** 0.5 < 1 / classes:
        raise Failure(
            f"naive Bayes of train has an accuracy of {usual:.2g} on train, and of {seen:.2g} on {split}, below chance "
            f"({1 / classes:.2g})",
            "The numbers of classes must mean the same in every split: list the labels once.",
        )


def _require_spread(target: TaskTarget, trained: np.ndarray, split: str) -> None:
    """Raise ``Failure`` when a limited evaluation reads one class of several."""
    batches = list(target.evaluation(split, rows=FEW, batch_size=ROWS))
    classes = torch.cat([batch.targets for batch in batches]).unique()
    if len(classes) == 1 and sum(len(batch.inputs) for batch in batches) >= FEW:
        share = float((trained == classes.item()).mean())
        if share < COMMON:
            raise Failure(
                f"all rows of {split} with limit={target.limit(FEW)} have class {classes.item()}, as {share:.0%} of train",
                "A limit takes items that are spread over the split, in an order that does not depend on their class.",
            )


CHECKS = (Check("agreement of splits", agreement),)
