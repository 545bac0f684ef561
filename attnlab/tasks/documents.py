"""Classification of documents: the common base of ``imdb`` and ``csv``.

Words are lower-cased and split at white space and punctuation; the vocabulary is counted on ``train`` alone. A document longer
than ``length`` is cut at its end. Training batches have documents of similar lengths, and each document once per epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from attnlab._util.rng import derive_seed
from attnlab.errors import UserError
from attnlab.tasks import Batch, Task, known_split, whole_number
from attnlab.tasks.bucketing import by_length, padding_share, shuffled_by_length
from attnlab.tasks.reference_scores.base import Reference
from attnlab.tasks.reference_scores.linear import NB_SVM, TFIDF, Texts, nb_svm_accuracy, tfidf_accuracy

if TYPE_CHECKING:
    from attnlab.config.run import RunConfig

FORMAT = 1  # of the prepared files
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


class DocumentTask(Task):
    """Classify documents. A subclass defines ``identity``, ``classes``, ``count`` and ``prepared``.

    Args:
        length: number of words read from the beginning of a document.
        vocabulary: number of word ids, including [PAD] = 0 and [UNK] = 1.
    """

    kind: Literal["language_model", "classifier"] = "classifier"
    role: Literal["causal", "bidirectional"] = "bidirectional"
    metric = "accuracy"
    direction: Literal["min", "max"] = "max"

    def __init__(self, *, length: int, vocabulary: int) -> None:
        self.length = whole_number(length, name="length")
        self.vocabulary = whole_number(vocabulary, name="vocabulary", least=3)
        self._place: Path | None = None
        self._splits: dict[str, Split] = {}
        self._epoch: tuple[tuple[int, int, int], list[np.ndarray]] | None = None

    def vocabulary_identity(self) -> str:
        return f"{self.vocabulary} words of {self.identity()}"

    def count(self, split: str) -> int:
        """Return the number of documents of a split; callable before ``prepare``."""
        raise NotImplementedError

    def prepared(self) -> Path:
        """Return the folder of the prepared data, which ``write_words`` and ``write_split`` filled."""
        raise NotImplementedError

    def prepare(self) -> None:
        if self._place is None:
            self._place = self.prepared()

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
            return "memory requires a continuous text: documents are independent of each other"
        if config.evaluate.protocol != "segment":
            return f"the {config.evaluate.protocol} protocol is for language models: documents are read whole"
        return None

    def steps_per_epoch(self, batch_size: int) -> int:
        return -(-self.count("train") // batch_size)

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        """Return documents of similar lengths: each document once per epoch, in batches whose sizes differ by at most one."""
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
        """Yield documents from the longest to the shortest; a batch has at most ``batch_size * length`` words.

        ``limit`` selects that many of the documents, always the same ones, with the classes in the shares of the split.
        """
        if protocol != "segment":
            raise UserError(f"documents are read whole: there is no protocol {protocol!r}")
        documents = self.split(split)
        chosen = _balanced(documents.labels)[:limit]
        lengths = np.minimum(documents.lengths[chosen], self.length)
        for batch in by_length(lengths, tokens=batch_size * self.length):
            yield self.batch(split, chosen[batch])

    def eval_tokens(self, split: str, *, limit: int | None, protocol: str, stride: int | None) -> int:
        count = self.count(split)
        return min(count, limit or count) * self.length

    def batch(self, split: str, documents: np.ndarray) -> Batch:
        """Return these documents of a split: (b, length of the longest) words, padded with 0."""
        of = self.split(split)
        lengths = np.minimum(of.lengths[documents], self.length)
        longest = int(lengths.max())
        inputs = np.zeros((len(documents), longest), dtype=np.int64)
        for row, (start, length) in enumerate(zip(of.starts[documents], lengths, strict=True)):
            inputs[row, :length] = of.tokens[start : start + length]
        real = np.arange(longest) < lengths[:, None]
        mask = None if real.all() else torch.from_numpy(real)
        labels = torch.from_numpy(of.labels[documents].astype(np.int64))
        return Batch(torch.from_numpy(inputs), labels, mask, items=torch.from_numpy(documents.astype(np.int64)))

    def padding(self, *, batch_size: int, seed: int = 0, epoch: int = 0) -> float:
        """Return the fraction of an epoch's training tokens that are padding."""
        lengths = np.minimum(self.split("train").lengths, self.length)
        return padding_share(lengths, self._order(epoch, seed, batch_size))

    def linear_scores(self) -> dict[str, Reference]:
        """Return linear classifiers of the documents that an evaluation counts; they read every word in the vocabulary."""

        def texts(split: str, limit: int | None = None) -> Texts:
            of = self.split(split)
            chosen = np.sort(_balanced(of.labels)[:limit])
            words = np.concatenate([of.tokens[of.starts[i] : of.ends[i]] for i in chosen])
            return Texts(words, np.cumsum(of.lengths[chosen]), of.labels[chosen])

        def tfidf(limit: int | None) -> float:
            return tfidf_accuracy(texts("train"), texts("valid"), texts("test", limit))

        def nb_svm(limit: int | None) -> float:
            return nb_svm_accuracy(texts("train"), texts("test", limit))

        scores = {"tf-idf": Reference(TFIDF, tfidf, options=("vocabulary",))}
        if self.classes == 2:  # NB-SVM distinguishes two classes
            scores["nb-svm"] = Reference(NB_SVM, nb_svm, options=("vocabulary",))
        return scores

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
    words.normalizer = normalizers.Sequence([line_break, normalizers.Lowercase()])  # type: ignore[assignment]
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]  # each punctuation mark is a word
    special = [PADDING, UNKNOWN]
    trainer = trainers.WordLevelTrainer(vocab_size=vocabulary, special_tokens=special, show_progress=False)
    words.train_from_iterator(texts, trainer)
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
