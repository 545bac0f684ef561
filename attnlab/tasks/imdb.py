"""``imdb``: sentiment of the 50,000 film reviews of the Large Movie Review Dataset (Maas et al. 2011).

The data set has no validation split: 10 % of its training half is held out, stratified, with a fixed seed of its own,
so that ``train`` has 22,500 reviews, ``valid`` 2,500 and ``test`` 25,000. Words are lower-cased and split at
white space and punctuation; the vocabulary is counted on ``train`` alone. A review longer than ``length``
is cut at its end. The data set repeats a few reviews, and so do the splits: 110 texts are in both ``train`` and
``test``, 16 in ``train`` and ``valid``, 13 in ``valid`` and ``test``, all with the same label in both.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnlab._util.rng import derive_seed
from attnlab.errors import UserError
from attnlab.tasks import SPLITS, Batch, Task, datasets, known_split, whole_number
from attnlab.tasks.archives import IMDB, REVIEWS_PER_FOLDER
from attnlab.tasks.bucketing import by_length, padding_share, shuffled_by_length
from attnlab.tasks.reference_scores.base import Reference
from attnlab.tasks.reference_scores.linear import NB_SVM, TFIDF, Texts, nb_svm_accuracy, tfidf_accuracy

if TYPE_CHECKING:
    from attnlab.config.run import RunConfig

logger = logging.getLogger(__name__)

FORMAT = 1  # of the prepared files
PADDING, UNKNOWN = "[PAD]", "[UNK]"  # numbers 0 and 1
HELD_OUT = REVIEWS_PER_FOLDER // 10  # reviews of each class in ``valid``
HOLD_OUT_SEED = 0
CLASSES = ("neg", "pos")  # numbers 0 and 1


@dataclass(frozen=True)
class Split:
    """Reviews at full length: number ``i`` is ``tokens[ends[i - 1]:ends[i]]`` and of class ``labels[i]``."""

    tokens: np.ndarray
    ends: np.ndarray
    labels: np.ndarray

    @cached_property
    def starts(self) -> np.ndarray:
        return np.concatenate([[0], self.ends[:-1]])

    @cached_property
    def lengths(self) -> np.ndarray:
        return self.ends - self.starts


class Imdb(Task):
    """Classify reviews of films as unfavourable (0) or favourable (1).

    Args:
        length: number of words read from the beginning of a review.
        vocabulary: number of word ids, including [PAD] = 0 and [UNK] = 1.
    """

    kind = "classifier"
    role = "bidirectional"
    metric = "accuracy"
    direction = "max"
    classes = 2

    def __init__(self, *, length: int = 512, vocabulary: int = 50_000) -> None:
        self.length = whole_number(length, name="length")
        self.vocabulary = whole_number(vocabulary, name="vocabulary", least=3)
        self._place: Path | None = None
        self._splits: dict[str, Split] = {}
        self._epoch: tuple[tuple[int, int, int], list[np.ndarray]] | None = None

    def identity(self) -> str:
        return f"imdb sha256:{IMDB.contents}"

    def prepare(self) -> None:
        if self._place is not None:
            return
        key = {
            "contents": IMDB.contents,
            "vocabulary": self.vocabulary,
            "tokenizers": version("tokenizers"),
            "held_out": [HELD_OUT, HOLD_OUT_SEED],
            "format": FORMAT,
        }
        self._place = datasets.prepared("imdb", key, lambda place: _build(place, self.vocabulary))

    def split(self, name: str) -> Split:
        """Return one split, memory-mapped."""
        if known_split(name) not in self._splits:
            self.prepare()
            assert self._place is not None
            tokens = np.load(self._place / f"{name}-tokens.npy", mmap_mode="r")
            ends, labels = (np.load(self._place / f"{name}-{part}.npy") for part in ("ends", "labels"))
            self._splits[name] = Split(tokens, ends, labels)
        return self._splits[name]

    def unsupported(self, config: RunConfig) -> str | None:
        if config.model.mem_len:
            return "memory requires a continuous text: reviews are independent of each other"
        if config.evaluate.protocol != "segment":
            return f"the {config.evaluate.protocol} protocol is for language models: reviews are read whole"
        return None

    def steps_per_epoch(self, batch_size: int) -> int:
        return -(-2 * (REVIEWS_PER_FOLDER - HELD_OUT) // batch_size)

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        """Return reviews of similar lengths: each review once per epoch, in batches whose sizes differ by at most one."""
        epoch, number = divmod(step, self.steps_per_epoch(batch_size))
        return self.batch("train", self._order(epoch, seed, batch_size)[number])

    def _order(self, epoch: int, seed: int, batch_size: int) -> list[np.ndarray]:
        key = (epoch, seed, batch_size)  # with the task's own options, everything that determines the batches
        if self._epoch is None or self._epoch[0] != key:
            rng = np.random.default_rng(derive_seed(seed, "order", epoch))
            lengths = np.minimum(self.split("train").lengths, self.length)
            self._epoch = key, shuffled_by_length(lengths, rng, batch_size=batch_size)
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
        """Yield reviews from the longest to the shortest; a batch has at most ``batch_size * length`` words.

        ``limit`` selects that many of the reviews, always the same ones and as many of each class.
        """
        if protocol != "segment":
            raise UserError(f"imdb reads reviews whole: it has no protocol {protocol!r}")
        reviews = self.split(split)
        chosen = _balanced(reviews.labels)[:limit]
        lengths = np.minimum(reviews.lengths[chosen], self.length)
        for batch in by_length(lengths, tokens=batch_size * self.length):
            yield self.batch(split, chosen[batch])

    def eval_tokens(self, split: str, *, limit: int | None, protocol: str, stride: int | None) -> int:
        reviews = len(CLASSES) * (HELD_OUT if split == "valid" else REVIEWS_PER_FOLDER)
        return min(reviews, limit or reviews) * self.length

    def batch(self, split: str, reviews: np.ndarray) -> Batch:
        """Return these reviews of a split: (b, length of the longest) words, padded with 0."""
        of = self.split(split)
        lengths = np.minimum(of.lengths[reviews], self.length)
        longest = int(lengths.max())
        inputs = np.zeros((len(reviews), longest), dtype=np.int64)
        for row, (start, length) in enumerate(zip(of.starts[reviews], lengths, strict=True)):
            inputs[row, :length] = of.tokens[start : start + length]
        real = np.arange(longest) < lengths[:, None]
        mask = None if real.all() else torch.from_numpy(real)
        labels = torch.from_numpy(of.labels[reviews].astype(np.int64))
        return Batch(torch.from_numpy(inputs), labels, mask)

    def padding(self, *, batch_size: int, seed: int = 0, epoch: int = 0) -> float:
        """Return the fraction of an epoch's training tokens that are padding."""
        lengths = np.minimum(self.split("train").lengths, self.length)
        return padding_share(lengths, self._order(epoch, seed, batch_size))

    def reference_scores(self) -> dict[str, Reference]:
        """Return linear classifiers of the reviews that an evaluation counts; they read every word in the vocabulary."""

        def texts(split: str, limit: int | None = None) -> Texts:
            of = self.split(split)
            chosen = np.sort(_balanced(of.labels)[:limit])
            words = np.concatenate([of.tokens[of.starts[i] : of.ends[i]] for i in chosen])
            return Texts(words, np.cumsum(of.lengths[chosen]), of.labels[chosen])

        def tfidf(limit: int | None) -> float:
            return tfidf_accuracy(texts("train"), texts("valid"), texts("test", limit))

        def nb_svm(limit: int | None) -> float:
            return nb_svm_accuracy(texts("train"), texts("test", limit))

        decides = ("vocabulary",)
        return {
            "tf-idf": Reference(TFIDF, tfidf, options=decides),
            "nb-svm": Reference(NB_SVM, nb_svm, options=decides),
        }

    def encode(self, text: str) -> list[int]:
        return self._words.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._words.decode(list(ids))

    @cached_property
    def _words(self) -> Any:
        from tokenizers import Tokenizer

        self.prepare()
        return Tokenizer.from_file(str(self._place / "words.json"))  # type: ignore[operator]


