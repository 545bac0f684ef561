"""The splits of the Large Movie Review Dataset, which the task ``imdb`` and the corpus of the same name share.

The data set has no validation split: 10 % of its training half is held out, stratified, with a separate fixed seed.
"""

import numpy as np

from attnlab.tasks import datasets
from attnlab.tasks.archives import IMDB, REVIEWS_PER_FOLDER

HELD_OUT = REVIEWS_PER_FOLDER // 10  # reviews of each class in ``valid``
HOLD_OUT_SEED = 0
CLASSES = ("neg", "pos")  # numbers 0 and 1


def identity() -> str:
    """Return a string that identifies the reviews."""
    return f"imdb sha256:{IMDB.contents}"


def sizes() -> dict[str, int]:
    """Return the number of reviews of each split."""
    per_class = {"train": REVIEWS_PER_FOLDER - HELD_OUT, "valid": HELD_OUT, "test": REVIEWS_PER_FOLDER}
    return {split: len(CLASSES) * count for split, count in per_class.items()}


def read() -> dict[str, tuple[list[str], list[int]]]:
    """Return the texts and the labels of each split, after fetching and verifying the archive."""
    reviews = datasets.load(IMDB)
    return {
        split: ([reviews[name].decode() for name in names], [CLASSES.index(name.split("/")[1]) for name in names])
        for split, names in hold_out(list(reviews)).items()
    }


def hold_out(names: list[str]) -> dict[str, list[str]]:
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
