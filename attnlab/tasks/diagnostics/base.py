"""The common base of diagnostics: generated language modelling tasks in which the row determines every target.

A diagnostic defines the rows of tokens, and the targets at the positions that are scored. All other positions have no target:
what stands there is random, and a loss on it would only add noise. Rows are drawn afresh for every step, so that nothing can be
memorized.

To add a diagnostic, subclass ``Diagnostic``, define ``draw``, ``solve`` and ``chance``, and register the class as any task. Its
constructor refuses options that leave no such row, with the arithmetic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from attnlab._util.rng import derive_seed
from attnlab.errors import UserError
from attnlab.tasks import IGNORED, SPLITS, Batch, Task, known_split
from attnlab.tasks.base import each_nats

if TYPE_CHECKING:
    from attnlab._util.metrics import Score
    from attnlab.config.run import RunConfig
    from attnlab.tasks.reference_scores import Reference


ROWS = 2_000  # in each of valid and test, and per training epoch
MOST_DRAWS = 100  # without a row of the split
SHARES = {"train": 14, "valid": 1, "test": 1}  # sixteenths of all rows that belong to each split


class Diagnostic(Task):
    """Predict the targets of a generated row. A subclass defines the rows with ``draw``, ``solve`` and ``chance``.

    A row belongs to one split, which a hash of its tokens determines: no row of ``valid`` or ``test`` can occur in training.

    The metric is the share of targets predicted correctly; ``exact`` is the share of rows without an error. A subclass may
    score fewer targets in evaluations than in training (``evaluated_targets``).

    Attributes:
        paper: the publication that defines the task.
        generator: the version of ``draw``, part of the identity of the data; increase it when the rows change.
        levels: options of increasing difficulty, such as ``({"pairs": 4}, {"pairs": 8})``, from an easy level to one at which
            some variants fail.
        chance_is_estimated: ``chance`` counts random rows; False: it is computed.
        steps: number of training steps, with batches of 64 rows, that suffice for a variant that can solve the easiest level.
            ``attnlab profile`` trains your own diagnostic for at most so many steps, with batches of 32 rows.
    """

    kind = "language_model"
    role = "causal"
    metric, direction = "accuracy", "max"
    other_metrics = MappingProxyType({"exact": "max", "loss": "min"})
    estimand = "solve_rate"
    threshold = 0.9
    paper: ClassVar[str] = ""
    generator: ClassVar[int] = 1
    levels: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    chance_is_estimated: ClassVar[bool] = False
    steps: ClassVar[int] = 500

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the inputs and targets of ``count`` random rows.

        Returns:
            Two arrays (count, length) of token ids. A target is the token that the model predicts at that position from
            the inputs up to and including it; ``IGNORED`` where none is scored.
        """
        raise NotImplementedError

    def solve(self, inputs: Sequence[int]) -> list[int]:
        """Return the targets of one row, computed from its inputs in plain Python: the definition of the task.

        Returns:
            As many numbers as the row has inputs; those at positions that are not scored are arbitrary.
        """
        raise NotImplementedError

    def chance(self) -> float:
        """Return the best accuracy of a model that does not have the tested ability, for example a guess among all values."""
        raise NotImplementedError

    def evaluated_targets(self, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the targets that ``valid`` and ``test`` score: by default all. Rows without any are not evaluated.

        In training, easy targets, for example those early in a row, help a model to learn the hard ones. In an evaluation, they
        would raise the mean of a model that fails at the hard ones.

        Args:
            inputs, targets: as ``draw`` returns them.

        Returns:
            The targets, with ``IGNORED`` where nothing is scored.
        """
        return targets

    def identity(self) -> str:
        """Return the generator's version with a digest of drawn rows, because another version of numpy may draw other ones.

        The rows are generated with the default options, so that the identity is the same at each of ``evaluate.lengths``.
        """
        inputs, targets = type(self)().draw(np.random.default_rng(0), 16)
        digest = hashlib.sha256(np.stack([inputs, targets]).astype(np.int64).tobytes()).hexdigest()[:16]
        return f"{type(self).__name__} generator {self.generator} sha256:{digest}"

    def prepare(self) -> None:
        """Do nothing: there is nothing to download."""

    def unsupported(self, config: RunConfig) -> str | None:
        try:
            for split in SPLITS:
                self.rows(split, 1)
        except UserError as error:
            return error.message
        return None

    def steps_per_epoch(self, batch_size: int) -> int:
        return max(1, ROWS // batch_size)

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        return _batch(*self.rows("train", batch_size, seed=derive_seed(seed, "diagnostic", step)))

    def eval_batches(
        self, split: str, *, batch_size: int, limit: int | None = None, protocol: str = "segment", stride: int | None = None
    ) -> Iterator[Batch]:
        inputs, targets = (rows[:limit] for rows in self._evaluation_rows(split))
        for i in range(0, len(inputs), batch_size):
            yield _batch(inputs[i : i + batch_size], targets[i : i + batch_size])

    def eval_tokens(self, split: str, *, limit: int | None, protocol: str, stride: int | None) -> int | None:
        return min(ROWS, limit or ROWS) * self.length

    def split_size(self, split: str) -> int | None:
        return None if split == "train" else ROWS

    def rows(self, split: str, count: int, *, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the inputs and targets of ``count`` rows of a split, as ``draw`` does.

        Args:
            split: ``train``, ``valid`` or ``test``.
            count: the number of rows.
            seed: determines the rows; None: the rows of an evaluation.
        """
        rng = np.random.default_rng([SPLITS.index(known_split(split)), 0 if seed is None else seed])
        kept: list[tuple[np.ndarray, np.ndarray]] = []
        while (missing := count - sum(len(inputs) for inputs, _ in kept)) > 0:
            inputs, targets = self.draw(rng, 8 + missing * 18 // SHARES[split])
            own = _splits(inputs) == SPLITS.index(split)
            if split != "train":
                targets = self.evaluated_targets(inputs, targets)
                own &= (targets != IGNORED).any(axis=1)
            kept.append((inputs[own][:missing], targets[own][:missing]))
            if len(kept) == MOST_DRAWS and not any(len(some) for some, _ in kept):
                raise UserError(
                    f"expected rows of {split}, got none in {MOST_DRAWS} draws: the options allow too few distinct rows"
                )
        inputs, targets = zip(*kept, strict=True)
        return np.concatenate(inputs), np.concatenate(targets)

    def _evaluation_rows(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of ``valid`` or ``test``, which do not depend on the run's seed: all runs are tested on the same."""
        if split not in self._drawn:
            self._drawn[split] = self.rows(split, ROWS)
        return self._drawn[split]

    @cached_property
    def _drawn(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        return {}

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(str(token) for token in ids)

    def vocabulary_identity(self) -> str:
        return f"{type(self).__name__} {self.vocabulary}"

    def reference_scores(self) -> dict[str, Reference]:
        from attnlab.tasks.reference_scores import Reference

        def solution(limit: int | None) -> float:
            inputs, targets = (rows[:limit] for rows in self._evaluation_rows("test"))
            solved = np.array([self.solve(row) for row in inputs.tolist()])
            return float((solved == targets)[targets != IGNORED].mean())

        guess = f"a guess without the tested ability{', estimated' if self.chance_is_estimated else ''}"
        return {
            "solution": Reference("the definition of the task in plain Python", solution),
            "chance": Reference(guess, lambda limit: self.chance()),
        }

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Score]:
        logits = self.target_logits(logits)
        scored = batch.targets != IGNORED
        correct = (logits.argmax(-1) == batch.targets) & scored
        exact = (correct == scored).all(1)
        return {
            "accuracy": (correct.sum().double(), scored.sum()),
            "exact": (exact.sum().double(), len(exact)),
            "loss": (each_nats(logits, batch.targets).double().sum(), scored.sum()),
        }

    def item_scores(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        scored = batch.targets != IGNORED
        return ((self.target_logits(logits).argmax(-1) == batch.targets) & scored).sum(1).double(), scored.sum(1)


def level_label(level: Mapping[str, Any]) -> str:
    """Return the options of a level as text: "pairs 8, length 64"."""
    return ", ".join(f"{option} {value}" for option, value in level.items()) or "default size"


def last_quarter(targets: np.ndarray) -> np.ndarray:
    """Return the targets (count, length) with ``IGNORED`` in all but the last quarter of each row.

    A model that is tested at more than 4/3 of its trained length is then scored at positions beyond that length alone.
    """
    length = targets.shape[1]
    return np.where(np.arange(length) >= length - -(-length // 4), targets, IGNORED)


def _batch(inputs: np.ndarray, targets: np.ndarray) -> Batch:
    return Batch(torch.from_numpy(inputs.astype(np.int64)), torch.from_numpy(targets.astype(np.int64)), fresh=True)


def _splits(inputs: np.ndarray) -> np.ndarray:
    """Return the index of the split of each row (count, length): a function of its tokens alone."""
    value = np.zeros(len(inputs), dtype=np.uint64)
    for column in inputs.astype(np.uint64).T:  # FNV-1a (Fowler, Noll and Vo), over tokens instead of bytes
        value = (value ^ (column + np.uint64(1))) * np.uint64(0x100000001B3)
    value ^= value >> np.uint64(32)
    return np.repeat(np.arange(len(SPLITS)), list(SHARES.values()))[(value * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(60))]


def distinct(rng: np.random.Generator, count: int, below: int, size: int) -> np.ndarray:
    """Return (count, size) numbers below ``below`` in random order, distinct within each row.

    This is Floyd's algorithm (Bentley and Floyd 1987); its cost does not depend on ``below``.
    """
    drawn = np.empty((count, size), dtype=np.int64)
    for i, last in enumerate(range(below - size, below)):
        number = rng.integers(last + 1, size=count)
        is_drawn = (drawn[:, :i] == number[:, None]).any(axis=1)
        drawn[:, i] = np.where(is_drawn, last, number)
    return rng.permuted(drawn, axis=1)


def permutations(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    """Return (count, size) numbers: in each row, a random order of those below ``size``."""
    return np.argsort(rng.random((count, size)), axis=1)


@cache
def commonest_share(size: int, symbols: int) -> float:
    """Return the expected share of the most frequent of ``symbols`` symbols among ``size`` uniform draws.

    This is the accuracy of a model that knows the symbols of a row but not their order. It is exact: counts of symbols are
    independent Poisson variables given their sum, and E[max] is the sum of P(max > m) over m.
    """
    rate = size / symbols
    poisson = np.exp(-rate) * np.cumprod(np.concatenate([[1.0], rate / np.arange(1, size + 1)]))
    total = _power(poisson, symbols)[size]
    above = [1 - _power(np.where(np.arange(size + 1) <= most, poisson, 0), symbols)[size] / total for most in range(size)]
    return float(sum(above)) / size


def _power(series: np.ndarray, exponent: int) -> np.ndarray:
    """Return the coefficients of a power of a power series, up to the degree of ``series``."""
    result = np.zeros_like(series)
    result[0] = 1
    while exponent:
        if exponent % 2:
            result = np.convolve(result, series)[: len(series)]
        series = np.convolve(series, series)[: len(series)]
        exponent //= 2
    return result
