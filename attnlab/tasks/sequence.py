"""Language models over one sequence: the common base of the tasks over bytes and of ``tokens``.

A sequence is one array of tokens, or a text that is encoded as tokens, cut into ``train``, ``valid`` and ``test`` in that
order. An evaluation predicts every token of a split but its first exactly once. With a limit, it reads stretches of the split,
spread evenly over it, and predicts every token of a stretch but its first; a memory is empty at
the start of each.

Evaluation protocols:

- ``segment``: disjoint segments of ``length``. Each row of a batch reads consecutive segments, so that a memory can be carried
  from batch to batch; ``evaluate`` then decides the number of rows.
- ``sliding``: windows of ``length`` that advance by ``stride``. Only the last ``stride`` predictions of a
  window count (all of the first window of a stretch), so every token but the first ``length`` is predicted
  from at least ``length - stride`` tokens before it.

Bits per byte are the bits of all predicted tokens over the bytes of exactly these tokens, under every limit and protocol.

**Stretches.** The first bytes of a split may be one odd document: of a text made of files, the first 20 kB differed from the
whole by 0.09 bits per byte. Many short stretches represent the split best, and few long ones leave a model its context: each
stretch begins without one (a memory is empty, a sliding window short). The choice depends on the size of the split and on the
limit alone, not on the length of a row, the protocol or the memory, so that all cells of a study and all ``evaluate.lengths``
are tested on the same tokens.

A limit of up to 2,047 tokens is one stretch at the beginning; up to 65,536 tokens there are at most ``FEW`` stretches of at
least ``SHORT`` tokens, then at most ``MANY`` of about ``LONG`` tokens or more. With a stretch of ``LONG`` tokens, a memory of
up to 512 tokens is complete for at least 15/16 of it.

A text of subwords has the stretches of its bytes (``attnlab.tasks.bytes``), as nearly as its tokens allow, so that cells with
different vocabularies are tested on the same text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from attnlab._util.rng import derive_seed
from attnlab.errors import UserError, nearest
from attnlab.tasks import IGNORED, SPLITS, Batch, Task, known_split, whole_number
from attnlab.tasks.base import each_nats

if TYPE_CHECKING:
    from attnlab._util.metrics import Score
    from attnlab.config.run import RunConfig

SAMPLINGS = ("random", "contiguous")
FEW, SHORT = 8, 1_024
MANY, LONG = 64, 8_192
MULTIPLE = 256  # of tokens that a stretch predicts: rows of a power of two up to this length are then all full


class SequenceTask(Task):
    """Predict the next token. A subclass defines the sequence with ``cuts``, ``read`` and ``identity``.

    Args:
        length: tokens of a row.
        sampling: how training rows are drawn: at ``random`` positions, or ``contiguous``. Contiguous rows each read a part
            of the text in order, as a memory requires, and restart from a shifted position at its end. Random positions
            overlap and leave gaps: an epoch reads as many tokens as ``train`` has, but only 63 % (1 - 1/e) of its tokens,
            and five epochs read 99 %.

    Attributes:
        text_unit: the name of an item of the text, which ``cuts`` and limits count: a token's, or ``byte`` if the text is
            encoded.
        text_per_token: estimated items of the text in a token, which the plan uses; 1 if the text is not encoded.
    """

    kind: Literal["language_model", "classifier"] = "language_model"
    role: Literal["causal", "bidirectional"] = "causal"
    direction: Literal["min", "max"] = "min"
    text_unit = "token"
    text_per_token: float = 1
    valid_sample = 50_000

    def __init__(self, *, length: int, sampling: str) -> None:
        if sampling not in SAMPLINGS:
            hint = nearest(str(sampling), SAMPLINGS)
            raise UserError(f"sampling: expected {' or '.join(SAMPLINGS)}, got {sampling!r}{hint}")
        self.length = whole_number(length, name="length")
        self.sampling = sampling
        self._text: np.ndarray | None = None

    def cuts(self) -> tuple[int, int, int]:
        """Return the ends of ``train``, ``valid`` and ``test`` in the text; callable before ``prepare``."""
        raise NotImplementedError

    def read(self) -> np.ndarray:
        """Return the whole text as (n,) of an unsigned integer type, memory-mapped if it is large."""
        raise NotImplementedError

    def prepare(self) -> None:
        self._whole_text()

    def _whole_text(self) -> np.ndarray:
        if self._text is None:
            text = self.read()
            if len(text) != self.cuts()[-1]:
                raise UserError(f"expected a text of {self.cuts()[-1]:,} {self.text_unit}s, found {len(text):,}")
            self._text = text
        return self._text

    def text(self, split: str) -> np.ndarray:
        """Return the text of a split as (n,), without a copy."""
        return self._whole_text()[self._place(split)]

    def split(self, name: str) -> np.ndarray:
        """Return the tokens of a split as (n,), without a copy."""
        return self.text(name)

    def stretches(self, split: str, limit: int | None) -> Stretches:
        """Return the stretches of the tokens of a split that an evaluation reads; ``limit`` counts the text."""
        return stretches(len(self.text(split)), limit)

    def _place(self, split: str) -> slice:
        which = SPLITS.index(known_split(split))
        ends = (0, *self.cuts())
        return slice(ends[which], ends[which + 1])

    def unsupported(self, config: RunConfig) -> str | None:
        evaluate = config.evaluate
        if config.model.mem_len and self.sampling == "random":
            return "memory continues the previous segment: it requires sampling: contiguous"
        try:
            steps = self.steps_per_epoch(config.train.batch_size)
        except UserError as error:
            return error.message
        if config.model.mem_len and steps == 1:  # a pass has as many steps as a row has segments
            rows = (
                f"in a batch of {config.train.batch_size:,} rows each has one segment of {self.length:,} {self.unit}s to itself"
            )
            return f"memory continues the previous segment, but there is none: {rows}"
        for name, limit in evaluate.limits.items():
            if limit == 1:
                return f"evaluate.{name}: one {self.text_unit} leaves nothing to predict, expected at least 2"
        if evaluate.protocol == "sliding" and not (evaluate.stride and 1 <= evaluate.stride <= self.length):
            return f"the sliding protocol needs evaluate.stride from 1 to the length {self.length}"
        return None

    def steps_per_epoch(self, batch_size: int) -> int:
        tokens = int(self.cuts()[0] / self.text_per_token)  # before an encoding, so that the plan needs none
        if self.sampling == "contiguous":
            return self._segments_per_pass(tokens, batch_size)
        return max(1, self._predicted(tokens) // (self.length * batch_size))

    def _predicted(self, tokens: int) -> int:
        """Return the number of predictable ones of so many tokens; raise ``UserError`` if they do not fill one row."""
        if tokens - 1 < self.length:
            least = self.length + 1
            raise UserError(f"the text is too short: train has {self._counted(tokens)}, a row needs {least:,}")
        return tokens - 1

    def _counted(self, tokens: int) -> str:
        return f"{'' if self.text_per_token == 1 else 'about '}{tokens:,} {self.unit}s"

    def _segments_per_pass(self, tokens: int, batch_size: int) -> int:
        part = self._predicted(tokens) // batch_size
        if part < self.length:
            rows = f"{batch_size} rows of {self.length} {self.unit}s each"
            raise UserError(f"the text is too short for {rows}: train has {self._counted(tokens)}")
        return max(1, part // self.length - 1)  # one less than would fit: a pass may begin at any shift

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        train = self.split("train")
        if self.sampling == "random":
            rng = np.random.default_rng(derive_seed(seed, "order", step))
            starts = rng.integers(0, self._predicted(len(train)) - self.length + 1, size=batch_size)
            return _windows(train, starts, self.length, fresh=True)
        steps = self._segments_per_pass(len(train), batch_size)
        turn, segment = divmod(step, steps)
        part = self._predicted(len(train)) // batch_size
        rng = np.random.default_rng(derive_seed(seed, "order", turn))
        shifts = rng.integers(0, part - steps * self.length + 1, size=batch_size)
        starts = np.arange(batch_size) * part + shifts + segment * self.length
        return _windows(train, starts, self.length, fresh=segment == 0)

    def eval_batches(
        self,
        split: str,
        *,
        batch_size: int,
        limit: int | None = None,
        protocol: str = "segment",
        stride: int | None = None,
    ) -> Iterator[Batch]:
        """Return the batches of a split, or of stretches of it with ``limit`` tokens, under one of the protocols above."""
        size = len(self.text(split))
        size = min(size, limit or size)
        parts = self.stretches(split, limit) if size >= 2 else None
        if parts is None or parts.predicted < 1:
            raise UserError(f"the {split} split has {size} {self.text_unit}s: there is nothing to predict")
        tokens = self.split(split)
        if protocol == "segment":
            return _segments(tokens, parts, self.length, batch_size)
        if protocol != "sliding":
            raise UserError(f"unknown protocol {protocol!r}: expected segment or sliding")
        stride = whole_number(stride, name="stride")
        if stride > self.length:
            raise UserError(f"stride: expected at most the length {self.length}, got {stride}")
        return _sliding(tokens, parts, self.length, batch_size, stride)

    def eval_tokens(self, split: str, *, limit: int | None, protocol: str, stride: int | None) -> int | None:
        place = self._place(split)
        parts = stretches(place.stop - place.start, limit)
        predicted = int(parts.predicted / self.text_per_token)
        step = self.length if protocol == "segment" else stride or self.length
        return len(parts.starts) * self.length * _window_count(predicted, self.length, step)

    def split_size(self, split: str) -> int | None:
        place = self._place(split)
        return place.stop - place.start

    def counted(self, split: str, limit: int | None) -> list[np.ndarray]:
        """Return the stretches of the text of a split that an evaluation with ``limit`` reads."""
        text = self.text(split)
        return stretches(len(text), limit).read(text)

    def target_bytes(self, targets: Tensor) -> Tensor | None:
        """Return the number of bytes of each target (b, t), 0 when it is ``IGNORED``; None when it is unknown.

        By default, each token is one byte.
        """
        return targets != IGNORED

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Score]:
        """Return bits per byte if the bytes of the tokens are known, and bits per token unless a token is a byte."""
        bits, tokens = super().score(logits, batch)["bits_per_byte"]  # which counts tokens
        scores: dict[str, Score] = {} if self.unit == "byte" else {"bits_per_token": (bits, tokens)}
        if (counts := self.target_bytes(batch.targets)) is not None:
            scores["bits_per_byte"] = (bits, counts.sum())
        return scores

    def item_scores(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the primary metric of each row as bits (b,) and tokens or bytes (b,)."""
        if type(self).score is not SequenceTask.score:
            return super().item_scores(logits, batch)  # of a task with a score of its own
        nats = each_nats(logits, batch.targets)
        counts = self.target_bytes(batch.targets) if self.metric == "bits_per_byte" else None
        return nats.double().sum(1) / math.log(2), (batch.targets != IGNORED if counts is None else counts).sum(1)


