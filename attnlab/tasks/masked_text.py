"""``masked_text``: the pre-training of BERT (Devlin et al. 2019, arXiv:1810.04805, section 3.1 and appendix A).

A row is ``[CLS] A [SEP] B [SEP]``. A and B are passages of a document that meet at the end of a sentence. In half of the rows B
follows A, in the other half B is a passage of another document, which also begins with a sentence.

- **Masked LM**: 15 % of the tokens of A and B are predicted (``attnlab.tasks.masking``).
- **Next-sentence prediction**: from ``[CLS]``, whether B follows A. The loss is the sum of both mean losses.

For ablations there are the paper's "No NSP", in which B always follows A, and its "LTR & No NSP", a language model that
reads the same rows from left to right and predicts every next token.

Departures: A may begin inside a sentence, B may end inside one; masks are drawn again for each batch (dynamic masking, Liu et
al. 2019); all rows have one length, where the paper shortens every tenth; ``[UNK]`` is never chosen. With gradient
accumulation, the next-sentence loss of a micro-batch counts by its share of the predicted tokens, which are nearly as many in
every row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab._util.rng import derive_seed
from attnlab.errors import UserError, nearest
from attnlab.tasks import IGNORED, Batch, Task, known_split, whole_number, wordpiece
from attnlab.tasks.cross_entropy import each_nats
from attnlab.tasks.masking import MaskedOutput, mask_tokens, predicted_tokens
from attnlab.tasks.passages import Pairs, Passages, prepare_passages
from attnlab.tasks.reference_scores.base import Reference

if TYPE_CHECKING:
    from attnlab._util.metrics import Score
    from attnlab.config.run import RunConfig

OBJECTIVES = ("masked", "causal")
SHORTEST = 16  # tokens of a row
EVALUATION_ROWS = 4_096  # of a split that an evaluation without a limit reads
EVALUATION_SEED = 0  # of the rows and the masks of evaluations
IS_NEXT, NOT_NEXT = 0, 1  # labels of next-sentence prediction


class MaskedText(Task):
    """Predict masked tokens of pairs of passages, and whether the second follows the first.

    Rows are drawn at random positions, so an epoch has as many tokens as ``train``, but not all of them. An evaluation reads
    4,096 fixed rows of a split with fixed masks, or as many of them as the limit allows.

    Args:
        corpus: ``enwik8``, its articles without markup, or ``imdb``, its reviews; also decides the WordPiece vocabulary.
        length: tokens of a row with the special tokens.
        vocabulary: number of token ids, including [PAD], [UNK], [CLS], [SEP] and [MASK].
        objective: ``masked``, or ``causal``: predict every next token from the tokens before it.
        next_sentence: predict whether B follows A; null: with the objective ``masked``. If false, B always follows A.
    """

    kind: Literal["language_model", "classifier", "encoder_decoder", "masked_language_model"] = "masked_language_model"
    role: Literal["causal", "bidirectional"] = "bidirectional"
    metric, direction = "bits_per_token", "min"
    segments = 2

    def __init__(
        self,
        *,
        corpus: str = "enwik8",
        length: int = 128,
        vocabulary: int = 8192,
        objective: str = "masked",
        next_sentence: bool | None = None,
    ) -> None:
        if objective not in OBJECTIVES:
            hint = nearest(str(objective), OBJECTIVES)
            raise UserError(f"objective: expected {' or '.join(OBJECTIVES)}, got {objective!r}{hint}")
        if objective == "causal" and next_sentence:
            raise UserError("next_sentence: expected false with the objective causal, because [CLS] sees no passage, got true")
        self.corpus, self.is_causal = corpus, objective == "causal"
        self.length = whole_number(length, name="length", least=SHORTEST)
        self.vocabulary = whole_number(vocabulary, name="vocabulary", least=len(wordpiece.SPECIAL_TOKENS) + 1)
        self.next_sentence = not self.is_causal if next_sentence is None else bool(next_sentence)
        self.classes = 2 if self.next_sentence else 0
        self.role = "causal" if self.is_causal else "bidirectional"
        wordpiece.identity(corpus, vocabulary)  # refuses an unknown corpus
        self._splits: dict[str, Passages] = {}
        self._place: Path | None = None

    def identity(self) -> str:
        return f"masked_text of {self.vocabulary_identity()}"

    def vocabulary_identity(self) -> str:
        return wordpiece.identity(self.corpus, self.vocabulary)

    def prepare(self) -> None:
        if self._place is None:
            self._place = prepare_passages(self.corpus, self.vocabulary)

    def split(self, name: str) -> Passages:
        """Return the documents of a split, memory-mapped."""
        if known_split(name) not in self._splits:
            self.prepare()
            assert self._place is not None
            self._splits[name] = Passages.load(self._place, name)
        return self._splits[name]

    def unsupported(self, config: RunConfig) -> str | None:
        if config.model.mem_len:
            return "memory requires a continuous text: rows are drawn at random"
        if config.evaluate.protocol != "segment":
            return f"the {config.evaluate.protocol} protocol is for language models over one text"
        if config.evaluate.lengths:
            return "evaluate.lengths requires rows that continue each other: rows of another length are other passages"
        return None

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return the batches that have as many tokens as ``train``, which is prepared if it has not been."""
        return -(-len(self.split("train").tokens) // (self.length * batch_size))

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        rows, masks = (np.random.default_rng(derive_seed(seed, stream, step)) for stream in ("rows", "masks"))
        return self._batch("train", batch_size, rows=rows, masks=masks)

    def eval_batches(
        self,
        split: str,
        *,
        batch_size: int,
        limit: int | None = None,
        protocol: str = "segment",
        stride: int | None = None,
    ) -> Iterator[Batch]:
        """Yield the first ``limit`` of the fixed rows of a split, always with the same masks."""
        if protocol != "segment":
            raise UserError(f"rows are drawn at random: there is no protocol {protocol!r}")
        rows, masks = (np.random.default_rng(derive_seed(EVALUATION_SEED, split, name)) for name in ("rows", "masks"))
        whole = self._batch(split, EVALUATION_ROWS, rows=rows, masks=masks)
        count = min(limit or EVALUATION_ROWS, EVALUATION_ROWS)
        for begin in range(0, count, batch_size):
            yield _rows(whole, slice(begin, min(begin + batch_size, count)))

    def eval_tokens(self, split: str, *, limit: int | None, protocol: str, stride: int | None) -> int:
        return min(limit or EVALUATION_ROWS, EVALUATION_ROWS) * self.length

    def _batch(self, split: str, size: int, *, rows: np.random.Generator, masks: np.random.Generator) -> Batch:
        """Draw ``size`` rows of a split: ``rows`` decides the passages, ``masks`` the chosen tokens and their replacements."""
        passages = self.split(split)
        pairs = passages.draw(size, room=self.length - 3, random_half=self.next_sentence, rng=rows)
        tokens, segments, mask = assemble(passages.tokens, pairs, length=self.length)
        real = None if mask.all() else torch.from_numpy(mask)
        labels = torch.from_numpy(np.where(pairs.follows, IS_NEXT, NOT_NEXT)) if self.next_sentence else None
        if self.is_causal:
            inputs = torch.from_numpy(tokens)
            following = F.pad(inputs[:, 1:], (0, 1), value=wordpiece.PAD)
            targets, positions = following.masked_fill(following == wordpiece.PAD, IGNORED), None
        else:
            maskable = tokens >= len(wordpiece.SPECIAL_TOKENS)
            inputs, targets, positions = mask_tokens(
                tokens,
                maskable,
                rng=masks,
                mask=wordpiece.MASK,
                first=len(wordpiece.SPECIAL_TOKENS),
                vocabulary=self.vocabulary,
            )
        return Batch(
            inputs,
            targets,
            real,
            segments=torch.from_numpy(segments),
            labels=labels,
            positions=positions,
            items=torch.arange(size),
        )

    def loss(self, logits: MaskedOutput, batch: Batch) -> Tensor:
        """Return the mean loss of the predicted tokens in nats, plus that of the next-sentence predictions."""
        loss = super().loss(logits.tokens, replace(batch, targets=predicted_tokens(batch)))
        if logits.labels is None:
            return loss
        assert batch.labels is not None
        return loss + F.cross_entropy(logits.labels.float(), batch.labels)

    def score(self, logits: MaskedOutput, batch: Batch) -> dict[str, Score]:
        """Return bits per predicted token, the accuracy of the predicted tokens, and that of the next-sentence predictions."""
        bits, counts = self.item_scores(logits, batch)
        correct = (logits.tokens.argmax(-1) == predicted_tokens(batch)).sum().double()
        accuracy = "token_accuracy" if self.is_causal else "masked_accuracy"
        scores: dict[str, Score] = {"bits_per_token": (bits.sum(), counts.sum()), accuracy: (correct, counts.sum())}
        if logits.labels is not None and batch.labels is not None:
            right = (logits.labels.argmax(-1) == batch.labels).sum().double()
            scores["next_sentence_accuracy"] = (right, len(batch.labels))
        return scores

    def item_scores(self, logits: MaskedOutput, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the bits (b,) and the predicted tokens (b,) of each row."""
        targets = predicted_tokens(batch)
        nats = each_nats(logits.tokens, targets)
        return nats.double().sum(1) / math.log(2), (targets != IGNORED).sum(1)

    def reference_scores(self) -> dict[str, Reference]:
        """Return the bits per token of the frequencies of tokens in ``train``."""

        def unigram(limit: int | None) -> float:
            counts = np.bincount(self.split("train").tokens, minlength=self.vocabulary) + 1.0
            if self.is_causal:
                counts[wordpiece.SEP] += 2 * len(self.split("train").tokens) / (self.length - 3)
            bits = torch.from_numpy(-np.log2(counts / counts.sum()))
            targets = [
                batch.targets[batch.targets != IGNORED] for batch in self.eval_batches("test", batch_size=64, limit=limit)
            ]
            return float(bits[torch.cat(targets)].mean())

        return {"unigram": Reference("the frequencies of tokens in train, whatever stands around them", unigram)}

    def encode(self, text: str) -> list[int]:
        """Return ``[CLS]``, the tokens of the text, and ``[SEP]``. ``[MASK]`` is a masked token here, and text in the data."""
        ids: list[int] = []
        for number, part in enumerate(text.split("[MASK]")):
            ids += [wordpiece.MASK] * (number > 0) + self._tokenizer.encode(part, add_special_tokens=False).ids
        return [wordpiece.CLS, *ids, wordpiece.SEP]

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids))

    @cached_property
    def _tokenizer(self) -> Any:
        return wordpiece.load(self.corpus, self.vocabulary)


def assemble(tokens: np.ndarray, pairs: Pairs, *, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows ``[CLS] A [SEP] B [SEP]``, padded to ``length``.

    Args:
        tokens: the tokens of a split.
        pairs: the passages of b rows.
        length: tokens of a row, t.

    Returns:
        (b, t) each: tokens, int64; segments, int64, 1 from B on and 0 before it and at padding; and True at real tokens.
    """
    ends_a = pairs.lengths_a[:, None] + 1  # the place of the first [SEP]
    ends = ends_a + pairs.lengths_b[:, None] + 1  # the place of the second
    place = np.arange(length)[None]
    index_a, index_b = pairs.starts_a[:, None] + place - 1, pairs.starts_b[:, None] + place - ends_a - 1
    index = np.where(place < ends_a, index_a, index_b).clip(0, len(tokens) - 1)
    rows = tokens[index].astype(np.int64)
    rows[:, 0] = wordpiece.CLS
    rows[(place == ends_a) | (place == ends)] = wordpiece.SEP
    rows[place > ends] = wordpiece.PAD
    return rows, ((place > ends_a) & (place <= ends)).astype(np.int64), place <= ends


def _rows(batch: Batch, rows: slice) -> Batch:
    """Return some rows of a batch."""
    return replace(batch, **{name: value[rows] for name, value in vars(batch).items() if isinstance(value, Tensor)})
