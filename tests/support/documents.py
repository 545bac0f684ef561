"""A small made-up corpus of documents, in place of enwik8's articles."""

import numpy as np
import pytest

from attnlab.tasks import corpora

WORDS = [a + b for a in ("ba", "ko", "mi", "tu", "re") for b in ("la", "ni", "so", "d", "gar")]


def documents(seed: int, count: int) -> corpora.Documents:
    """Return documents of 1 to 8 sentences. Each has a word of its own, which begins every sentence of it."""
    rng = np.random.default_rng(seed)
    return [
        [" ".join([f"x{seed}{n}", *rng.choice(WORDS, rng.integers(2, 9))]) + "." for _ in range(rng.integers(1, 9))]
        for n in range(count)
    ]


def use_small_corpus(monkeypatch: pytest.MonkeyPatch) -> dict[str, corpora.Documents]:
    """Put made-up documents in place of ``enwik8`` and return them."""
    splits = {"train": documents(0, 60), "valid": documents(1, 20), "test": documents(2, 20)}
    monkeypatch.setitem(corpora.CORPORA, "enwik8", corpora.Corpus(lambda: "made up", lambda: splits))
    return splits
