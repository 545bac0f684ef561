"""Tasks with one mistake each, which the contract of tasks must catch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from attnlab.tasks import IGNORED, SPLITS, Batch, Task
from attnlab.tasks.bytes import ByteTask
from attnlab.tasks.masking import MaskedOutput, mask_tokens, predicted_tokens
from attnlab.tasks.sequence import SAMPLINGS
from tests.mutants import diagnostics, splits

if TYPE_CHECKING:
    from attnlab._util.metrics import Score


class Letters(ByteTask):
    """A correct language model over drawn bytes: the base of several mutants."""

    def __init__(self, *, length: int = 24) -> None:
        super().__init__(length=length, sampling=SAMPLINGS[0])

    def identity(self) -> str:
        return "letters 0"

    def cuts(self) -> tuple[int, int, int]:
        return 60_000, 80_000, 100_000

    def read(self) -> np.ndarray:
        return np.random.default_rng(0).integers(97, 123, size=100_000, dtype=np.uint8)


class Subwords(Letters):
    """A correct language model over subwords, of which some end within a character."""

    def __init__(self, *, length: int = 24) -> None:
        ByteTask.__init__(self, length=length, sampling=SAMPLINGS[0], tokens="bpe", vocabulary=280)

    def identity(self) -> str:
        return f"characters 0{self.tokens_identity()}"

    def read(self) -> np.ndarray:
        characters = np.array([list(chr(code).encode()) for code in range(0xC0, 0x100)], dtype=np.uint8)
        return characters[np.random.default_rng(0).integers(0, len(characters), size=50_000)].ravel()


class Sums(Task):
    """A correct classifier of drawn rows of unequal lengths: the base of several mutants."""

    kind = "classifier"
    role = "bidirectional"
    metric, direction = "accuracy", "max"
    classes, vocabulary, length = 3, 30, 13

    def identity(self) -> str:
        return "sums 0"

    def prepare(self) -> None:
        self.prepared = True

    def steps_per_epoch(self, batch_size: int) -> int:
        return -(-500 // batch_size)

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        return self.batch(self.rows([0, seed, step], batch_size))

    def eval_batches(self, split: str, *, batch_size: int, limit: int | None = None, **_: Any) -> Iterator[Batch]:
        rows = self.rows([SPLITS.index(split)], 200)[:limit]
        return (self.batch(rows[i : i + batch_size]) for i in range(0, len(rows), batch_size))

    def eval_tokens(self, split: str, *, limit: int | None, protocol: str, stride: int | None) -> int | None:
        return self.length * min(200, limit or 200)

    def rows(self, seed: list[int], count: int) -> np.ndarray:
        generator = np.random.default_rng(seed)
        rows = generator.integers(1, self.vocabulary, size=(count, self.length))
        rows[np.arange(self.length) >= generator.integers(3, self.length + 1, size=(count, 1))] = 0
        return rows

    def batch(self, rows: np.ndarray) -> Batch:
        inputs = torch.from_numpy(rows.astype(np.int64))
        return Batch(inputs, inputs.sum(1) % self.classes, inputs > 0)


class Masked(Task):
    """A correct masked language model of drawn tokens: the base of several mutants."""

    kind = "masked_language_model"
    role = "bidirectional"
    metric, direction = "bits_per_token", "min"
    vocabulary, length = 40, 20

    def identity(self) -> str:
        return "masked 0"

    def prepare(self) -> None:
        self.prepared = True

    def steps_per_epoch(self, batch_size: int) -> int:
        return -(-500 // batch_size)

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        return self.batch([0, seed, step], batch_size)

    def eval_batches(self, split: str, *, batch_size: int, limit: int | None = None, **_: Any) -> Iterator[Batch]:
        whole = self.batch([SPLITS.index(split)], 600).split(600)[:limit]
        for i in range(0, len(whole), batch_size):
            rows = whole[i : i + batch_size]
            inputs, targets = torch.cat([row.inputs for row in rows]), torch.cat([row.targets for row in rows])
            yield Batch(inputs, targets, positions=torch.cat([row.positions for row in rows if row.positions is not None]))

    def batch(self, seed: list[int], count: int) -> Batch:
        rng = np.random.default_rng(seed)
        tokens = rng.integers(2, self.vocabulary, size=(count, self.length))
        tokens[:, 0] = 1
        inputs, targets, positions = mask_tokens(tokens, tokens > 1, rng=rng, mask=0, first=2, vocabulary=self.vocabulary)
        return Batch(inputs, targets, positions=positions)

    def loss(self, logits: MaskedOutput, batch: Batch) -> Tensor:
        return super().loss(logits.tokens, replace(batch, targets=predicted_tokens(batch)))

    def score(self, logits: MaskedOutput, batch: Batch) -> dict[str, Score]:
        targets = predicted_tokens(batch).flatten()
        nats = cross_entropy(logits.tokens.float().flatten(0, -2), targets, ignore_index=IGNORED, reduction="none")
        return {"bits_per_token": (nats.double().sum() / np.log(2), (targets != IGNORED).sum())}


class KeepsHalf(Masked):
    """Keeps half of the predicted tokens."""

    def batch(self, seed: list[int], count: int) -> Batch:
        batch = super().batch(seed, count)
        even = torch.arange(self.length) % 2 == 0
        return replace(batch, inputs=torch.where((batch.targets != IGNORED) & even, batch.targets, batch.inputs))


class ShiftsReplacements(Masked):
    """Replaces a predicted token by the next one in the vocabulary in place of a random one."""

    def batch(self, seed: list[int], count: int) -> Batch:
        batch = super().batch(seed, count)
        random = (batch.targets != IGNORED) & (batch.inputs != 0) & (batch.inputs != batch.targets)
        following = (batch.targets + 1).clamp(max=self.vocabulary - 1)
        return replace(batch, inputs=torch.where(random, following, batch.inputs))


class ShowsHidden(Masked):
    """Writes the predicted token of a row also at its end."""

    def batch(self, seed: list[int], count: int) -> Batch:
        batch = super().batch(seed, count)
        tokens = torch.where(batch.targets == IGNORED, batch.inputs, batch.targets)
        hidden = tokens[:, 3].clone()
        tokens[:, 3], tokens[:, -1] = 0, hidden
        targets = torch.full_like(tokens, IGNORED)
        targets[:, 3] = hidden
        return replace(batch, inputs=tokens, targets=targets, positions=torch.full((count, 1), 3))


class FloatTargets(Sums):
    """Returns classes as floats."""

    def batch(self, rows: np.ndarray) -> Batch:
        batch = super().batch(rows)
        return replace(batch, targets=batch.targets.float())


class OutOfRange(Letters):
    """Marks some positions with a negative target that is not -100."""

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        batch = super().train_batch(step, seed=seed, batch_size=batch_size)
        batch.targets[0, 0] = -1
        return batch


class NoValidation(Sums):
    """Has no row in ``valid``."""

    def eval_batches(self, split: str, *, batch_size: int, limit: int | None = None, **_: Any) -> Iterator[Batch]:
        return iter(()) if split == "valid" else super().eval_batches(split, batch_size=batch_size, limit=limit)


class CountsCalls(Sums):
    """Draws from a generator that moves with each call."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        return self.batch(self.rows([0, seed, step, int(self.generator.integers(1000))], batch_size))


