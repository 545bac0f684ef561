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

``tf-idf`` with logistic regression, and ``nb-svm``: linear classifiers over words and pairs of words. Both read whole texts,
split into words by the task. NB-SVM distinguishes two classes, 0 and 1.

Translation: nearest neighbors, and word by word by IBM model 1 (Brown, P. F. et al. 1993, "The mathematics of statistical
machine translation: parameter estimation", Computational Linguistics 19(2)).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import platform
import re
import sys
import time
import unicodedata
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from attnlab._util.files import replacing
from attnlab._util.packages import version_of
from attnlab.tasks import datasets
from attnlab.tasks.translation_scores import UNSPACED

LIBRARIES = ("numpy", "scipy", "scikit-learn", "sacrebleu")
GZIP = "the test text compressed by gzip -9, which learns nothing from train"
XZ = "the test text compressed by xz -9e, which learns nothing from train"
NGRAM_ORDER = 8  # the longest n-gram, if it fits into an uint64
BYTES = 256  # the vocabulary of bytes
TFIDF = "logistic regression on TF-IDF of words and pairs of words, of whole texts; its C chosen on valid"
NB_SVM = "NB-SVM (Wang and Manning 2012) on words and pairs of words, of whole texts"
STRENGTHS = (1.0, 4.0, 16.0, 64.0)  # C of the logistic regression: the best on ``valid`` is taken
COPY = "the source sentence itself"
NEAREST = "the target of the training pair with the source of the highest TF-IDF cosine similarity (words and pairs of words)"
IBM_MODEL_1 = "the most probable translation of each word by IBM model 1, in the order of the source; unknown words are copied"

ROUNDS = 10  # of expectation maximization
ROWS = 100  # sentences that are compared with all of train at a time
_UNSPACED = UNSPACED.pattern  # each character of a script without spaces counts as a word
_SPACE_BEFORE = re.compile(rf" (?=[.,;:!?])|(?<={_UNSPACED}) (?={_UNSPACED}|[、。，．！？；：])")


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


def compute_score(reference: Reference, limit: int | None, *, key: dict[str, Any], on_start: Callable[[], None]) -> Score:
    """Return a reference score, from the cache if it holds one.

    Args:
        reference: the method.
        limit: ``evaluate.test_limit``.
        key: everything known to the caller that determines the value: name, the task's data and options, users' files.
        on_start: called before the score is computed.

    Raises:
        ValueError: the score is not finite.
    """
    key = {**key, "limit": limit, "code": _code(), "libraries": _libraries()}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    path = datasets.prepared_folder() / "reference_scores" / f"{digest}.json"
    score = _read(path, key)
    if score is None:
        on_start()
        start = time.monotonic()
        value = float(reference.score(limit))
        if not math.isfinite(value):
            raise ValueError(f"expected a finite number, got {value}")
        score = Score(value, round(time.monotonic() - start, 2))
        with suppress(OSError), replacing(path) as temporary:  # without a writable cache, the next study computes it again
            temporary.write_text(json.dumps({"key": key, **asdict(score)}, indent=1), encoding="utf-8")
    return score


def _read(path: Path, key: dict[str, Any]) -> Score | None:
    """Return the cached score of ``key``; None when there is none, or it is damaged."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        score = Score(float(record["value"]), float(record["seconds"]))
        return score if record["key"] == key and math.isfinite(score.value) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


@cache
def _code() -> str:
    """Return a checksum of the source code of ``attnlab.tasks``."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


@cache
def _libraries() -> dict[str, str]:
    """Return the versions that determine the last digits; compressors come with Python and with the system."""
    versions = {"python": platform.python_version(), "zlib": zlib.ZLIB_RUNTIME_VERSION}
    return versions | {name: number for name in LIBRARIES if (number := version_of(name))}


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


def nb_svm_accuracy(train: Texts, test: Texts, *, smoothing: float = 1.0, mixing: float = 0.25) -> float:
    """Return the test accuracy of NB-SVM (Wang and Manning 2012, "Baselines and bigrams") with the recommended settings.

    The presence of a feature (0 or 1) is scaled by its log-count ratio r (equation 1, alpha = ``smoothing``). The weights of
    a linear SVM with squared hinge loss and C = 1 are drawn towards their mean size (equation 4, beta = ``mixing``).
    """
    from sklearn.svm import LinearSVC

    columns = np.unique(train.features[0])
    inputs = _word_counts(train, columns).sign()
    ratio = log_count_ratio(inputs, train.labels, smoothing=smoothing)
    model = LinearSVC(C=1.0, tol=0.01, random_state=0).fit(inputs.multiply(ratio).tocsr(), train.labels)
    model.coef_ = (1 - mixing) * np.abs(model.coef_).mean() + mixing * model.coef_
    return float(model.score(_word_counts(test, columns).sign().multiply(ratio).tocsr(), test.labels))


def log_count_ratio(inputs: Any, labels: np.ndarray, *, smoothing: float) -> np.ndarray:
    """Return (features,) float64: log of (p / |p|_1) / (q / |q|_1), equation 1.

    p and q are the smoothed counts of each feature in class 1 and class 0.

    Args:
        inputs: sparse (n, features) of zeros and ones.
        labels: (n,) of 0 and 1.
    """
    shares = []
    for label in (1, 0):
        counts = smoothing + np.asarray(inputs[labels == label].sum(axis=0)).ravel()
        shares.append(counts / counts.sum())
    return np.log(shares[0] / shares[1])


def _word_counts(texts: Texts, columns: np.ndarray) -> Any:
    """Return sparse (n, columns): the counts of the features in ``columns`` in each text."""
    from scipy.sparse import csr_matrix

    features, rows = texts.features
    places = np.minimum(np.searchsorted(columns, features), len(columns) - 1)
    known = columns[places] == features
    ones = np.ones(int(known.sum()))
    return csr_matrix((ones, (rows[known], places[known])), shape=(len(texts.ends), len(columns)))


def translation_references(
    text: Callable[[str, str], list[str]],
    chosen: Callable[[str, int | None], np.ndarray],
    score: Callable[[Sequence[str], np.ndarray], float],
) -> dict[str, Reference]:
    """Return the reference scores of a task of translation.

    Args:
        text: (split, side) -> its sentences.
        chosen: (split, limit) -> the numbers of the sentences that an evaluation reads.
        score: (translations, numbers of their sentences in ``test``) -> the score.
    """

    def of(translate: Callable[[list[str]], list[str]]) -> Callable[[int | None], float]:
        def scored(limit: int | None) -> float:
            numbers, sources = chosen("test", limit), text("test", "source")
            return score(translate([sources[i] for i in numbers]), numbers)

        return scored

    def nearest(sources: list[str]) -> list[str]:
        return nearest_neighbors(sources, text("train", "source"), text("train", "target"))

    def by_words(sources: list[str]) -> list[str]:
        return translate_words(sources, text("train", "source"), text("train", "target"))

    return {
        "copy": Reference(COPY, of(list), options=("bleu_tokenizer",)),
        "nearest": Reference(NEAREST, of(nearest), options=("bleu_tokenizer",)),
        "ibm-1": Reference(IBM_MODEL_1, of(by_words), options=("bleu_tokenizer",)),
    }


def nearest_neighbors(sources: Sequence[str], train_sources: Sequence[str], train_targets: Sequence[str]) -> list[str]:
    """Return for each source the target of the most similar pair; of equally similar ones the first."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=rf"{_UNSPACED}|{_letter()}{{2,}}")
    known: Any = vectorizer.fit_transform(train_sources)
    vectors: Any = vectorizer.transform(sources)
    nearest = [
        int(row.argmax())
        for begin in range(0, len(sources), ROWS)
        for row in (vectors[begin : begin + ROWS] @ known.T).toarray()
    ]
    return [train_targets[i] for i in nearest]


def translate_words(sources: Sequence[str], train_sources: Sequence[str], train_targets: Sequence[str]) -> list[str]:
    """Return for each source the most probable translations of its words under IBM model 1."""
    best = best_translations(train_sources, train_targets)
    sentences: list[list[str]] = [_words().findall(sentence) for sentence in sources]
    return [_SPACE_BEFORE.sub("", " ".join(best.get(word, word) for word in words)) for words in sentences]


def best_translations(sources: Sequence[str], targets: Sequence[str]) -> dict[str, str]:
    """Return the target word e with the highest t(e | f) of each source word f.

    Expectation maximization estimates t, from uniform probabilities on. In the model, each target word of a pair
    translates one source word of the pair, or the empty word; all of these are equally likely.
    """
    source_words, source_ids = _numbered(sources)
    target_words, target_ids = _numbered(targets)
    empty = len(source_words)
    # One entry for each target word of each pair and each source word that may have produced it; `group` numbers the former.
    pairs = [(np.append(f, empty), e) for f, e in zip(source_ids, target_ids, strict=True)]
    f = np.concatenate([np.tile(source, len(target)) for source, target in pairs])
    e = np.concatenate([np.repeat(target, len(source)) for source, target in pairs])
    sizes = np.concatenate([np.full(len(target), len(source)) for source, target in pairs])
    group = np.repeat(np.arange(len(sizes)), sizes)
    links, link = np.unique(f * len(target_words) + e, return_inverse=True)
    f, e = np.divmod(links, len(target_words))
    t = np.ones(len(links))
    for _ in range(ROUNDS):
        likelihood = t[link]
        expected = np.bincount(link, likelihood / np.bincount(group, likelihood)[group])
        t = expected / np.bincount(f, expected)[f]
    order = np.lexsort((t, f))  # of each source word, its most probable translation last
    last = order[np.append(np.flatnonzero(np.diff(f[order])), len(order) - 1)]
    return {source_words[int(f[i])]: target_words[int(e[i])] for i in last if f[i] != empty}


@cache
def _letter() -> str:
    """Return the pattern of a character of a word that spaces separate: a letter or a digit, with the marks on it.

    ``\\w`` alone lacks the vowel signs of Hindi and others, which would cut words into consonants.
    """
    marks = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)).startswith("M")]
    ends = [(a, b) for a, b in zip([-2, *marks], [*marks, sys.maxunicode + 2], strict=True) if b > a + 1]
    runs = "".join(f"{chr(start)}-{chr(stop)}" for (_, start), (stop, _) in pairwise(ends))
    return rf"(?:(?!{_UNSPACED})[\w{runs}])"


@cache
def _words() -> re.Pattern[str]:
    """Return the pattern of a word or a punctuation mark."""
    return re.compile(rf"{_UNSPACED}|{_letter()}+|\S")


def _numbered(sentences: Sequence[str]) -> tuple[list[str], list[np.ndarray]]:
    """Return the different words, and the numbers of the words of each sentence."""
    numbers: dict[str, int] = {}
    ids = [np.array([numbers.setdefault(w, len(numbers)) for w in _words().findall(s)], dtype=np.int64) for s in sentences]
    return list(numbers), ids
