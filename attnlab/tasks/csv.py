"""``csv``: classification of texts in CSV or JSONL files, such as spreadsheets and databases export.

A CSV file has a header with the names of its columns and one row for each text, as ``pandas.read_csv`` reads it. A line ends
with ``\\n`` or ``\\r\\n`` alone (``attnlab.tasks.lines``). Quotation marks enclose fields that contain the delimiter or line
breaks. In tab-separated files they are text by default, as in most data sets: a mark that opens a field and is closed lines
later would swallow the rows between. A file whose name ends in ``.jsonl`` has one JSON object a line instead.

A row without a text or a label is an error: a row that was silently left out would change what is compared. The plan states
the rows of each class and the first row, by which you see how a file was read.

Without separate files, ``valid`` and ``test`` are each 10 % of the different texts of every label in ``path``, chosen with
a fixed seed. Rows with the same text stay in the same split.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import numpy as np

from attnlab._util.packages import version_of
from attnlab._util.text import count
from attnlab.errors import UserError, nearest
from attnlab.tasks import SPLITS, known_split
from attnlab.tasks.data_files import DataFile, decode, same_split_notes
from attnlab.tasks.documents import FORMAT, DocumentTask, write_split, write_words
from attnlab.tasks.overlap import NOTABLE
from attnlab.tasks.reference_scores import Reference

if TYPE_CHECKING:
    from pandas import DataFrame

logger = logging.getLogger(__name__)

HELD_OUT = 10  # one in so many texts, for each split without a file of its own
HOLD_OUT_SEED = 0
SHOWN = 10  # names that a message lists
CHARACTERS = 60  # of a text that a message shows


@dataclass(frozen=True)
class Layout:
    """The options that say how a file is read: its two columns, its delimiter, its quotation marks and its encoding."""

    text: str
    label: str
    delimiter: str
    encoding: str
    quoting: bool


@dataclass(frozen=True)
class Rows:
    """The texts and labels of one file, and its checksum."""

    sha256: str
    texts: list[str]
    labels: list[str]


class Csv(DocumentTask):
    """Classify the texts of a CSV or JSONL file.

    Args:
        path: the file, relative to the study's file in a study and to the working directory in Python.
        text, label: the names of the columns with the text and with its class.
        valid, test: separate files for these splits, with the same columns.
        labels: the names of the classes, in the order of their numbers; default: the names in ``path``, sorted.
        delimiter: one character, or ``tab``.
        quoting: quotation marks enclose fields; if false, they are text. Default: true, but false with ``delimiter: tab``.
        encoding: of all files, a name that Python knows.
        length: number of words read from the beginning of a text.
        vocabulary: number of word ids, including [PAD] = 0 and [UNK] = 1.
    """

    files = ("path", "valid", "test")

    def __init__(
        self,
        *,
        path: str,
        text: str = "text",
        label: str = "label",
        valid: str | None = None,
        test: str | None = None,
        labels: list[str | int] | None = None,
        delimiter: str = ",",
        quoting: bool | None = None,
        encoding: str = "utf-8",
        length: int = 512,
        vocabulary: int = 50_000,
    ) -> None:
        super().__init__(length=length, vocabulary=vocabulary)
        named = {"path": path, "valid": valid, "test": test}
        separator = _delimiter(delimiter)
        quoted = separator != "\t" if quoting is None else quoting
        self._layout = Layout(text, label, separator, _encoding(encoding), quoted)
        self._files = {option: DataFile(name, option=option) for option, name in named.items() if name is not None}
        self._rows = {o: _read(file.path, o, file.stamp, self._layout) for o, file in self._files.items()}
        self.labels = _class_names(labels, self._rows["path"].labels)
        self.classes = len(self.labels)
        self._numbers = {option: self._numbered(option) for option in self._files}
        self._split_rows = self._assign()

    def _numbered(self, option: str) -> np.ndarray:
        """Return the class number of each row of a file."""
        numbers = {name: number for number, name in enumerate(self.labels)}
        for name in self._rows[option].labels:
            if name not in numbers:
                known, path = _listed(self.labels), self._files[option].path
                raise UserError(f"{option}: expected one of the labels {known} in {path}, got {name[:80]!r}")
        return np.array([numbers[name] for name in self._rows[option].labels])

    def _assign(self) -> dict[str, tuple[str, np.ndarray]]:
        """Return the file and the rows of each split."""
        derived = [split for split in SPLITS[1:] if split not in self._files]
        parts = _hold_out(self._numbers["path"], self._rows["path"].texts, names=self.labels, splits=derived)
        own = {split: (split, np.arange(len(self._rows[split].labels))) for split in SPLITS[1:] if split in self._files}
        return {split: ("path", rows) for split, rows in parts.items()} | own

    def identity(self) -> str:
        """Return a checksum of the files and of the options that decide which rows and labels are read."""
        digests = {option: rows.sha256 for option, rows in self._rows.items()}
        content = json.dumps([digests, vars(self._layout), self.labels], sort_keys=True)
        return f"csv sha256:{hashlib.sha256(content.encode()).hexdigest()}"

    def count(self, split: str) -> int:
        return len(self._split_rows[known_split(split)][1])

    def _texts(self, split: str) -> list[str]:
        option, rows = self._split_rows[split]
        return [self._rows[option].texts[i] for i in rows]

    def data_notes(self) -> list[str]:
        """Return the rows of each class, the first row, and notes on texts that other splits share with ``train``."""
        first = self._rows["path"]
        notes = [self._counts_note(), f"the first row: {first.labels[0][:80]!r} for {first.texts[0][:CHARACTERS]!r}"]
        notes += same_split_notes(self._files.get("valid"), self._files.get("test"))
        texts = {split: [" ".join(text.lower().split()) for text in self._texts(split)] for split in SPLITS}
        known = set(texts["train"])
        for split in SPLITS[1:]:
            shared, total = sum(text in known for text in texts[split]), len(texts[split])
            if shared >= NOTABLE * total:
                share = f"{shared:,} of the {total:,} texts of {split} ({100 * shared / total:.1f} %)"
                notes.append(f"{share} are also in train, up to case and spaces: a model may have memorized them")
        return notes

    def _counts_note(self) -> str:
        """Return the number of rows of each split and, of up to ``SHOWN`` classes, of each class."""
        parts = []
        for split, (option, rows) in self._split_rows.items():
            counts = np.bincount(self._numbers[option][rows], minlength=self.classes)
            named = ", ".join(f"{count:,} {name[:80]}" for name, count in zip(self.labels, counts, strict=True))
            shown = named if self.classes <= SHOWN else f"{(counts > 0).sum():,} classes"
            parts.append(f"{split} {len(rows):,} ({shown})")
        total = sum(self.count(split) for split in SPLITS)
        return f"{total:,} rows in {self.classes:,} classes: {', '.join(parts)}"

    @property
    def data_name(self) -> str:
        return "csv"

    def data_key(self) -> dict[str, Any]:
        return {
            "identity": self.identity(),
            "vocabulary": self.vocabulary,
            "tokenizers": version_of("tokenizers"),
            "held_out": [HELD_OUT, HOLD_OUT_SEED],
            "format": FORMAT,
        }

    def build_data(self, place: Path) -> None:
        logger.info("csv: counting the words of %s training texts", f"{self.count('train'):,}")
        words = write_words(place, self._texts("train"), self.vocabulary)
        for split, (option, rows) in self._split_rows.items():
            write_split(place, split, self._texts(split), self._numbers[option][rows].tolist(), words)

    def reference_scores(self) -> dict[str, Reference]:
        """Return the accuracy of always naming the most frequent label of ``train``, and linear classifiers."""
        about = "the most frequent label of train, for every text"
        return {"majority": Reference(about, self._majority_accuracy, options=("label",)), **self.linear_scores()}

    def _majority_accuracy(self, limit: int | None) -> float:
        most = np.bincount(self.split("train").labels).argmax()
        batches = self.eval_batches("test", batch_size=1, limit=limit)
        return float(np.mean(np.concatenate([batch.targets.numpy() == most for batch in batches])))


def _delimiter(delimiter: str) -> str:
    character = "\t" if delimiter == "tab" else delimiter
    if len(character) != 1 or character in '"\r\n':
        raise UserError(f"delimiter: expected one character such as ; or tab, got {delimiter!r}")
    return character


def _encoding(encoding: str) -> str:
    try:
        b"a".decode(encoding, errors="ignore")  # a LookupError for an unknown name, and for codecs that are not of text
        return codecs.lookup(encoding).name
    except (LookupError, ValueError):
        raise UserError(f"encoding: expected the name of an encoding such as utf-8 or latin-1, got {encoding!r}") from None


@lru_cache(maxsize=8)  # a study constructs its task often
def _read(path: Path, option: str, stamp: tuple[int, int], layout: Layout) -> Rows:
    """Return the rows of a file; ``stamp`` makes a changed file another key of the cache.

    Raises:
        UserError: the file cannot be parsed, lacks a column, or has a row without a text or a label.
    """
    contents, file = path.read_bytes(), DataFile(str(path), option=option)
    frame = _parsed(decode(contents, file, encoding=layout.encoding).replace("\r\n", "\n"), file, layout)
    texts, labels = (_column(name, getattr(layout, name), frame, file) for name in ("text", "label"))
    if not texts:
        raise UserError(f"{option}: expected rows in {path}, got none")
    return Rows(hashlib.sha256(contents).hexdigest(), texts, labels)


def _parsed(content: str, file: DataFile, layout: Layout) -> DataFrame:
    """Return the rows of a file, with the names of its columns."""
    import pandas as pd

    try:
        if file.path.suffix == ".jsonl":
            return pd.read_json(io.StringIO(content), lines=True, dtype=False)  # type: ignore[arg-type]
        frame = pd.read_csv(
            io.StringIO(content),
            sep=layout.delimiter,
            quoting=csv.QUOTE_MINIMAL if layout.quoting else csv.QUOTE_NONE,
            lineterminator="\n",  # else a lone carriage return ends a line
            header=None,  # else pandas takes the first column of longer rows for their names
            dtype=str,
            keep_default_na=False,
        )
    except ValueError as error:  # which pandas' errors are
        hint = "; if quotation marks are text in this file, give quoting: false" if "string" in str(error) else ""
        raise UserError(f"{file.option}: cannot read {file.path}: {str(error).strip()}{hint}") from None
    return frame.iloc[1:].set_axis([name.strip() for name in frame.iloc[0]], axis=1)


def _column(option: str, name: str, frame: DataFrame, file: DataFile) -> list[str]:
    """Return the column that an option names, in Unicode NFC; raise ``UserError`` if there is not one, or no value in a row."""
    names = [str(column) for column in frame.columns]
    if names.count(name) != 1:
        found = f"its columns are {_listed(names)}{nearest(name, names)}"
        raise UserError(f"{option}: expected one column {name!r} in {file.path}; {found}")
    values = [normalize("NFC", value.strip()) for value in frame[name].where(frame[name].notna(), "").astype(str)]
    if "" in values:
        row = frame.index[values.index("")] + 1
        raise UserError(f"{file.option}: expected a value in the column {name!r} of {file.path}, got none in row {row:,}")
    return values


def _class_names(stated: Sequence[str | int] | None, present: Sequence[str]) -> list[str]:
    """Return the names of the classes: the option ``labels``, or else from the rows, in order."""
    used = set(present)
    names = [str(name) for name in stated] if stated is not None else sorted(used)
    if stated is None and all(name.isdecimal() for name in names):
        names.sort(key=int)
    if len(set(names)) < len(names):
        raise UserError(f"labels: expected different names, got {_listed(names)}")
    if missing := [name for name in names if name not in used]:
        raise UserError(f"labels: expected labels of path, {_listed(sorted(used))}, got {missing[0]!r}, which no row has")
    if len(names) < 2:
        raise UserError(f"label: expected at least two different labels in path, got {_listed(names) or 'none'}")
    return names


def _hold_out(
    labels: np.ndarray, texts: Sequence[str], *, names: Sequence[str], splits: Sequence[str]
) -> dict[str, np.ndarray]:
    """Return the rows of ``train`` and of each of ``splits``, in order: equal texts together, and shares for each label.

    Args:
        labels: (n,) class numbers.
        texts: of each row.
        names: of the classes.
    """
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    group = np.array([numbers[text] for text in texts])
    _, first = np.unique(group, return_index=True)
    rng = np.random.default_rng(HOLD_OUT_SEED)
    part = np.zeros(len(first), dtype=int)  # of each different text: 0 is train
    for number, name in enumerate(names):
        own = rng.permutation(np.flatnonzero(labels[first] == number))
        held = max(1, len(own) // HELD_OUT)
        if splits and len(own) <= len(splits):
            texts_of_label = f"the label {name!r} has {count(len(own), 'different text')}"
            raise UserError(f"path: {texts_of_label}, too few for {' and '.join(splits)}: give them as files")
        for i in range(len(splits)):
            part[own[i * held : (i + 1) * held]] = i + 1
    return {split: np.flatnonzero(part[group] == i) for i, split in enumerate(["train", *splits])}


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(name[:80] for name in names[:SHOWN]) + more