class DrawsGlobally(Sums):
    """Draws from NumPy's global generator."""

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        return self.batch(self.rows([0, seed, step, np.random.randint(1000)], batch_size))


class SharesMemory(Letters):
    """Returns the same tensors to every caller."""

    def __init__(self, *, length: int = 24) -> None:
        super().__init__(length=length)
        self.cache: dict[tuple[int, int, int], Batch] = {}

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        key = step, seed, batch_size
        if key not in self.cache:
            self.cache[key] = super().train_batch(step, seed=seed, batch_size=batch_size)
        return self.cache[key]


class SeedsGlobally(Sums):
    """Seeds PyTorch's global generator, and draws nothing from it."""

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        torch.manual_seed(step)
        return super().train_batch(step, seed=seed, batch_size=batch_size)


class Shuffles(Sums):
    """Seeds the generator of ``random`` when it is prepared."""

    def prepare(self) -> None:
        random.seed(3)


class IgnoresSeed(Sums):
    """Draws the same rows for every seed."""

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        return super().train_batch(step, seed=0, batch_size=batch_size)


class IgnoresStep(Sums):
    """Draws the same rows in every step."""

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        return super().train_batch(0, seed=seed, batch_size=batch_size)


class NotShifted(Letters):
    """Predicts the token at the position itself."""

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        batch = super().train_batch(step, seed=seed, batch_size=batch_size)
        return replace(batch, targets=batch.inputs.clone())


