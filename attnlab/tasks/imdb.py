"""``imdb``: sentiment of the 50,000 film reviews of the Large Movie Review Dataset (Maas et al. 2011).

The data set has no validation split: 10 % of its training half is held out, stratified, with a fixed seed of its own,
so that ``train`` has 22,500 reviews, ``valid`` 2,500 and ``test`` 25,000. The data set repeats a few reviews, and so do the
splits: 110 texts are in both ``train`` and ``test``, 16 in ``train`` and ``valid``, 13 in ``valid`` and ``test``, all with the
same label in both.
"""

from __future__ import annotations

import logging
from importlib.metadata import version
from pathlib import Path

import numpy as np

from attnlab.tasks import SPLITS, datasets, known_split
from attnlab.tasks.archives import IMDB, REVIEWS_PER_FOLDER
from attnlab.tasks.documents import FORMAT, DocumentTask, write_split, write_words
from attnlab.tasks.reference_scores.base import Reference

logger = logging.getLogger(__name__)

HELD_OUT = REVIEWS_PER_FOLDER // 10  # reviews of each class in ``valid``
HOLD_OUT_SEED = 0
CLASSES = ("neg", "pos")  # numbers 0 and 1


class Imdb(DocumentTask):
    """Classify reviews of films as unfavourable (0) or favourable (1).

    Args:
        length: number of words read from the beginning of a review.
        vocabulary: number of word ids, including [PAD] = 0 and [UNK] = 1.
    """

    classes = len(CLASSES)

    def __init__(self, *, length: int = 512, vocabulary: int = 50_000) -> None:
        super().__init__(length=length, vocabulary=vocabulary)

    def identity(self) -> str:
        return f"imdb sha256:{IMDB.contents}"

    def count(self, split: str) -> int:
        per_class = {"train": REVIEWS_PER_FOLDER - HELD_OUT, "valid": HELD_OUT, "test": REVIEWS_PER_FOLDER}
        return len(CLASSES) * per_class[known_split(split)]

    def prepared(self) -> Path:
        key = {
            "contents": IMDB.contents,
            "vocabulary": self.vocabulary,
            "tokenizers": version("tokenizers"),
            "held_out": [HELD_OUT, HOLD_OUT_SEED],
            "format": FORMAT,
        }
        return datasets.prepared("imdb", key, lambda place: _build(place, self.vocabulary))

    def reference_scores(self) -> dict[str, Reference]:
        return self.linear_scores()


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


def _build(place: Path, vocabulary: int) -> None:
    """Write the prepared files: ``words.json`` and three arrays for each split."""
    reviews = datasets.load(IMDB)
    splits = _hold_out(list(reviews))
    texts = {split: [reviews[name].decode() for name in names] for split, names in splits.items()}
    logger.info("imdb: counting the words of %s training reviews", f"{len(texts['train']):,}")
    words = write_words(place, texts["train"], vocabulary)
    for split in SPLITS:
        logger.info("imdb: encoding the %s reviews of %s", f"{len(texts[split]):,}", split)
        labels = [CLASSES.index(name.split("/")[1]) for name in splits[split]]
        write_split(place, split, texts[split], labels, words)