def count_bytes(token_bytes: Tensor, targets: Tensor) -> Tensor:
    """Return (b, t) int64: the bytes of each target, 0 when it is ``IGNORED``.

    Args:
        token_bytes: (vocabulary,) int64, the bytes of each token.
        targets: (b, t) int64.
    """
    kept = targets != IGNORED
    return token_bytes[targets.where(kept, 0)] * kept


def _windows(
    text: np.ndarray,
    starts: np.ndarray,
    length: int,
    *,
    fresh: bool,
    ends: np.ndarray | None = None,
    items: np.ndarray | None = None,
) -> Batch:
    """Return rows of ``length`` tokens from ``starts``, padded with zeros without targets beyond their ``ends``.

    Args:
        text: (n,).
        starts: (b,) the first token of each row.
        length: tokens of a row.
        fresh: of the batch.
        ends: (b,) the token after the last one that a row may read; None: the end of the text.
        items: (b,) of the batch.
    """
    places = starts[:, None] + np.arange(length + 1)  # (b, length + 1): a row and the token after it
    rows = torch.from_numpy(text[np.minimum(places, len(text) - 1)].astype(np.int64))
    outside = torch.from_numpy(places >= (len(text) if ends is None else ends[:, None]))
    inputs, targets = rows[:, :-1].contiguous(), rows[:, 1:].clone()  # slices of a single row would share memory
    if outside.any():
        inputs, targets = inputs.masked_fill(outside[:, :-1], 0), targets.masked_fill(outside[:, 1:], IGNORED)
    return Batch(inputs, targets.contiguous(), fresh=fresh, items=None if items is None else torch.from_numpy(items))