class ShiftedTwice(Letters):
    """Predicts the token after the next."""

    def eval_batches(self, split: str, *, batch_size: int, **protocol: Any) -> Iterator[Batch]:  # type: ignore[override]
        for batch in super().eval_batches(split, batch_size=batch_size, **protocol):
            yield replace(batch, targets=batch.targets.roll(-1, 1))


class TurnedMask(Sums):
    """Marks padding instead of real tokens."""

    def batch(self, rows: np.ndarray) -> Batch:
        batch = super().batch(rows)
        batch.inputs[:, -1] = 0  # some padding in every row
        return replace(batch, mask=batch.inputs == 0)


class CountsRows(Sums):
    """Knows the length of an epoch only after ``prepare``."""

    def steps_per_epoch(self, batch_size: int) -> int:
        return super().steps_per_epoch(batch_size) if hasattr(self, "prepared") else 1


class DropsLast(Sums):
    """Leaves out the last rows of an evaluation that do not fill a batch."""

    def eval_batches(self, split: str, *, batch_size: int, limit: int | None = None, **_: Any) -> Iterator[Batch]:
        batches = super().eval_batches(split, batch_size=batch_size, limit=limit)
        return (batch for batch in batches if len(batch.inputs) == batch_size)


class IgnoresLimit(Sums):
    """Evaluates all rows, however few are requested."""

    def eval_batches(self, split: str, *, batch_size: int, limit: int | None = None, **_: Any) -> Iterator[Batch]:
        return super().eval_batches(split, batch_size=batch_size)

    def eval_tokens(self, split: str, *, limit: int | None, protocol: str, stride: int | None) -> int | None:
        return None


class EvaluatesAnew(Sums):
    """Evaluates other rows in every pass."""

    passes = 0

    def eval_batches(self, split: str, *, batch_size: int, limit: int | None = None, **_: Any) -> Iterator[Batch]:
        self.passes += 1
        rows = self.rows([SPLITS.index(split), self.passes], 200)[:limit]
        return (self.batch(rows[i : i + batch_size]) for i in range(0, len(rows), batch_size))


class ScoresMeans(Sums):
    """Returns the mean of a batch as its score."""

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Score]:
        return {name: (total / count, 1) for name, (total, count) in super().score(logits, batch).items()}


class WrongDirection(Sums):
    """Says that a lower accuracy is better."""

    direction = "min"


class OtherMetric(Letters):
    """Does not return its metric."""

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Score]:
        return {"bits": super().score(logits, batch)["bits_per_byte"]}


class TrainsTwoAhead(Letters):
    """Has a metric of its own, and predicts the token after the next one in training."""

    metric = "bits"
    direction = "min"

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        batch = super().train_batch(step, seed=seed, batch_size=batch_size)
        return replace(batch, inputs=batch.inputs[:, :-1], targets=batch.targets[:, 1:])

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Score]:
        nats = cross_entropy(logits.float().mT, batch.targets, ignore_index=IGNORED, reduction="sum")
        return {"bits": (nats.double(), (batch.targets != IGNORED).sum())}


class OneClass(Sums):
    """Has one class in training."""

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        batch = super().train_batch(step, seed=seed, batch_size=batch_size)
        return replace(batch, targets=torch.zeros_like(batch.targets))


