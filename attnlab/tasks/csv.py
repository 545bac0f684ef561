"""``csv``: classification of texts in CSV files, such as spreadsheets and databases export.

A file has a header with the names of its columns, one row for each text, and quotation marks around fields that contain the
delimiter or line breaks (RFC 4180). With ``quoting: false``, as in most tab-separated data sets, a quotation mark is text and
each line is a row. A line ends with ``\\n`` or ``\\r\\n`` alone (``attnlab.tasks.lines``). Blank lines are skipped. Anything
else that is missing or malformed is an error with the line, and so are quotation marks that enclose lines that look like rows:
a row that was silently left out would change what is compared. The plan states the rows of each class.

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
import re
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np

from attnlab._util.packages import version_of
from attnlab._util.text import count
from attnlab.errors import UserError, nearest
from attnlab.tasks import SPLITS, known_split
from attnlab.tasks.data_files import DataFile, decode, same_split_notes
from attnlab.tasks.documents import FORMAT, DocumentTask, write_split, write_words
from attnlab.tasks.lines import is_not_nfc, require_line_ends, split_lines
from attnlab.tasks.overlap import NOTABLE
from attnlab.tasks.reference_scores import Reference

logger = logging.getLogger(__name__)

HELD_OUT = 10  # one in so many texts, for each split without a file of its own
HOLD_OUT_SEED = 0
LONGEST_FIELD = 2**31 - 1  # characters; Python's default is 131,072
SHOWN = 10  # names that a message lists
QUOTES_ARE_TEXT = "if quotation marks are text in this file, give quoting: false"


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
    """The rows of one file: their labels, the line on which each ends, and a checksum of each text.

    Attributes:
        folded: a checksum of each text in lower case and with single spaces, as the model reads it.
        words: the number of words of each text between spaces; punctuation marks are separate words.
        is_nfc: the file is in Unicode's normal form C, in which it is read.
        is_utf8: the file is UTF-8 with other characters than ASCII.
    """

    sha256: str
    labels: tuple[str, ...]
    lines: np.ndarray
    texts: np.ndarray
    folded: np.ndarray
    words: np.ndarray
    is_nfc: bool
    is_utf8: bool


class Csv(DocumentTask):
    """Classify the texts of a CSV file.

    Args:
        path: the file, relative to the study's file in a study and to the working directory in Python.
        text, label: the names of the columns with the text and with its class.
        valid, test: separate files for these splits, with the same columns.
        labels: the names of the classes, in the order of their numbers; default: the names in ``path``, sorted.
        delimiter: one character, or ``tab``.
        quoting: quotation marks enclose fields; if false, they are text, and each line is a row.
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
        quoting: bool = True,
        encoding: str = "utf-8",
        length: int = 512,
        vocabulary: int = 50_000,
    ) -> None:
        super().__init__(length=length, vocabulary=vocabulary)
        named = {"path": path, "valid": valid, "test": test}
        self._layout = Layout(text, label, _delimiter(delimiter), _encoding(encoding), quoting)
        if not isinstance(quoting, bool):
            raise UserError(f"quoting: expected true or false, got {quoting!r}")
        if text == label:
            raise UserError(f"label: expected another column, not the text, got {label!r}")
        self._files = {option: DataFile(name, option=option) for option, name in named.items() if name is not None}
        self._rows = {option: _scanned(file, self._layout) for option, file in self._files.items()}
        self.labels = _class_names(labels, self._rows["path"].labels)
        self._similar = [] if labels else _similar(self.labels)
        self.classes = len(self.labels)
        self._numbers = {option: self._numbered(option) for option in self._files}
        self._split_rows = self._assign()

    def _numbered(self, option: str) -> np.ndarray:
        """Return the class number of each row of a file."""
        numbers = {name: number for number, name in enumerate(self.labels)}
        rows, path = self._rows[option], self._files[option].path
        for name, line in zip(rows.labels, rows.lines, strict=True):
            if name not in numbers:
                raise UserError(
                    f"{option}: {path}:{line}: expected one of the labels {_listed(self.labels)}, got {name[:80]!r}"
                )
        return np.array([numbers[name] for name in rows.labels])

    def _assign(self) -> dict[str, tuple[str, np.ndarray]]:
        """Return the file and the rows of each split."""
        derived = [split for split in SPLITS[1:] if split not in self._files]
        parts = _hold_out(self._numbers["path"], self._rows["path"].texts, names=self.labels, splits=derived)
        own = {split: (split, np.arange(len(self._rows[split].labels))) for split in SPLITS[1:] if split in self._files}
        return {split: ("path", rows) for split, rows in parts.items()} | own

    def identity(self) -> str:
        """Return a checksum of the files and of the options that decide which rows and labels are read."""
        digests = {option: rows.sha256 for option, rows in self._rows.items()}
        layout = {name: value for name, value in vars(self._layout).items() if (name, value) != ("quoting", True)}
        layout |= {} if all(rows.is_nfc for rows in self._rows.values()) else {"nfc": True}
        content = json.dumps([digests, layout, self.labels], sort_keys=True)
        return f"csv sha256:{hashlib.sha256(content.encode()).hexdigest()}"

    def count(self, split: str) -> int:
        return len(self._split_rows[known_split(split)][1])

    def data_notes(self) -> list[str]:
        """Return the rows of each class, and notes on texts that are cut or that other splits share with ``train``."""
        rows = {split: (self._rows[option], numbers) for split, (option, numbers) in self._split_rows.items()}
        texts = {split: of.folded[numbers] for split, (of, numbers) in rows.items()}
        notes = [self._counts_note(), *self._similar, *same_split_notes(self._files.get("valid"), self._files.get("test"))]
        misread = [file.path.name for option, file in self._files.items() if self._rows[option].is_utf8]
        if misread and self._layout.encoding not in ("utf-8", "utf-8-sig"):
            notes.append(f"{', '.join(misread)} is UTF-8, but is read as {self._layout.encoding}: set encoding: utf-8")
        for split, (of, numbers) in rows.items():
            if (cut := int((of.words[numbers] > self.length).sum())) >= NOTABLE * len(numbers):
                share = f"at least {cut:,} of the {len(numbers):,} texts of {split}"
                notes.append(
                    f"{share} are longer than {self.length:,} words and are cut; linear reference scores read all of them"
                )
        for split, (option, numbers) in self._split_rows.items():
            if (torn := _with_two_labels(texts[split], self._numbers[option][numbers])) >= NOTABLE * len(numbers):
                share = f"{torn:,} of the {len(numbers):,} texts of {split}"
                notes.append(f"{share} also stand there with another label, so no model can get all of them right")
        for split in SPLITS[1:]:
            shared, count = int(np.isin(texts[split], texts["train"]).sum()), len(texts[split])
            if shared >= NOTABLE * count:
                share = f"{shared:,} of the {count:,} texts of {split} ({100 * shared / count:.1f} %)"
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
        texts = {option: self._read(option) for option in self._files}
        of_split = {split: [texts[option][i] for i in rows] for split, (option, rows) in self._split_rows.items()}
        logger.info("csv: counting the words of %s training texts", f"{len(of_split['train']):,}")
        words = write_words(place, of_split["train"], self.vocabulary)
        for split, (option, rows) in self._split_rows.items():
            write_split(place, split, of_split[split], self._numbers[option][rows].tolist(), words)

    def _read(self, option: str) -> list[str]:
        """Return the texts of a file; raise ``UserError`` if it is not the one that the constructor read."""
        file = self._files[option]
        contents = file.path.read_bytes()
        if hashlib.sha256(contents).hexdigest() != self._rows[option].sha256:
            raise UserError(f"task csv: {file.path} changed after it was first read")
        return [text for _, text, _ in _parsed(contents, file, self._layout)]

    def reference_scores(self) -> dict[str, Reference]:
        """Return the accuracy of always naming the most frequent label of ``train``, and linear classifiers."""
        about = "the most frequent label of train, for every text"
        return {"majority": Reference(about, self._majority_accuracy, options=("label",)), **self.linear_scores()}

    def _majority_accuracy(self, limit: int | None) -> float:
        most = np.bincount(self.split("train").labels).argmax()
        batches = self.eval_batches("test", batch_size=1, limit=limit)
        return float(np.mean(np.concatenate([batch.targets.numpy() == most for batch in batches])))


