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

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab._util.rng import derive_seed
from attnlab.errors import UserError, nearest
from attnlab.tasks import IGNORED, Batch, Task, corpora, datasets, known_split, subwords, whole_number
from attnlab.tasks.base import each_nats
from attnlab.tasks.masking import MaskedOutput, mask_tokens, predicted_tokens
from attnlab.tasks.reference_scores import Reference

if TYPE_CHECKING:
    from attnlab._util.metrics import Score
    from attnlab.config.run import RunConfig

FORMAT = 1  # of the prepared files
SENTENCES = 4096  # that are encoded at a time

logger = logging.getLogger(__name__)
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
    packages = ("tokenizers",)
    segments = 2
    kept = ("tokenizer_json", "is_causal", "next_sentence")

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
        self.vocabulary = whole_number(vocabulary, name="vocabulary", least=len(subwords.SPECIAL_TOKENS) + 1)
        self.next_sentence = not self.is_causal if next_sentence is None else bool(next_sentence)
        self.classes = 2 if self.next_sentence else 0
        self.role = "causal" if self.is_causal else "bidirectional"
        subwords.wordpiece_identity(corpus, vocabulary)  # refuses an unknown corpus
        self._splits: dict[str, Passages] = {}
        self._place: Path | None = None

    def identity(self) -> str:
        return f"masked_text of {self.vocabulary_identity()}"

    def vocabulary_identity(self) -> str:
        return subwords.wordpiece_identity(self.corpus, self.vocabulary)

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

    def split_size(self, split: str) -> int | None:
        return None if split == "train" else EVALUATION_ROWS

    def _batch(self, split: str, size: int, *, rows: np.random.Generator, masks: np.random.Generator) -> Batch:
        """Draw ``size`` rows of a split: ``rows`` decides the passages, ``masks`` the chosen tokens and their replacements."""
        passages = self.split(split)
        pairs = passages.draw(size, room=self.length - 3, random_half=self.next_sentence, rng=rows)
        tokens, segments, mask = assemble(passages.tokens, pairs, length=self.length)
        real = None if mask.all() else torch.from_numpy(mask)
        labels = torch.from_numpy(np.where(pairs.follows, IS_NEXT, NOT_NEXT)) if self.next_sentence else None
        if self.is_causal:
            inputs = torch.from_numpy(tokens)
            following = F.pad(inputs[:, 1:], (0, 1), value=subwords.PAD)
            targets, positions = following.masked_fill(following == subwords.PAD, IGNORED), None
        else:
            maskable = tokens >= len(subwords.SPECIAL_TOKENS)
            inputs, targets, positions = mask_tokens(
                tokens,
                maskable,
                rng=masks,
                mask=subwords.MASK,
                first=len(subwords.SPECIAL_TOKENS),
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
        """Return the mean loss of the predicted tokens in nats, plus the loss of the next-sentence predictions."""
        loss = super().loss(logits.tokens, replace(batch, targets=predicted_tokens(batch)))
        if logits.labels is None:
            return loss
        assert batch.labels is not None
        return loss + F.cross_entropy(logits.labels.float(), batch.labels)

    def score(self, logits: MaskedOutput, batch: Batch) -> dict[str, Score]:
        """Return bits per predicted token, and the accuracies of the predicted tokens and of the next-sentence predictions."""
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
                counts[subwords.SEP] += 2 * len(self.split("train").tokens) / (self.length - 3)
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
            ids += [subwords.MASK] * (number > 0) + self._tokenizer.encode(part, add_special_tokens=False).ids
        return [subwords.CLS, *ids, subwords.SEP]

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids))

    @cached_property
    def tokenizer_json(self) -> str:
        """The vocabulary, as ``tokenizers`` writes it."""
        return subwords.load_wordpiece(self.corpus, self.vocabulary).to_str()

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        tokenizer: Any = Tokenizer.from_str(self.tokenizer_json)
        tokenizer.encode_special_tokens = True  # "[MASK]" in a text is text
        return tokenizer


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
    rows[:, 0] = subwords.CLS
    rows[(place == ends_a) | (place == ends)] = subwords.SEP
    rows[place > ends] = subwords.PAD
    return rows, ((place > ends_a) & (place <= ends)).astype(np.int64), place <= ends


def _rows(batch: Batch, rows: slice) -> Batch:
    """Return some rows of a batch."""
    return replace(batch, **{name: value[rows] for name, value in vars(batch).items() if isinstance(value, Tensor)})


@dataclass(frozen=True)
class Pairs:
    """Pairs of passages: each array is (b,) int64.

    Attributes:
        starts_a, lengths_a: the tokens ``starts_a`` to ``starts_a + lengths_a`` of a split.
        starts_b, lengths_b: likewise.
        follows: (b,) bool, True where B follows A in its document.
    """

    starts_a: np.ndarray
    lengths_a: np.ndarray
    starts_b: np.ndarray
    lengths_b: np.ndarray
    follows: np.ndarray