class Likelihood(Sums):
    """Returns the log-likelihood as its loss, which training would make worse."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return -super().loss(logits, batch)


class CountsIgnored(Letters):
    """Counts positions without a target as targets of token 0."""

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        batch = super().train_batch(step, seed=seed, batch_size=batch_size)
        batch.targets[:, :2] = IGNORED
        return batch

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(logits, replace(batch, targets=batch.targets.clamp(min=0)))


class TestsTrain(Sums):
    """Evaluates ``valid`` on the rows of ``train``."""

    def eval_batches(self, split: str, *, batch_size: int, limit: int | None = None, **_: Any) -> Iterator[Batch]:
        split = "train" if split == "valid" else split
        return super().eval_batches(split, batch_size=batch_size, limit=limit)


class Overlapping(Letters):
    """Has the text of ``test`` inside ``train``, at another offset."""

    def read(self) -> np.ndarray:
        text = super().read().copy()
        text[13 : 13 + 20_000] = text[80_000:]
        return text


class CountsTokens(Letters):
    """Counts all positions as bytes, those without a target, too."""

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Score]:
        bits, _ = super().score(logits, batch)["bits_per_byte"]
        return {"bits_per_byte": (bits, batch.targets.numel())}


class CountsSubwords(Subwords):
    """Counts each subword as one byte."""

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Score]:
        return {"bits_per_byte": super().score(logits, batch)["bits_per_token"]}


class Nats(Letters):
    """Returns nats as bits."""

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Score]:
        bits, count = super().score(logits, batch)["bits_per_byte"]
        return {"bits_per_byte": (bits * np.log(2), count)}


class CountsTwice(Letters):
    """Counts the overlap of sliding windows in each of them."""

    def eval_batches(self, split: str, *, batch_size: int, **protocol: Any) -> Iterator[Batch]:  # type: ignore[override]
        for batch in super().eval_batches(split, batch_size=batch_size, **protocol):
            targets = torch.cat([batch.inputs[:, 1:], batch.targets[:, -1:]], dim=1)
            yield replace(batch, targets=targets) if protocol.get("protocol") == "sliding" else batch


class OverlapsSegments(splits.Chain):
    """Evaluates one text in windows that overlap by half, and scores every token of each."""

    def eval_batches(self, split: str, *, batch_size: int, limit: int | None = None, **_: Any) -> Iterator[Batch]:
        text = self.rows([SPLITS.index(split)], splits.ROWS).ravel()
        starts = range(0, len(text) - self.length - 1, self.length // 2)
        rows = np.stack([text[i : i + self.length + 1] for i in starts])[:limit]
        return (self.batch(rows[i : i + batch_size], split) for i in range(0, len(rows), batch_size))


class NumbersItemsByBatch(Sums):
    """Numbers the rows of each batch from 0."""

    def eval_batches(self, split: str, *, batch_size: int, limit: int | None = None, **_: Any) -> Iterator[Batch]:
        for batch in super().eval_batches(split, batch_size=batch_size, limit=limit):
            yield replace(batch, items=torch.arange(len(batch.inputs)))


class LossOfAll(Letters):
    """Computes the loss of all tokens from the inputs, those without a target, too."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        following = torch.cat([batch.inputs[:, 1:], batch.targets[:, -1:]], dim=1)
        return super().loss(logits, replace(batch, targets=following))


