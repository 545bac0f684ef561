"""``translation``: your own parallel text, two files for each split with one sentence a line.

Lines with the same number translate each other. A line ends with ``\\n`` or ``\\r\\n`` alone (``attnlab.tasks.lines``).

Without separate files, ``valid`` and ``test`` are each 10 % of the pairs, chosen with a fixed seed. Pairs with the same
source stay in the same split.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks import SPLITS, known_split
from attnlab.tasks.data_files import DataFile, decode, same_split_notes
from attnlab.tasks.lines import OTHER_BREAKS, Found, find, form_notes, is_not_nfc
from attnlab.tasks.translation import SIDES, TranslationTask, read_lines

HELD_OUT = 10  # one in so many sources, for each split without files of its own
HOLD_OUT_SEED = 0
RULES = 2  # format of what is read of lines with unusual characters, which earlier versions scored wrongly


@dataclass(frozen=True)
class Scan:
    """One file as the plan needs it: a checksum of it, and one of each of its lines.

    Attributes:
        breaks: the lines with a character that other programs take for the end of a line.
        not_nfc: the lines that are not in Unicode's normal form C.
    """

    sha256: str
    lines: np.ndarray
    breaks: Found
    not_nfc: Found


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
        self._scans = {key: _scan(file.path, file.option, file.stamp) for key, file in self._files.items()}
        for split in SPLITS:
            self._require_pairs(split)
        self._rows = self._assign()

    def _require_pairs(self, split: str) -> None:
        """Raise ``UserError`` unless a split has no files, or two with the same number of lines."""
        files = [self._files[split, side] for side in SIDES if (split, side) in self._files]
        if len(files) == 1:
            raise UserError(f"{files[0].option}: expected files of both sides of {split}, got one, {files[0].path}")
        counts = [len(self._scans[split, side].lines) for side in SIDES if files]
        if len(set(counts)) > 1:
            numbers = f"{files[0].path} has {counts[0]:,} and {files[1].path} {counts[1]:,}"
            raise UserError(f"{files[1].option}: expected as many lines as in the source, but {numbers}")

    def _assign(self) -> dict[str, tuple[str, np.ndarray]]:
        """Return for each split the one that provides its files, and the numbers of its lines there."""
        derived = [split for split in SPLITS[1:] if (split, "source") not in self._files]
        texts = self._scans["train", "source"].lines
        _, group = np.unique(texts, return_inverse=True)
        different = int(group.max()) + 1
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
        own = {split: (split, np.arange(len(self._scans[split, "source"].lines))) for split in SPLITS[1:] if split not in rows}
        return rows | own

    def contents(self) -> str:
        digests = {self._files[key].option: scan.sha256 for key, scan in self._scans.items()}
        rules = [RULES] if any(scan.breaks.count or scan.not_nfc.count for scan in self._scans.values()) else []
        content = json.dumps([digests, HELD_OUT, HOLD_OUT_SEED, *rules], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def data_notes(self) -> list[str]:
        """Return the notes of every translation, and those on lines with unusual characters."""
        same = same_split_notes(*(self._files.get((split, "target")) for split in SPLITS[1:]))
        return [*super().data_notes(), *same, *self._form_notes()]

    def _form_notes(self) -> Iterator[str]:
        breaks, not_nfc = (
            [
                f"{found.count:,} of the {len(scan.lines):,} lines of {self._files[key].path.name} (first line {found.first:,})"
                for key, scan in self._scans.items()
                if (found := getattr(scan, name)).count
            ]
            for name in ("breaks", "not_nfc")
        )
        for side in SIDES if not self.lower else ():
            files = {split: self._files[split, side].path for split in SPLITS if (split, side) in self._files}
            yield from form_notes(files, of=["case"])
        if breaks:
            what = "a carriage return or another character that some programs take for the end of a line, read as a space"
            yield f"{', '.join(breaks)}: they contain {what}"
        if not_nfc:
            yield f"{', '.join(not_nfc)}: they are not in Unicode NFC, the form in which they are read and scored"

    def count(self, split: str) -> int:
        return len(self._rows[known_split(split)][1])

    def lines(self) -> dict[tuple[str, str], list[str]]:
        texts: dict[tuple[str, str], list[str]] = {}
        for key, file in self._files.items():
            contents = file.path.read_bytes()
            if hashlib.sha256(contents).hexdigest() != self._scans[key].sha256:
                raise UserError(f"task translation: {file.path} changed after it was first read")
            texts[key] = _lines(contents, file)
        return {
            (split, side): [texts[origin, side][i] for i in rows]
            for split, (origin, rows) in self._rows.items()
            for side in SIDES
        }


def _lines(contents: bytes, file: DataFile) -> list[str]:
    return read_lines(decode(contents, file, encoding="utf-8"), place=f"{file.option}: {file.path}")


@lru_cache(maxsize=16)  # a study constructs its task often, and each construction needs the number of lines
def _scan(path: Path, option: str, stamp: tuple[int, int]) -> Scan:
    """Read a file once and keep what the plan needs; ``stamp`` makes a changed file another key of the cache."""
    contents = path.read_bytes()
    lines = _lines(contents, DataFile(str(path), option=option))
    digests = [int.from_bytes(hashlib.blake2b(line.encode(), digest_size=8).digest(), "little") for line in lines]
    breaks, not_nfc = find(lines, OTHER_BREAKS.search), find(lines, is_not_nfc)
    return Scan(hashlib.sha256(contents).hexdigest(), np.array(digests, dtype=np.uint64), breaks, not_nfc)