class Passages:
    """The documents of a split, from which pairs of passages are drawn.

    Args:
        tokens: (n,) token ids of all documents, without special tokens.
        sentences: (s,) the index after the last token of each sentence.
        documents: (d,) the index after the last token of each document.
        name: of the split, for messages.
    """

    def __init__(self, tokens: np.ndarray, sentences: np.ndarray, documents: np.ndarray, *, name: str = "") -> None:
        self.tokens, self._sentences, self._documents, self._name = tokens, sentences, documents, name

    @classmethod
    def load(cls, folder: Path, split: str) -> Passages:
        """Return a split that ``prepare_passages`` wrote, memory-mapped."""
        tokens = np.load(folder / f"{split}-tokens.npy", mmap_mode="r")
        return cls(tokens, *(np.load(folder / f"{split}-{part}.npy") for part in ("sentences", "documents")), name=split)

    def draw(self, size: int, *, room: int, random_half: bool, rng: np.random.Generator) -> Pairs:
        """Draw pairs at random ends of sentences, uniformly over the split.

        A is cut to the last tokens before the end of its last sentence, B to its first ones, so that both fit into ``room``: A
        has a quarter to three quarters of it, or more where B's document ends early. The rule does not depend on whether B
        follows A, and the same random numbers are drawn with and without ``random_half``.

        Args:
            size: number of pairs.
            room: tokens of A and B together, at least 2.
            random_half: in half of the pairs, B is drawn from another document.
            rng: decides the pairs.
        """
        documents, boundaries, firsts, counts = self._boundaries
        total = len(boundaries)
        if random_half and (counts == total).any():
            raise UserError(f"corpus: expected two documents of at least two sentences in {self._name}, got one")
        at = rng.integers(total, size=size)
        own = documents[at]
        # Another document's boundary: number them all without those of this document, which are consecutive.
        other = rng.integers(np.maximum(1, total - counts[own]))
        other = np.where(other >= firsts[own], other + counts[own], other)
        follows = (rng.random(size) < 0.5) | (not random_half)
        cut = rng.integers(max(1, room // 4), max(2, 3 * room // 4 + 1), size=size)
        chosen = np.where(follows, at, other)
        begin, next_begin = boundaries[at], boundaries[chosen]
        before = begin - np.append(0, self._documents)[own]  # tokens of A's document before the boundary
        after = self._documents[documents[chosen]] - next_begin  # tokens of B's document from its start on
        lengths_b = np.minimum(after, room - np.minimum(cut, before))
        lengths_a = np.minimum(before, room - lengths_b)
        return Pairs(begin - lengths_a, lengths_a, next_begin, lengths_b, follows)

    @cached_property
    def _boundaries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The starts of all sentences but the first of each document.

        Returns:
            For each boundary the number of its document and its index in ``tokens``; for each document the number of its first
            boundary, and its number of boundaries.
        """
        inside = ~np.isin(self._sentences, self._documents)  # the end of a sentence is the start of the next one
        documents = np.searchsorted(self._documents, self._sentences, side="right")
        documents, boundaries = documents[inside], self._sentences[inside]
        if not len(boundaries):
            raise UserError(f"corpus: expected a document of at least two sentences in {self._name}, got none")
        counts = np.bincount(documents, minlength=len(self._documents))
        return documents, boundaries, np.cumsum(counts) - counts, counts


def prepare_passages(corpus: str, vocabulary: int) -> Path:
    """Return the folder with the encoded splits of a corpus, which are written once.

    Args:
        corpus: the name of a corpus; the vocabulary is learned on its ``train``.
        vocabulary: number of token ids.

    Raises:
        UserError: the corpus is not available, or the vocabulary is smaller than the alphabet.
    """

    def build(folder: Path) -> None:
        tokenizer: Any = subwords.load_wordpiece(corpus, vocabulary)
        for split, documents in corpora.find(corpus).read().items():
            logger.info("%s: encoding the %s documents of %s", corpus, f"{len(documents):,}", split)
            _write(folder, split, documents, tokenizer)

    key = {"vocabulary": subwords.wordpiece_identity(corpus, vocabulary), "format": FORMAT}
    return datasets.prepared(f"{corpus}-passages", key, build)


def _write(folder: Path, split: str, documents: corpora.Documents, tokenizer: Any) -> None:
    """Write the arrays of a split."""
    kind = np.uint16 if tokenizer.get_vocab_size() <= 1 << 16 else np.uint32
    numbers = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    encoded = list(_encode((sentence for document in documents for sentence in document), tokenizer, kind))
    lengths = np.asarray([len(ids) for ids in encoded])
    ends = np.cumsum(lengths)
    last = np.append(numbers[1:] != numbers[:-1], True)
    np.save(folder / f"{split}-tokens.npy", np.concatenate(encoded))
    np.save(folder / f"{split}-sentences.npy", ends[lengths > 0])
    np.save(folder / f"{split}-documents.npy", np.unique(ends[last]))


def _encode(sentences: Iterator[str], tokenizer: Any, kind: type[np.generic]) -> Iterator[np.ndarray]:
    while part := list(islice(sentences, SENTENCES)):  # in parts: encodings are large
        for encoding in tokenizer.encode_batch_fast(part, add_special_tokens=False):
            yield np.asarray(encoding.ids, dtype=kind)
