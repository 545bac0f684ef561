"""Pairs of passages for next-sentence prediction (Devlin et al. 2019, section 3.1), from documents of sentences."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks import corpora, datasets, wordpiece

FORMAT = 1  # of the prepared files
SENTENCES = 4096  # that are encoded at a time

logger = logging.getLogger(__name__)


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
        tokenizer: Any = wordpiece.load(corpus, vocabulary)
        for split, documents in corpora.find(corpus).read().items():
            logger.info("%s: encoding the %s documents of %s", corpus, f"{len(documents):,}", split)
            _write(folder, split, documents, tokenizer)

    key = {"vocabulary": wordpiece.identity(corpus, vocabulary), "format": FORMAT}
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