def _balanced(labels: np.ndarray) -> np.ndarray:
    """Return all reviews in a fixed order with alternating classes: every prefix is balanced."""
    rng = np.random.default_rng(HOLD_OUT_SEED)
    of_class = [rng.permutation(np.flatnonzero(labels == label)) for label in range(len(CLASSES))]
    return np.stack(of_class, axis=1).reshape(-1)


def _hold_out(names: list[str]) -> dict[str, list[str]]:
    """Return the names of each split's reviews; ``names`` must be in order."""
    rng = np.random.default_rng(HOLD_OUT_SEED)
    held: set[str] = set()
    for label in CLASSES:
        of_class = [name for name in names if name.startswith(f"train/{label}/")]
        held.update(of_class[i] for i in rng.permutation(len(of_class))[:HELD_OUT])
    train = [name for name in names if name.startswith("train/")]
    return {
        "train": [name for name in train if name not in held],
        "valid": [name for name in train if name in held],
        "test": [name for name in names if name.startswith("test/")],
    }


def _word_tokenizer(texts: list[str], vocabulary: int) -> Any:
    """Return a tokenizer of the words of ``texts``, numbered from the most frequent."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    words = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    line_break = normalizers.Replace(Regex(r"<br\s*/?>"), " ")
    words.normalizer = normalizers.Sequence([line_break, normalizers.Lowercase()])  # type: ignore[assignment]
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]  # each punctuation mark is a word
    special = [PADDING, UNKNOWN]
    trainer = trainers.WordLevelTrainer(vocab_size=vocabulary, special_tokens=special, show_progress=False)
    words.train_from_iterator(texts, trainer)
    return words


def _build(place: Path, vocabulary: int) -> None:
    """Write the prepared files: ``words.json`` and three arrays for each split."""
    reviews = datasets.load(IMDB)
    splits = _hold_out(list(reviews))
    texts = {split: [reviews[name].decode() for name in names] for split, names in splits.items()}
    logger.info("imdb: counting the words of %s training reviews", f"{len(texts['train']):,}")
    words = _word_tokenizer(texts["train"], vocabulary)
    words.save(str(place / "words.json"))
    kind = np.uint16 if vocabulary <= 1 << 16 else np.uint32
    for split in SPLITS:
        logger.info("imdb: encoding the %s reviews of %s", f"{len(texts[split]):,}", split)
        rows = []
        for begin in range(0, len(texts[split]), 4096):  # in parts: encodings are large
            encodings = words.encode_batch_fast(texts[split][begin : begin + 4096])
            rows += [np.asarray(encoding.ids or [1], dtype=kind) for encoding in encodings]  # never an empty row
        np.save(place / f"{split}-tokens.npy", np.concatenate(rows))
        np.save(place / f"{split}-ends.npy", np.cumsum([len(row) for row in rows]))
        labels = [CLASSES.index(name.split("/")[1]) for name in splits[split]]
        np.save(place / f"{split}-labels.npy", np.asarray(labels, dtype=np.uint8))