def _with_two_labels(texts: np.ndarray, labels: np.ndarray) -> int:
    """Return the number of texts (n,) that occur again with another label (n,)."""
    distinct, places = np.unique(texts, return_inverse=True)
    lowest, highest = np.full(len(distinct), np.iinfo(labels.dtype).max, labels.dtype), np.zeros(len(distinct), labels.dtype)
    np.minimum.at(lowest, places, labels)
    np.maximum.at(highest, places, labels)
    return int((lowest != highest)[places].sum())


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


def _scanned(file: DataFile, layout: Layout) -> Rows:
    return _scan(file.path, file.option, file.stamp, layout)


@lru_cache(maxsize=8)  # a study constructs its task often, and each construction needs the labels
def _scan(path: Path, option: str, stamp: tuple[int, int], layout: Layout) -> Rows:
    """Read a file once and keep what the plan needs; ``stamp`` makes a changed file another key of the cache."""
    contents, file = path.read_bytes(), DataFile(str(path), option=option)
    rows = _parsed(contents, file, layout)
    texts = _checksums(text for _, text, _ in rows)
    folded = _checksums(" ".join(text.lower().split()) for _, text, _ in rows)
    labels, lines = tuple(sys.intern(label) for _, _, label in rows), np.array([line for line, _, _ in rows])
    is_nfc = not is_not_nfc(decode(contents, file, encoding=layout.encoding))
    words = np.array([len(text.split()) for _, text, _ in rows])
    return Rows(hashlib.sha256(contents).hexdigest(), labels, lines, texts, folded, words, is_nfc, _is_utf8(contents))


