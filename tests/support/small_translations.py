"""A made-up language pair: each English word has one German word, and adjectives of color follow the noun."""

from pathlib import Path
from typing import Any

import numpy as np

NOUNS = {"Hund": "dog", "Mann": "man", "Ball": "ball", "Frau": "woman", "Haus": "house", "Baum": "tree"}
COLOURS = {"rot": "red", "blau": "blue", "grün": "green", "weiß": "white"}
VERBS = {"sieht": "sees", "malt": "paints", "mag": "likes"}


def pairs(count: int, *, seed: int = 0) -> list[tuple[str, str]]:
    """Return ``count`` different pairs of sentences, of one to three clauses."""
    rng = np.random.default_rng(seed)
    drawn: dict[str, str] = {}
    while len(drawn) < count:
        clauses = [_clause(rng) for _ in range(rng.integers(1, 4))]
        source, target = (", und ".join(c[0] for c in clauses) + ".", ", and ".join(c[1] for c in clauses) + ".")
        drawn[source] = target
    return list(drawn.items())


def _clause(rng: np.random.Generator) -> tuple[str, str]:
    (subject, dog), (thing, ball) = (list(NOUNS.items())[i] for i in rng.integers(len(NOUNS), size=2))
    color, red = list(COLOURS.items())[rng.integers(len(COLOURS))]
    verb, sees = list(VERBS.items())[rng.integers(len(VERBS))]
    return f"Ein {subject} {verb} ein {thing} {color}", f"A {dog} {sees} a {red} {ball}"


def write(folder: Path, split: str, rows: list[tuple[str, str]]) -> dict[str, Any]:
    """Write the two files of a split, ``train.de`` and ``train.en``, and return the options that name them."""
    options: dict[str, Any] = {}
    for number, (side, language) in enumerate((("source", "de"), ("target", "en"))):
        path = folder / f"{split}.{language}"
        path.write_text("".join(row[number] + "\n" for row in rows), encoding="utf-8")
        options[side if split == "train" else f"{split}_{side}"] = str(path)
    return options