class MeanOfPositions(Letters):
    """Divides the loss by the number of all positions."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return cross_entropy(logits.float().mT, batch.targets, ignore_index=IGNORED, reduction="none").mean()


class LosesLetters(Letters):
    """Decodes without the vowels."""

    def decode(self, ids: Sequence[int]) -> str:
        return super().decode(ids) + "."


class EstimatesBatches(Sums):
    """Estimates the rows, not the tokens, of an evaluation."""

    def eval_tokens(self, split: str, *, limit: int | None, protocol: str, stride: int | None) -> int | None:
        return min(200, limit or 200)


class Reversals(Task):
    """A correct task of an encoder-decoder, whose target is the source in reverse: the base of several mutants."""

    kind = "encoder_decoder"
    role = "causal"
    metric, direction = "exact", "max"
    vocabulary, length = 30, 13
    begin, end = 1, 2

    def identity(self) -> str:
        return "reversals 0"

    def prepare(self) -> None:
        self.prepared = True

    def steps_per_epoch(self, batch_size: int) -> int:
        return -(-500 // batch_size)

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        return self.batch([0, seed, step], np.arange(batch_size))

    def eval_batches(self, split: str, *, batch_size: int, limit: int | None = None, **_: Any) -> Iterator[Batch]:
        rows = np.arange(200)[:limit]
        return (self.batch([SPLITS.index(split)], rows[i : i + batch_size]) for i in range(0, len(rows), batch_size))

    def eval_tokens(self, split: str, *, limit: int | None, protocol: str, stride: int | None) -> int | None:
        return self.length * min(200, limit or 200)

    def batch(self, seed: list[int], rows: np.ndarray) -> Batch:
        generators = [np.random.default_rng([*seed, row]) for row in rows.tolist()]
        sources = [rng.integers(3, self.vocabulary, size=rng.integers(4, self.length)) for rng in generators]
        source = self.padded(sources, 0)
        targets = self.padded([[*tokens[::-1], self.end] for tokens in sources], IGNORED)
        inputs = self.padded([[self.begin, *tokens[::-1]] for tokens in sources], 0)
        return Batch(inputs, targets, targets != IGNORED, source=source, source_mask=source > 0)

    @staticmethod
    def padded(rows: Sequence[Sequence[int] | np.ndarray], fill: int) -> Tensor:
        return torch.nn.utils.rnn.pad_sequence([torch.tensor(np.array(row)) for row in rows], True, fill)

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Score]:
        nats = torch.nn.functional.cross_entropy(logits.mT, batch.targets, ignore_index=IGNORED, reduction="sum")
        return {"loss": (nats.double(), (batch.targets != IGNORED).sum())}

    def generated_scores(
        self, generate: Callable[..., list[list[int]]], split: str, *, batch_size: int, limit: int | None
    ) -> dict[str, float]:
        right: list[bool] = []
        for batch in self.eval_batches(split, batch_size=batch_size, limit=limit):
            wanted = [[token for token in row if token not in (IGNORED, self.end)] for row in batch.targets.tolist()]
            right += [row == other for row, other in zip(generate(batch), wanted, strict=True)]
        return {"exact": sum(right) / len(right)}


class ReadsItsTargets(Reversals):
    """The decoder reads the token that it predicts: teacher forcing without the shift."""

    def batch(self, seed: list[int], rows: np.ndarray) -> Batch:
        batch = super().batch(seed, rows)
        return replace(batch, inputs=torch.where(batch.targets == IGNORED, 0, batch.targets))


class ReadsTooLate(Reversals):
    """The decoder reads the token before the previous one: teacher forcing that is shifted twice."""

    def batch(self, seed: list[int], rows: np.ndarray) -> Batch:
        batch = super().batch(seed, rows)
        late = torch.cat([batch.inputs[:, :1], batch.inputs[:, :-1]], dim=1)
        return replace(batch, inputs=torch.where(batch.targets == IGNORED, 0, late))


class OtherSources(Reversals):
    """Draws the sources of a batch again in each call."""

    def batch(self, seed: list[int], rows: np.ndarray) -> Batch:
        batch = super().batch(seed, rows)
        self.calls = getattr(self, "calls", 0) + 1
        assert batch.source is not None and batch.source_mask is not None
        return replace(batch, source=batch.source.roll(self.calls, dims=0), source_mask=batch.source_mask.roll(self.calls, 0))


class ScoresErrors(Reversals):
    """Counts wrong sequences as right ones."""

    def generated_scores(self, generate: Callable[..., list[list[int]]], split: str, **options: Any) -> dict[str, float]:
        return {"exact": 1 - super().generated_scores(generate, split, **options)["exact"]}


class ScoresNothing(Reversals):
    """Names another score than its metric."""

    def generated_scores(self, generate: Callable[..., list[list[int]]], split: str, **options: Any) -> dict[str, float]:
        return {"similar": super().generated_scores(generate, split, **options)["exact"]}


class SumsTheLoss(Letters):
    """Returns the sum over the targets of a batch, not their mean."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(logits, batch) * (batch.targets != IGNORED).sum()


class TrainsOnTest(Letters):
    """Draws training batches from the test split, and evaluates ``train`` as it is."""

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        test, rng = self.split("test"), np.random.default_rng([seed, step])
        starts = rng.integers(0, len(test) - self.length - 1, size=batch_size)
        rows = torch.from_numpy(np.stack([test[i : i + self.length + 1] for i in starts]).astype(np.int64))
        return Batch(rows[:, :-1], rows[:, 1:], fresh=True)