def _is_utf8(contents: bytes) -> bool:
    try:
        return not contents.isascii() and bool(contents.decode("utf-8"))
    except UnicodeDecodeError:
        return False


def _checksums(texts: Iterable[str]) -> np.ndarray:
    """Return (n,) uint64: a checksum of each text."""
    digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.array([int.from_bytes(digest, "little") for digest in digests], dtype=np.uint64)


def _parsed(contents: bytes, file: DataFile, layout: Layout) -> list[tuple[int, str, str]]:
    """Return (line, text, label) of each row of a file.

    Raises:
        UserError: the file is not a valid CSV file, lacks a column, or has a row without a text or a label.
    """
    content = decode(contents, file, encoding=layout.encoding)
    require_line_ends(content, place=f"{file.option}: {file.path}")
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        return _checked(content, _fields(content, file, layout), file, layout)
    finally:
        csv.field_size_limit(before)


def _checked(content: str, fields: Iterator[Fields], file: DataFile, layout: Layout) -> list[tuple[int, str, str]]:
    """Return (line, text, label) of each row of a text, as ``_parsed`` does."""
    header = next(fields, None)
    if header is None:
        raise UserError(f"{file.option}: expected a header and rows in {file.path}, got an empty file")
    text, label = (_column(name, header.values, file, layout, option=option) for option, name in _columns(layout))
    rows: list[tuple[int, str, str]] = []
    spans: list[Fields] = []
    for row in fields:
        place = f"{file.option}: {file.path}:{row.last}"
        if len(row.values) != len(header.values):
            hint = f": {QUOTES_ARE_TEXT}" if row.last > row.first else ""
            raise UserError(f"{place}: expected {len(header.values)} columns as in the header, got {len(row.values)}{hint}")
        for name, index in ((layout.text, text), (layout.label, label)):
            if not row.values[index].strip():
                raise UserError(f"{place}: expected a value in the column {name!r}, got none")
        rows.append((row.last, normalize("NFC", row.values[text].strip()), normalize("NFC", row.values[label].strip())))
        if row.last > row.first:
            spans.append(row)
    if not rows:
        raise UserError(f"{file.option}: expected rows below the header of {file.path}, got none")
    lines, labels = content.split("\n") if spans else [], {name for _, _, name in rows}
    for span in spans:
        if _are_rows(lines[span.first - 1 : span.last], layout, label, labels, columns=len(header.values)):
            enclosed = f"a quotation mark encloses lines {span.first:,} to {span.last:,}, which look like a row each"
            raise UserError(f"{file.option}: {file.path}:{span.first}: expected a row, but {enclosed}: {QUOTES_ARE_TEXT}")
    return rows


@dataclass(frozen=True)
class Fields:
    """The fields of one row, and the first and the last line of the file that it stands on, counted from 1."""

    values: list[str]
    first: int
    last: int


