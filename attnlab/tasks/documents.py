"""Classification of documents: the common base of ``imdb`` and ``csv``.

Texts are read in Unicode NFC. Words are lower-cased and split at white space and punctuation; the vocabulary is counted on
``train`` alone. A document longer than ``length`` is cut at its end. Training batches have documents of similar lengths, and
each document once per epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from attnlab.tasks import Batch, known_split, whole_number
from attnlab.tasks.bucketing import BucketedTask
from attnlab.tasks.reference_scores import TFIDF, Reference, Texts, tfidf_accuracy

FORMAT = 2  # of the prepared files
PADDING, UNKNOWN = "[PAD]", "[UNK]"  # numbers 0 and 1
ORDER_SEED = 0  # of the order in which a limit selects documents


@dataclass(frozen=True)
class Split:
    """Documents at full length: number ``i`` is ``tokens[ends[i - 1]:ends[i]]`` and of class ``labels[i]``."""

    tokens: np.ndarray
    ends: np.ndarray
    labels: np.ndarray

    @cached_property
    def starts(self) -> np.ndarray:
        return np.concatenate([[0], self.ends[:-1]])

    @cached_property
    def lengths(self) -> np.ndarray:
        return self.ends - self.starts


class DocumentTask(BucketedTask):
    """Classify documents. A subclass defines ``identity``, ``classes``, ``count``, and its data as ``BucketedTask`` says.

    ``build_data`` calls ``write_words`` and ``write_split``.

    Args:
        length: number of words read from the beginning of a document.
        vocabulary: number of word ids, including [PAD] = 0 and [UNK] = 1.
    """

    kind: Literal["language_model", "classifier"] = "classifier"
    role: Literal["causal", "bidirectional"] = "bidirectional"
    metric = "accuracy"
    direction: Literal["min", "max"] = "max"
    packages = ("tokenizers", "sklearn")
    kept = ("tokenizer_json",)

    item = "document"

    def __init__(self, *, length: int, vocabulary: int) -> None:
        self.length = whole_number(length, name="length")
        self.vocabulary = whole_number(vocabulary, name="vocabulary", least=3)
        self._splits: dict[str, Split] = {}

    def vocabulary_identity(self) -> str:
        return f"{self.vocabulary} words of {self.identity()}"

    def split(self, name: str) -> Split:
        """Return one split, memory-mapped."""
        if known_split(name) not in self._splits:
            place = self.prepared_folder
            tokens = np.load(place / f"{name}-tokens.npy", mmap_mode="r")
            ends, labels = (np.load(place / f"{name}-{part}.npy") for part in ("ends", "labels"))
            self._splits[name] = Split(tokens, ends, labels)
        return self._splits[name]

    def row_lengths(self, split: str) -> np.ndarray:
        return np.minimum(self.split(split).lengths, self.length)

    def evaluated_rows(self, split: str, limit: int | None) -> np.ndarray:
        """Return the numbers of the documents that an evaluation reads, with the classes in the shares of the split."""
        return _balanced(self.split(split).labels)[:limit]

    def batch(self, split: str, rows: np.ndarray) -> Batch:
        """Return these documents of a split: (b, length of the longest) words, padded with 0."""
        of = self.split(split)
        lengths = self.row_lengths(split)[rows]
        longest = int(lengths.max())
        inputs = np.zeros((len(rows), longest), dtype=np.int64)
        for i, (start, length) in enumerate(zip(of.starts[rows], lengths, strict=True)):
            inputs[i, :length] = of.tokens[start : start + length]
        real = np.arange(longest) < lengths[:, None]
        mask = None if real.all() else torch.from_numpy(real)
        labels = torch.from_numpy(of.labels[rows].astype(np.int64))
        return Batch(torch.from_numpy(inputs), labels, mask, items=torch.from_numpy(rows.astype(np.int64)))

    def linear_scores(self) -> dict[str, Reference]:
        """Return a linear classifier of the documents that an evaluation counts; it reads every word in the vocabulary."""

        def texts(split: str, limit: int | None = None) -> Texts:
            of = self.split(split)
            chosen = np.sort(_balanced(of.labels)[:limit])
            words = np.concatenate([of.tokens[of.starts[i] : of.ends[i]] for i in chosen])
            return Texts(words, np.cumsum(of.lengths[chosen]), of.labels[chosen])

        def tfidf(limit: int | None) -> float:
            return tfidf_accuracy(texts("train"), texts("valid"), texts("test", limit))

        return {"tf-idf": Reference(TFIDF, tfidf, options=("vocabulary",))}

    def encode(self, text: str) -> list[int]:
        return self._words.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._words.decode(list(ids))

    @cached_property
    def tokenizer_json(self) -> str:
        """The vocabulary, as ``tokenizers`` writes it."""
        return (self.prepared_folder / "words.json").read_text(encoding="utf-8")

    @cached_property
    def _words(self) -> Any:
        from tokenizers import Tokenizer

        words = Tokenizer.from_str(self.tokenizer_json)  # type: ignore[operator]
        words.encode_special_tokens = True  # "[PAD]" in a text is text
        return words


def _balanced(labels: np.ndarray) -> np.ndarray:
    """Return all documents in a fixed order in which every prefix has the classes in about the shares of the whole."""
    rng = np.random.default_rng(ORDER_SEED)
    of_class = [rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    places = np.concatenate([(np.arange(len(rows)) + 0.5) / len(rows) for rows in of_class])
    return np.concatenate(of_class)[np.argsort(places, kind="stable")]


def word_tokenizer(texts: list[str], vocabulary: int) -> Any:
    """Return a tokenizer of the words of ``texts``, numbered from the most frequent."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    words = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    line_break = normalizers.Replace(Regex(r"<br\s*/?>"), " ")
    words.normalizer = normalizers.Sequence([line_break, normalizers.NFC(), normalizers.Lowercase()])  # type: ignore[assignment]
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]  # each punctuation mark is a word
    special = [PADDING, UNKNOWN]
    trainer = trainers.WordLevelTrainer(vocab_size=vocabulary, special_tokens=special, show_progress=False)
    words.train_from_iterator(texts, trainer)
    words.encode_special_tokens = True  # "[PAD]" in a text is text
    return words


def write_words(place: Path, texts: list[str], vocabulary: int) -> Any:
    """Count the words of the training texts, write them as ``words.json``, and return their tokenizer."""
    words = word_tokenizer(texts, vocabulary)
    words.save(str(place / "words.json"))
    return words


def write_split(place: Path, split: str, texts: list[str], labels: Sequence[int], words: Any) -> None:
    """Write the three arrays of a split: word ids, ends and labels."""
    size = words.get_vocab_size()
    kind = np.uint16 if size <= 1 << 16 else np.uint32
    rows = []
    for begin in range(0, len(texts), 4096):  # in parts: encodings are large
        encodings = words.encode_batch_fast(texts[begin : begin + 4096])
        rows += [np.asarray(encoding.ids or [1], dtype=kind) for encoding in encodings]  # never an empty row
    np.save(place / f"{split}-tokens.npy", np.concatenate(rows))
    np.save(place / f"{split}-ends.npy", np.cumsum([len(row) for row in rows]))
    np.save(place / f"{split}-labels.npy", np.asarray(labels, dtype=np.uint8 if max(labels) < 256 else np.uint32))
