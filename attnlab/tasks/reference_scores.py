"""Reference scores: results of simple methods without a network on a task's data.

A task defines them (``Task.reference_scores``). Each is computed once and cached with the prepared data. A study records
them (``attnlab.study.execution.reference_scores``), and its report lists them without comparing variants with them.

``gzip`` and ``xz``: the size of the compressed test text in bits, including headers, over the bytes of the text. Unlike a
model, a compressor learns nothing from ``train``: the score shows the value of repetition within the text alone.

``n-gram``: an interpolated model of bytes or tokens with modified Kneser-Ney smoothing (Chen and Goodman 1999, "An empirical
study of smoothing techniques for language modeling", section 4.1 and equations (26) to (28)). Of a token w after a history h of
n - 1 tokens, with h' the history without its first token:

    p_n(w | h) = (c(hw) - D(c(hw))) / c(h) + rest(h) * p_{n-1}(w | h'),   p_0(w) = 1 / vocabulary

c counts occurrences at the highest order and, below it, the different tokens that occur before hw. D(c) is D1, D2 or D3 for
counts of 1, 2 and more; rest(h) is all that D took from the tokens seen after h, so that p_n sums to 1. A history that was
never seen leaves p_{n-1} as it is. Everything is sorted arrays of n-grams, each packed into one number of 64 bits, which limits
the order: 8 for bytes. That takes 2 GB and about a minute on the 90 MB of enwik8.

``tf-idf``: logistic regression over words and pairs of words of whole texts, split into words by the task.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from attnlab._util.files import replacing
from attnlab._version import __version__
from attnlab.tasks import datasets

logger = logging.getLogger(__name__)

GZIP = "the test text compressed by gzip -9, which learns nothing from train"
XZ = "the test text compressed by xz -9e, which learns nothing from train"
NGRAM_ORDER = 8  # the longest n-gram, if it fits into an uint64
BYTES = 256  # the vocabulary of bytes
TFIDF = "logistic regression on TF-IDF of words and pairs of words, of whole texts; its C chosen on valid"
STRENGTHS = (1.0, 4.0, 16.0, 64.0)  # C of the logistic regression: the best on ``valid`` is taken


@dataclass(frozen=True)
class Reference:
    """A method with a reference score.

    Args:
        about: describes the method and the data it reads, for the report.
        score: ``evaluate.test_limit`` -> the task's primary metric on the part of ``test`` that an evaluation counts.
        options: the task's options that determine the value, in addition to its ``identity``; None: all of them.
    """

    about: str
    score: Callable[[int | None], float]
    options: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Score:
    """A reference score, and the seconds that it took to compute."""

    value: float
    seconds: float


def compute_score(reference: Reference, limit: int | None, *, key: dict[str, Any]) -> Score:
    """Return a reference score, from the cache if it holds one.

    Args:
        reference: the method.
        limit: ``evaluate.test_limit``.
        key: everything known to the caller that determines the value: name, the task's data and options, users' files.

    Raises:
        ValueError: the score is not finite.
    """
    text = json.dumps({**key, "limit": limit, "version": __version__}, sort_keys=True)
    path = datasets.prepared_folder() / "reference_scores" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    with suppress(OSError, ValueError, TypeError):
        return Score(**json.loads(path.read_text(encoding="utf-8")))
    logger.info("computing the reference score %s (cached afterwards)", key["name"])
    start = time.monotonic()
    value = float(reference.score(limit))
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {value}")
    score = Score(value, round(time.monotonic() - start, 2))
    with suppress(OSError), replacing(path) as temporary:  # without a writable cache, the next study computes it again
        temporary.write_text(json.dumps(asdict(score)), encoding="utf-8")
    return score


def gzip_bits_per_byte(text: np.ndarray) -> float:
    """Return the bits per byte of (n,) uint8 at gzip's highest level: Lempel-Ziv in a window of 32 kB."""
    return 8 * len(gzip.compress(text.tobytes(), compresslevel=9, mtime=0)) / len(text)


