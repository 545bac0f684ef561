"""Translation without a network: nearest neighbors, and word by word by IBM model 1.

References:
    Brown, P. F. et al. (1993). The mathematics of statistical machine translation: parameter estimation. Computational
    Linguistics 19(2).
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from attnlab.tasks.reference_scores.base import Reference
from attnlab.tasks.translation_scores import UNSPACED

COPY = "the source sentence itself"
NEAREST = "the target of the training pair with the source of the highest TF-IDF cosine similarity (words and pairs of words)"
IBM_MODEL_1 = "the most probable translation of each word by IBM model 1, in the order of the source; unknown words are copied"

ROUNDS = 10  # of expectation maximization
ROWS = 100  # sentences that are compared with all of train at a time
_UNSPACED = UNSPACED.pattern  # each character of a script without spaces counts as a word
_SPACE_BEFORE = re.compile(rf" (?=[.,;:!?])|(?<={_UNSPACED}) (?={_UNSPACED}|[、。，．！？；：])")


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
