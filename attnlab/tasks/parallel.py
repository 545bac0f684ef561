"""``translation``: your own parallel text, two files for each split with one sentence a line.

Lines with the same number translate each other. A line ends with ``\\n`` or ``\\r\\n`` alone (``attnlab.tasks.lines``).

Without separate files, ``valid`` and ``test`` are each 10 % of the pairs, chosen with a fixed seed. Pairs with the same
source stay in the same split.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks import SPLITS, known_split
from attnlab.tasks.data_files import DataFile, decode, same_split_notes
from attnlab.tasks.translation import SIDES, TranslationTask, read_lines

HELD_OUT = 10  # one in so many sources, for each split without files of its own
HOLD_OUT_SEED = 0


@dataclass(frozen=True)
class Side:
    """The sentences of one file, and its checksum."""

    sha256: str
    lines: list[str]


class Parallel(TranslationTask):
    """Translate the sentences of your files.

    Args:
        source, target: the files of ``train``, relative to the study's file in a study and to the working directory in
            Python.
        valid_source, valid_target, test_source, test_target: separate files for these splits.
        vocabulary: the most subwords, including [PAD] = 0, [BOS] = 1, [EOS] = 2 and [UNK] = 3.
        length: tokens of a sentence that are read, with its end token.
        lower: learn, translate and score lower-cased text.
        label_smoothing: share of the targets' probability that the training loss spreads over the vocabulary.
        beam: hypotheses that decoding keeps; 1 is greedy.
        length_penalty: exponent of the length in the score of a hypothesis; for beams only.
        bleu_tokenizer: how sacrebleu finds the words of BLEU: 13a, intl, char, zh, ja-mecab or ko-mecab.
    """

    files = ("source", "target", "valid_source", "valid_target", "test_source", "test_target")

    def __init__(
        self,
        *,
        source: str,
        target: str,
        valid_source: str | None = None,
        valid_target: str | None = None,
        test_source: str | None = None,
        test_target: str | None = None,
        vocabulary: int = 8000,
        length: int = 128,
        lower: bool = False,
        label_smoothing: float = 0.0,
        beam: int = 1,
        length_penalty: float = 0.6,
        bleu_tokenizer: str = "13a",
    ) -> None:
        super().__init__(
            vocabulary=vocabulary,
            length=length,
            lower=lower,
            label_smoothing=label_smoothing,
            beam=beam,
            length_penalty=length_penalty,
            bleu_tokenizer=bleu_tokenizer,
        )
        named = {"": (source, target), "valid_": (valid_source, valid_target), "test_": (test_source, test_target)}
        self._files = {
            (split, side): DataFile(name, option=f"{prefix}{side}")
            for (prefix, names), split in zip(named.items(), SPLITS, strict=True)
            for side, name in zip(SIDES, names, strict=True)
            if name is not None
        }
        self._sides = {key: _read(file.path, file.option, file.stamp) for key, file in self._files.items()}
        for split in SPLITS:
            self._require_pairs(split)
        self._rows = self._assign()

    def _require_pairs(self, split: str) -> None:
        """Raise ``UserError`` unless a split has no files, or two with the same number of lines."""
        files = [self._files[split, side] for side in SIDES if (split, side) in self._files]
        if len(files) == 1:
            raise UserError(f"{files[0].option}: expected files of both sides of {split}, got one, {files[0].path}")
        counts = [len(self._sides[split, side].lines) for side in SIDES if files]
        if len(set(counts)) > 1:
            numbers = f"{files[0].path} has {counts[0]:,} and {files[1].path} {counts[1]:,}"
            raise UserError(f"{files[1].option}: expected as many lines as in the source, but {numbers}")

    def _assign(self) -> dict[str, tuple[str, np.ndarray]]:
        """Return for each split the one that provides its files, and the numbers of its lines there."""
        derived = [split for split in SPLITS[1:] if (split, "source") not in self._files]
        sources = self._sides["train", "source"].lines
        numbers = {source: number for number, source in enumerate(dict.fromkeys(sources))}
        group, different = np.array([numbers[source] for source in sources]), len(numbers)
        held = max(1, different // HELD_OUT)
        if derived and different <= len(derived):
            raise UserError(
                f"source: expected at least {len(derived) + 1} different source sentences to hold out "
                f"{' and '.join(derived)}, got {different}"
            )
        part = np.zeros(different, dtype=int)  # of each different source: 0 is train
        shuffled = np.random.default_rng(HOLD_OUT_SEED).permutation(different)
        for i in range(len(derived)):
            part[shuffled[i * held : (i + 1) * held]] = i + 1
        rows = {split: ("train", np.flatnonzero(part[group] == i)) for i, split in enumerate(["train", *derived])}
        own = {split: (split, np.arange(len(self._sides[split, "source"].lines))) for split in SPLITS[1:] if split not in rows}
        return rows | own

    def contents(self) -> str:
        digests = {self._files[key].option: side.sha256 for key, side in self._sides.items()}
        content = json.dumps([digests, HELD_OUT, HOLD_OUT_SEED], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def data_notes(self) -> list[str]:
        return [*super().data_notes(), *same_split_notes(*(self._files.get((split, "target")) for split in SPLITS[1:]))]

    def count(self, split: str) -> int:
        return len(self._rows[known_split(split)][1])

    def lines(self) -> dict[tuple[str, str], list[str]]:
        return {
            (split, side): [self._sides[origin, side].lines[i] for i in rows]
            for split, (origin, rows) in self._rows.items()
            for side in SIDES
        }


@lru_cache(maxsize=16)  # a study constructs its task often
def _read(path: Path, option: str, stamp: tuple[int, int]) -> Side:
    """Return the sentences of a file; ``stamp`` makes a changed file another key of the cache."""
    contents = path.read_bytes()
    lines = read_lines(decode(contents, DataFile(str(path), option=option)), place=f"{option}: {path}")
    return Side(hashlib.sha256(contents).hexdigest(), lines)