def xz_bits_per_byte(text: np.ndarray) -> float:
    """Return the bits per byte of (n,) uint8 at xz's highest level (``xz -9e``).

    Lempel-Ziv over up to 64 MB, with arithmetic coding.
    """
    import lzma  # some builds of Python lack it

    return 8 * len(lzma.compress(text.tobytes(), preset=9 | lzma.PRESET_EXTREME)) / len(text)


def longest_order(vocabulary: int) -> int:
    """Return the order of the model of a vocabulary: ``NGRAM_ORDER``, or as many tokens as an uint64 holds."""
    return min(NGRAM_ORDER, 64 // _bits(vocabulary))


def ngram_bits_per_token(train: np.ndarray, test: Sequence[np.ndarray], *, vocabulary: int = BYTES) -> float:
    """Return the mean bits of every token of ``test`` but the first of each stretch, under a model of ``train``.

    Args:
        train: (n,) of unsigned integers below ``vocabulary``.
        test: stretches, (n,) each, as an evaluation reads them: each begins without a history.
    """
    model = KneserNey(train, order=longest_order(vocabulary), vocabulary=vocabulary)
    return float(np.concatenate([-np.log2(model.probabilities(stretch)[1:]) for stretch in test]).mean())


def _bits(vocabulary: int) -> int:
    return max(1, (vocabulary - 1).bit_length())


@dataclass(frozen=True)
class _Level:
    """One order of the model: the first term above for each n-gram, and ``rest`` for each history, sorted by key."""

    grams: np.ndarray
    shares: np.ndarray
    histories: np.ndarray
    rests: np.ndarray


class KneserNey:
    """An interpolated n-gram model of a text.

    Args:
        text: (n,) unsigned integers, at least ``order``.
        order: tokens of the longest n-gram, at least 1.
        vocabulary: number of tokens; each is smaller.

    Raises:
        ValueError: an n-gram of this order does not fit into 64 bits.
    """

    def __init__(self, text: np.ndarray, *, order: int = NGRAM_ORDER, vocabulary: int = BYTES) -> None:
        self._vocabulary, self._bits = vocabulary, _bits(vocabulary)
        if order * self._bits > 64:
            raise ValueError(f"expected an order of at most {64 // self._bits} for {vocabulary:,} tokens, got {order}")
        grams, counts = _counted(_packed(text, order, self._bits)[order - 1 :])
        self._levels: list[_Level] = []
        for n in range(order, 0, -1):
            self._levels.insert(0, _level(grams, counts, self._bits))
            grams, counts = _counted(_last(grams, n - 1, self._bits))

    def probabilities(self, text: np.ndarray) -> np.ndarray:
        """Return (n,) float64: the probability of each token of (n,) after the ``order - 1`` tokens before it, or fewer."""
        packed = _packed(text, len(self._levels), self._bits)
        chances = np.full(len(text), 1 / self._vocabulary)
        for n, level in enumerate(self._levels, start=1):
            grams, back = np.unique(_last(packed[n - 1 :], n, self._bits), return_inverse=True)  # sorted: looked up faster
            shares = _look_up(level.grams, level.shares, grams, default=0)
            rests = _look_up(level.histories, level.rests, grams >> np.uint64(self._bits), default=1)
            chances[n - 1 :] = shares[back] + rests[back] * chances[n - 1 :]
        return chances


def _packed(text: np.ndarray, n: int, bits: int) -> np.ndarray:
    """Return (len,) uint64: the ``n`` tokens that end at each position, the last one lowest; zeros before the first."""
    grams = text.astype(np.uint64)
    for back in range(1, n):
        grams[back:] |= text[:-back].astype(np.uint64) << np.uint64(bits * back)
    return grams


def _last(grams: np.ndarray, n: int, bits: int) -> np.ndarray:
    """Return the last ``n`` tokens of each n-gram."""
    return grams & np.uint64(2 ** (bits * n) - 1)


def _counted(grams: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the unique n-grams, sorted, and their counts, with half of the memory that ``np.unique`` needs."""
    grams.sort()
    first = _first(grams)
    return grams[first], np.diff(first, append=len(grams))


def _first(ordered: np.ndarray) -> np.ndarray:
    """Return the index of the first occurrence of each value in a sorted array."""
    return np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))


def _level(grams: np.ndarray, counts: np.ndarray, bits: int) -> _Level:
    histories = grams >> np.uint64(bits)
    first = _first(histories)
    totals = np.add.reduceat(counts, first)
    taken = _discounts(counts)[np.minimum(counts, 3)]
    shares = (counts - taken) / np.repeat(totals, np.diff(first, append=len(grams)))
    return _Level(grams, shares, histories[first], np.add.reduceat(taken, first) / totals)


def _discounts(counts: np.ndarray) -> np.ndarray:
    """Return (4,): the discounts of counts of 0, 1, 2, and 3 or more.

    If a small text has no n-gram that occurs once, twice, three or four times, the estimate does not exist; half of the
    count is used instead.
    """
    n = np.bincount(np.minimum(counts, 5), minlength=6).astype(float)
    discounts = [0.0]
    for c in (1, 2, 3):
        estimate = c - (c + 1) * n[1] / (n[1] + 2 * n[2]) * n[c + 1] / n[c] if n[1] and n[2] and n[c] else c / 2
        discounts.append(min(max(estimate, 0.1), c))  # never 0: unseen n-grams need a probability above 0
    return np.array(discounts)


def _look_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray, *, default: float) -> np.ndarray:
    """Return the value of each wanted key, and ``default`` for missing ones."""
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], default)


@dataclass(frozen=True)
class Texts:
    """Texts as word ids: text ``i`` is ``words[ends[i - 1]:ends[i]]`` and of class ``labels[i]``."""

    words: np.ndarray
    ends: np.ndarray
    labels: np.ndarray

    @cached_property
    def features(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of every word and every pair of adjacent words, and the index of the text of each."""
        words = self.words.astype(np.int64)
        text = np.repeat(np.arange(len(self.ends)), np.diff(self.ends, prepend=0))
        within = text[1:] == text[:-1]
        pairs = (words[:-1] + 1 << 32 | words[1:])[within]
        return np.concatenate([words, pairs]), np.concatenate([text, text[1:][within]])


def tfidf_accuracy(train: Texts, valid: Texts, test: Texts) -> float:
    """Return the test accuracy of logistic regression on TF-IDF features, with C chosen on ``valid``.

    A feature is (1 + log count) x inverse document frequency, and each text has unit norm. Features that occur only once in
    ``train`` are left out.
    """
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression

    columns, times = np.unique(train.features[0], return_counts=True)
    columns = columns[times > 1]
    scale = TfidfTransformer(sublinear_tf=True)
    inputs = scale.fit_transform(_word_counts(train, columns))
    held_out, last = (scale.transform(_word_counts(texts, columns)) for texts in (valid, test))
    fitted = [LogisticRegression(C=strength, max_iter=1_000).fit(inputs, train.labels) for strength in STRENGTHS]
    best = max(fitted, key=lambda model: model.score(held_out, valid.labels))
    return float(best.score(last, test.labels))


def _word_counts(texts: Texts, columns: np.ndarray) -> Any:
    """Return sparse (n, columns): the counts of the features in ``columns`` in each text."""
    from scipy.sparse import csr_matrix

    features, rows = texts.features
    places = np.minimum(np.searchsorted(columns, features), len(columns) - 1)
    known = columns[places] == features
    ones = np.ones(int(known.sum()))
    return csr_matrix((ones, (rows[known], places[known])), shape=(len(texts.ends), len(columns)))