def _window_count(predicted: int, length: int, step: int) -> int:
    """Return the number of windows, each ``step`` after the last, that predict so many tokens."""
    return 1 + -(-max(0, predicted - length) // step)


def _segments(text: np.ndarray, parts: Stretches, length: int, batch_size: int) -> Iterator[Batch]:
    """Yield disjoint segments; a row reads a run of consecutive ones, and the rows of a pass end within one batch.

    A batch has rows for as many stretches as fit; a single stretch is divided among them.
    """
    count = _window_count(parts.predicted, length, length)  # segments of a stretch
    run = -(-count // min(max(1, batch_size // len(parts.starts)), count))
    runs = np.arange(-(-count // run)) * run * length  # the last run of a stretch may end before the others
    starts, ends = (parts.starts[:, None] + runs).ravel(), np.repeat(parts.ends, len(runs))
    stretch, number = np.divmod(np.arange(len(starts)), len(runs))
    items = stretch * len(runs) * run + number * run  # in the order of the text
    for begin in range(0, len(starts), batch_size):
        rows = slice(begin, begin + batch_size)
        for step in range(run):
            yield _windows(
                text, starts[rows] + step * length, length, fresh=step == 0, ends=ends[rows], items=items[rows] + step
            )


def _sliding(text: np.ndarray, parts: Stretches, length: int, batch_size: int, stride: int) -> Iterator[Batch]:
    """Yield windows that overlap by ``length - stride``; tokens that an earlier window has counted are ignored."""
    count = _window_count(parts.predicted, length, stride)  # windows of a stretch
    for begin in range(0, count * len(parts.starts), batch_size):
        stretch, number = np.divmod(np.arange(begin, min(begin + batch_size, count * len(parts.starts))), count)
        starts, ends = parts.starts[stretch] + number * stride, parts.ends[stretch]
        batch = _windows(text, starts, length, fresh=True, ends=ends, items=stretch * count + number)
        batch.targets[torch.from_numpy(number > 0), : length - stride] = IGNORED
        yield batch


@dataclass(frozen=True)
class Stretches:
    """Disjoint parts of a text, in order.

    Attributes:
        starts: (n,) the first token of each stretch. It is the first input and is not predicted.
        ends: (n,) the token after the last one of each stretch.
    """

    starts: np.ndarray
    ends: np.ndarray

    @property
    def predicted(self) -> int:
        """Number of tokens that the longest stretch predicts, those after its first."""
        return int((self.ends - self.starts).max()) - 1

    def read(self, text: np.ndarray) -> list[np.ndarray]:
        """Return the tokens of each stretch, without copies."""
        return [text[start:end] for start, end in zip(self.starts, self.ends, strict=True)]


def stretches(size: int, limit: int | None) -> Stretches:
    """Return the stretches that an evaluation of a split reads.

    Args:
        size: tokens of the split, at least 2.
        limit: the most tokens to read, at least 2; None: all.
    """
    if limit is None or limit >= size:
        return Stretches(np.zeros(1, dtype=np.int64), np.array([size]))
    count = max(1, min(FEW, limit // SHORT), min(MANY, limit // LONG))
    predicted = limit // count - 1
    if count > 1:
        predicted -= predicted % MULTIPLE
    last = size - predicted - 1  # the start of the last stretch, which ends with the split
    starts = np.arange(count) * last // max(1, count - 1)
    return Stretches(starts, starts + predicted + 1)