class SplitsLate(Letters):
    """Trains on the whole text, of which valid and test are 5 % each."""

    def cuts(self) -> tuple[int, int, int]:
        return 90_000, 95_000, 100_000

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        rng = np.random.default_rng([seed, step])
        starts = rng.integers(0, 100_000 - self.length - 1, size=batch_size)
        rows = torch.from_numpy(np.stack([self.read()[i : i + self.length + 1] for i in starts]).astype(np.int64))
        return Batch(rows[:, :-1], rows[:, 1:], fresh=True)

    @cache  # noqa: B019 the text of all instances is the same
    def read(self) -> np.ndarray:
        return super().read()


class SplitsVeryLate(SplitsLate):
    """Trains on the whole text, of which valid and test are half a per cent each."""

    def cuts(self) -> tuple[int, int, int]:
        return 99_000, 99_500, 100_000


class TrainsOnTestRows(Sums):
    """Draws training batches from the rows of the test split."""

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        chosen = np.random.default_rng([seed, step]).integers(0, 200, batch_size)
        return self.batch(self.rows([SPLITS.index("test")], 200)[chosen])


TASK_MUTANTS: dict[str, list[type[Task]]] = {
    "shapes": [FloatTargets, OutOfRange, NoValidation],
    "pure batches": [CountsCalls, DrawsGlobally, SharesMemory, OtherSources],
    "global state": [SeedsGlobally, Shuffles],
    "seeds": [IgnoresSeed, IgnoresStep],
    "targets": [NotShifted, ShiftedTwice, ReadsItsTargets, ReadsTooLate, diagnostics.PredictsItsInput, TrainsTwoAhead]
    + [splits.TargetsBefore, splits.ShowsSomeTargets, splits.ShowsTheClass],
    "padding": [TurnedMask],
    "before preparation": [CountsRows],
    "repeatable evaluation": [ScoresMeans, DropsLast, IgnoresLimit, EvaluatesAnew, NumbersItemsByBatch],
    "chance level": [WrongDirection, OneClass, ScoresErrors, ScoresNothing],
    "loss": [Likelihood, CountsIgnored, SumsTheLoss, LossOfAll, MeanOfPositions],
    "disjoint splits": [TestsTrain, Overlapping, TrainsOnTest, TrainsOnTestRows, SplitsLate, SplitsVeryLate],
    "scored once": [CountsTwice, OverlapsSegments],
    "exact bytes": [CountsTokens, CountsSubwords, Nats],
    "encoding": [LosesLetters],
    "planned tokens": [EstimatesBatches],
    "agreement of splits": [
        splits.FoldsEvaluation,
        splits.ScoresThePrompt,
        splits.NumbersTokensBySplit,
        splits.NumbersLabelsBySplit,
        splits.OneClassInALimit,
    ],
    "hidden tokens": [KeepsHalf, ShiftsReplacements, ShowsHidden],
    "solution": [
        diagnostics.SolvesAnother,
        diagnostics.SolvesTheEnd,
        diagnostics.StopsOneHopEarly,
        diagnostics.ForgetsTheSwaps,
        diagnostics.AnswersInTheOrderOfPairs,
        diagnostics.ReadsTheFirstBit,
        diagnostics.SmallChance,
        diagnostics.ChanceInPercent,
        diagnostics.ShortLevel,
        diagnostics.MisspeltLevel,
        diagnostics.EmptyLevel,
    ],
}
NECESSARY: dict[type[Task], set[str]] = {  # checks that detect the same mistake
    DrawsGlobally: {"global state"},
    DropsLast: {"planned tokens"},
    ShiftedTwice: set(),
    OtherSources: {"repeatable evaluation"},
    OneClass: {"agreement of splits"},
    CountsIgnored: {"agreement of splits"},
}
CORRECT = (Letters, Subwords, Sums, Reversals, Masked, diagnostics.Total, splits.Chain, splits.PadsWithoutMask, splits.Majority)