def _fields(content: str, file: DataFile, layout: Layout) -> Iterator[Fields]:
    """Yield the fields of each row of a text that is not blank, the header among them."""
    if not layout.quoting:
        yield from (Fields(line.split(layout.delimiter), n, n) for n, line in enumerate(split_lines(content), start=1) if line)
        return
    reader = csv.reader(io.StringIO(content, newline="\n"), delimiter=layout.delimiter, strict=True)
    done = 0
    try:
        for row in reader:
            if row:
                yield Fields(row, done + 1, reader.line_num)
            done = reader.line_num
    except csv.Error as error:
        place, problem, hint = f"{file.option}: {file.path}", str(error), ""
        if "unexpected end" in problem:
            problem, hint = "a quotation mark is not closed", f": {QUOTES_ARE_TEXT}"
        elif "new-line" in problem:
            problem = "a carriage return that does not belong to the end of a line, outside quotation marks"
        elif "expected after" in problem:
            problem, hint = f"{problem}: text after a closing quotation mark", f": {QUOTES_ARE_TEXT}"
        raise UserError(f"{place}:{done + 1}: not a valid CSV file ({problem}){hint}") from None


def _are_rows(lines: Sequence[str], layout: Layout, label: int, labels: Container[str], *, columns: int) -> bool:
    """Return True when the first, the last and most lines of one row are rows by themselves, when quotation marks are text.

    The lines of a quoted text are not: few have as many delimiters as a row, and a label in its column.

    Args:
        lines: of the row.
        label: the index of the column with the label.
        labels: of the file.
        columns: of the file.
    """
    rows = [line.removesuffix("\r").split(layout.delimiter) for line in lines]
    alike = [len(row) == columns and row[label].strip().strip('"').strip() in labels for row in rows]
    return alike[0] and alike[-1] and 2 * sum(alike) > len(rows)


def _columns(layout: Layout) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("text", layout.text), ("label", layout.label)


def _column(name: str, header: Sequence[str], file: DataFile, layout: Layout, *, option: str) -> int:
    """Return the index of a column."""
    names = [column.strip() for column in header]
    if names.count(name) == 1:
        return names.index(name)
    if name in names:
        raise UserError(f"{option}: expected one column {name!r} in {file.path}, got {names.count(name)}")
    other = [character for character in ",;\t|" if len(names) == 1 and character in names[0] and character != layout.delimiter]
    hint = f"; is the delimiter {other[0]!r}?" if other else nearest(name, names)
    raise UserError(f"{option}: expected a column {name!r} in {file.path}; its header is {_listed(names)}{hint}")


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


def _similar(labels: Sequence[str]) -> list[str]:
    """Return a note on two labels that are equal up to case, or as numbers."""
    first: dict[str | float, str] = {}
    for label in labels:
        number = re.fullmatch(r"[+-]?\d+(\.\d*)?", label)
        other = first.setdefault(float(label) if number else label.casefold(), label)
        if other != label:
            return [f"the labels {other!r} and {label!r} are two classes: write them alike if they are one, or list `labels`"]
    return []


def _hold_out(labels: np.ndarray, texts: np.ndarray, *, names: Sequence[str], splits: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the rows of ``train`` and of each of ``splits``, in order: equal texts together, and shares for each label.

    Args:
        labels: (n,) class numbers.
        texts: (n,) checksums.
        names: of the classes.
    """
    _, first, group = np.unique(texts, return_index=True, return_inverse=True)
    rng = np.random.default_rng(HOLD_OUT_SEED)
    part = np.zeros(len(first), dtype=int)  # of each different text: 0 is train
    for number, name in enumerate(names):
        own = rng.permutation(np.flatnonzero(labels[first] == number))
        held = max(1, len(own) // HELD_OUT)
        if splits and len(own) <= len(splits):
            texts_of_label = f"the label {name!r} has {count(len(own), 'different text')}"
            least = f"a split into {', '.join(['train', *splits[:-1]])} and {splits[-1]} needs {len(splits) + 1}"
            raise UserError(f"path: {texts_of_label}, and {least}: give {' and '.join(splits)} as files")
        for i in range(len(splits)):
            part[own[i * held : (i + 1) * held]] = i + 1
    return {split: np.flatnonzero(part[group] == i) for i, split in enumerate(["train", *splits])}


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(name[:80] for name in names[:SHOWN]) + more
