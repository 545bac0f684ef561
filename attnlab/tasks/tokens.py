"""``tokens``: files of token numbers, as a tokenizer writes them for the training of a language model.

A file is a plain array of little-endian uint16 or uint32 numbers without a header. It is memory-mapped. A file that
contradicts this, the type or the vocabulary is refused, and the plan notes unusual numbers.

Bits per token depend on the tokenizer. Bits per byte do not, but they need the number of bytes of each token: with
``token_bytes``, the metric is the bits of all predicted tokens over the bytes of exactly these tokens, under every limit and
protocol. Without it, bits per byte are not estimated, and the metric is bits per token.

A file of numbers carries neither its type nor its byte order or vocabulary, so that a wrong option reads other numbers without
an error. What cannot be tokens is refused (``require_tokens``). What is unusual is a note in the plan (``token_notes``): rows
may be padded on purpose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attnlab.errors import UserError, nearest
from attnlab.tasks import SPLITS, reference_scores, whole_number
from attnlab.tasks.data_files import DataFile, SplitFiles, decode
from attnlab.tasks.lines import split_lines
from attnlab.tasks.reference_scores import Reference
from attnlab.tasks.sequence import SequenceTask, count_bytes

HEAD = 4096  # bytes of a file that are compared with other formats
FEW = 64  # numbers, below which nothing is concluded from their distribution
MANY = 1_000  # numbers from which the entropy of their bytes is estimated
LEAD = 512  # numbers that a header may take
ALTERNATING = 0.5  # total variation distance between numbers at different positions
ALIKE = 0.2  # likewise, of numbers at positions that do not differ
UNIFORM = 7.0  # bits of a byte: of hashed tokens it has about 8, of a text or of frequent tokens fewer
PADDED = 0.5  # share of one token that is noted
SENTINEL = 128  # largest number n such that -n is likely to mark padding or ignored targets
SWAPPED = 1.5  # bits: by so much the upper byte's entropy exceeds the lower one's if they are swapped

FORMATS = {  # the first bytes of files that are no plain array
    b"\x93NUMPY": "a file of numpy: write it with array.tofile",
    b"PK\x03\x04": "a zip archive, such as numpy's .npz or a checkpoint of PyTorch",
    b"\x1f\x8b\x08": "a gzip archive",
    b"\x28\xb5\x2f\xfd": "a zstandard archive",
    b"\xfd7zXZ": "an xz archive",
    b"\x89HDF": "a file of HDF5",
    b"PAR1": "a file of Parquet",
    b"ARROW1": "a file of Arrow",
    b"MMIDIDX": "an index of Megatron: path is the .bin file",
    (20_240_520).to_bytes(4, "little"): "a file of llm.c with a header: leave out its first 1,024 bytes",
    (20_240_801).to_bytes(4, "little"): "a file of llm.c with a header: leave out its first 1,024 bytes",
    **{b"\x80" + bytes([protocol, 0x95]): "a pickle" for protocol in (4, 5)},
}
TYPES = {"uint16": "uint16", "u16": "uint16", "uint32": "uint32", "u32": "uint32"}  # parts of a file's name -> type
FIRST = 1 << 20  # tokens of each split, at either end, that the plan reads
BYTES_PER_TOKEN = 1.0, 16.0  # the usual mean in a text
SILENT = 0.3  # share of tokens without bytes, above which special tokens are unusually many
SINGLE_BYTES = 512  # tokens of one byte, at most: the bytes themselves, and characters that have a token besides
COUNTED = 100_000_000  # tokens of train, at most, that the n-gram model reads


class Tokens(SequenceTask):
    """Predict the next token of a file of token numbers.

    The splits are made as in the task ``text``: 90/5/5 % of ``path`` in order, or separate files.

    Args:
        path: the file, relative to the study's file in a study and to the working directory in Python.
        vocabulary: number of token ids; every token of the files is smaller.
        dtype: ``uint16`` or ``uint32``; default: from the name of ``path``, for example ``train.uint16.bin`` or ``train.u16``.
        valid, test: separate files for these splits, of the same type.
        token_bytes: a text file with the number of bytes of each token, one per line in the order of token ids; 0 for tokens
            that stand for no text. With it the metric is ``bits_per_byte``, without it ``bits_per_token``.
        length: tokens of a row.
        sampling: ``random`` positions, or ``contiguous`` rows, which a model with memory requires.
    """

    metric = "bits_per_token"
    files = ("path", "valid", "test", "token_bytes")

    def __init__(
        self,
        *,
        path: str,
        vocabulary: int,
        dtype: str | None = None,
        valid: str | None = None,
        test: str | None = None,
        token_bytes: str | None = None,
        length: int = 256,
        sampling: str = "random",
    ) -> None:
        super().__init__(length=length, sampling=sampling)
        self.vocabulary = whole_number(vocabulary, name="vocabulary")
        self.dtype = _type(dtype, path, valid, test)
        self.split_files = SplitFiles(path, valid, test, task="tokens", items="tokens", dtype=self.dtype)
        for file in self.split_files.files.values():
            require_plain(file)
        self.split_files.require(self.length)
        for split, tokens in self.split_files.mapped().items():
            self._require_tokens(tokens[:FIRST], split)
        self._token_bytes: Tensor | None = None
        if token_bytes is not None:
            self.metric = "bits_per_byte"
            self._token_bytes, self._token_bytes_digest = _token_bytes(token_bytes, vocabulary)

    def identity(self) -> str:
        data = f"tokens {self.dtype} sha256:{self.split_files.digest()}"
        return data if self._token_bytes is None else f"{data} token_bytes sha256:{self._token_bytes_digest}"

    def cuts(self) -> tuple[int, int, int]:
        return self.split_files.cuts()

    def data_notes(self) -> list[str]:
        """Return notes on text that splits share, and on unusual tokens."""
        splits = self.split_files.mapped()
        unusual = (
            token_notes(tokens, first=FIRST, path=self._file(split).path, split=split, vocabulary=self.vocabulary)
            for split, tokens in splits.items()
        )
        return [*self.split_files.overlap_notes(), *chain.from_iterable(unusual), *self._bytes_notes(splits["test"][:FIRST])]

    def _bytes_notes(self, test: np.ndarray) -> Iterator[str]:
        """Yield notes on numbers of bytes that are unusual, of the tokens of ``test``."""
        if self._token_bytes is None:
            return
        counts = self._token_bytes.cpu().numpy()
        if not BYTES_PER_TOKEN[0] <= (mean := counts[test].mean()) <= BYTES_PER_TOKEN[1]:
            yield f"by token_bytes, a token of test has {mean:.2f} bytes on average, and bits per byte depend on it"
        if (silent := (counts[test] == 0).mean()) > SILENT:
            yield f"by token_bytes, {silent:.0%} of the tokens of test have no bytes: they add to the bits alone"
        if (single := int((counts == 1).sum())) > SINGLE_BYTES:
            yield f"by token_bytes, {single:,} tokens have one byte each, of which there are 256"

    def read(self) -> np.ndarray:
        tokens = self.split_files.read()
        for split in SPLITS:
            self._require_tokens(tokens[self._place(split)], split)
        return tokens

    def _require_tokens(self, tokens: np.ndarray, split: str) -> None:
        require_tokens(tokens, file=self._file(split), split=split, vocabulary=self.vocabulary)

    def _file(self, split: str) -> DataFile:
        return self.split_files.parts()[split].file

    def target_bytes(self, targets: Tensor) -> Tensor | None:
        if self._token_bytes is None:
            return None
        self._token_bytes = self._token_bytes.to(targets.device)
        return count_bytes(self._token_bytes, targets)

    def reference_scores(self) -> dict[str, Reference]:
        """Return the score of an n-gram model of tokens on the tokens that an evaluation counts."""
        order = reference_scores.longest_order(self.vocabulary)

        def score(limit: int | None) -> float:
            test = self.counted("test", limit)
            bits = reference_scores.ngram_bits_per_token(self.split("train")[:COUNTED], test, vocabulary=self.vocabulary)
            if self._token_bytes is None:
                return bits
            predicted = np.concatenate([stretch[1:] for stretch in test])
            return bits * len(predicted) / int(self._token_bytes.cpu().numpy()[predicted].sum())

        part = "all of train" if self.cuts()[0] <= COUNTED else f"the first {COUNTED:,} tokens of train"
        before = f"each token from the {order - 1} before it"
        about = f"an interpolated {order}-gram model of tokens (modified Kneser-Ney) of {part}: {before}"
        return {"n-gram": Reference(about, score, options=("vocabulary",))}


def _type(stated: str | None, *paths: str | None) -> str:
    """Return the type of the numbers: the stated one, or the type in the name of ``path``, the first file."""
    if stated is not None and stated not in TYPES.values():
        raise UserError(f"dtype: expected uint16 or uint32, got {stated!r}{nearest(str(stated), TYPES.values())}")
    names = [Path(path).name for path in paths if path is not None]
    kinds = [next((TYPES[part] for part in reversed(name.split(".")) if part in TYPES), None) for name in names]
    kind = stated or kinds[0]
    if names[0].endswith(".npy"):
        raise UserError(
            f"path: expected numbers without a header, but {names[0]} is a file of numpy: write it with array.tofile"
        )
    if kind is None:
        raise UserError(f"dtype: expected uint16 or uint32, or a file name such as train.uint16.bin, got {names[0]} alone")
    for name, of_name in zip(names, kinds, strict=True):
        if of_name not in (None, kind):
            raise UserError(f"dtype: {kind} contradicts the name of the file, {name}")
    return kind


def _token_bytes(path: str, vocabulary: int) -> tuple[Tensor, str]:
    """Return the number of bytes of each token, (vocabulary,) int64, and the checksum of the file."""
    file = DataFile(path, option="token_bytes")
    contents = file.path.read_bytes()
    lines = split_lines(decode(contents, file, encoding="utf-8"))
    if len(lines) != vocabulary:
        raise UserError(f"token_bytes: expected a line for each of {vocabulary:,} tokens, {file.path} has {len(lines):,} lines")
    for number, line in enumerate(lines, start=1):
        if not (line.strip().isascii() and line.strip().isdigit() and len(line) <= 9):
            raise UserError(f"token_bytes: {file.path}:{number}: expected a number of bytes, got {line[:40]!r}")
    counts = torch.tensor([int(line) for line in lines], dtype=torch.int64)
    if not counts.any():
        raise UserError(f"token_bytes: expected a token of at least one byte in {file.path}, got none")
    return counts, hashlib.sha256(contents).hexdigest()


def require_plain(file: DataFile) -> None:
    """Raise ``UserError`` when a file begins as one of another format does, or is a text."""
    with file.path.open("rb") as contents:
        head = contents.read(HEAD)
    found = next((name for first, name in FORMATS.items() if head.startswith(first)), None)
    if found is None and len(head) >= FEW and _is_text(head):
        found = "a text"
    if found is not None:
        raise UserError(f"{file.option}: expected numbers without a header, but {file.path} is {found}")


def _is_text(head: bytes) -> bool:
    try:
        text = head[: len(head) - 3].decode("utf-8")  # a character may be cut at the end
    except UnicodeDecodeError as error:
        if error.start < len(head) - 6:
            return False
        text = head[: error.start].decode("utf-8")
    return all(c.isprintable() or c in "\t\r\n" for c in text)


def require_tokens(tokens: np.ndarray, *, file: DataFile, split: str, vocabulary: int) -> None:
    """Raise ``UserError`` when numbers cannot be tokens of a vocabulary.

    Args:
        tokens: (n,) uint16 or uint32, a part of a split.
        file: the file of the split.
        split: its name.
        vocabulary: number of token ids.
    """
    if len(tokens) >= FEW:
        _require_width(tokens, file.path, vocabulary)
        if tokens.min() == tokens.max():
            read = f"all {len(tokens):,} numbers of {file.path} that were read are {int(tokens[0]):,}"
            raise UserError(f"{file.option}: expected different tokens in {split}, but {read}")
    if (largest := int(tokens.max())) >= vocabulary:
        hint = _hint(tokens, vocabulary)
        raise UserError(f"vocabulary: expected more than {largest:,}, a token of {file.path}, got {vocabulary:,}{hint}")


def _require_width(tokens: np.ndarray, path: Path, vocabulary: int) -> None:
    """Raise ``UserError`` when numbers alternate between the lower and upper halves of a wider type."""
    kind, size = tokens.dtype.name, tokens.dtype.itemsize
    even = tokens[: len(tokens) // 4 * 4]
    first, second = even[0::2], even[1::2]
    if first.any() != second.any():
        quarters = even.reshape(-1, 4)
        wider = 4 * size if size == 2 and sum(bool(quarters[:, i].any()) for i in range(4)) == 1 else 2 * size
        named = "uint32" if wider == 4 else f"{wider}-byte numbers"
        order = "" if first.any() else ", the most significant bytes first"
        raise UserError(f"dtype: expected {kind}, but every second number of {path} is 0, as in a file of {named}{order}")
    if size == 2 and vocabulary > 1 << 16 and _alternate(tokens):
        raise UserError(
            f"dtype: expected uint32 for a vocabulary of {vocabulary:,}, got {kind}, as which the numbers of {path} alternate"
        )


def _alternate(tokens: np.ndarray) -> bool:
    """Return True when the bytes of numbers differ in distribution between positions, as the bytes of wider numbers do."""
    if len(tokens) < 4 * MANY:
        return False
    columns = tokens[: len(tokens) // 4 * 4].reshape(-1, 4)
    for values in (columns >> 8, columns & 255):
        shares = np.stack([np.bincount(column, minlength=256) / len(values) for column in values.T])
        if (np.abs(shares[:, None] - shares[None]).sum(-1) / 2).max() > ALTERNATING:  # the total variation distance
            return True
    return False


def _hint(tokens: np.ndarray, vocabulary: int) -> str:
    """Return a guess at why numbers do not fit into the vocabulary; "" without one."""
    whole = np.ascontiguousarray(tokens)
    size = whole.dtype.itemsize
    if int(whole.byteswap().max()) < vocabulary:
        return "; they fit with their bytes in the other order: is it a big-endian file?"
    signed = whole.view(f"i{size}")
    if (signed < 0).any() and int(signed.min()) >= -SENTINEL and int(signed.max()) < vocabulary:
        return f"; is it a file of signed numbers, with {int(signed.min())} for {int(whole.max()):,}?"
    if size == 4 and _are_whole(whole.view("f4")):
        return "; is it a file of float32?"
    for kind in ("uint16", "uint8"):
        if np.dtype(kind).itemsize < size and _is_narrower(whole.view(kind), size // np.dtype(kind).itemsize, vocabulary):
            return f"; is it a file of {kind}?"
    return "; is it a file of uint16?" if size == 4 and int(whole.max()) >= 1 << 20 else ""


def _are_whole(numbers: np.ndarray) -> bool:
    return bool(np.isfinite(numbers).all() and (numbers == np.round(numbers)).all())


def _is_narrower(tokens: np.ndarray, parts: int, vocabulary: int) -> bool:
    """Return True when numbers fit into the vocabulary, and are alike at all ``parts`` positions, like narrower numbers."""
    return int(tokens.max()) < vocabulary and _distance(tokens, parts) <= ALTERNATING


def _is_of_bytes(tokens: np.ndarray) -> bool:
    """Return True when the halves of uint16 numbers are alike, and far from uniform, as the bytes of hashed tokens are."""
    return _distance(tokens.view(np.uint8), 2) <= ALIKE and _entropy(tokens & 255) < UNIFORM


def _distance(tokens: np.ndarray, parts: int) -> float:
    """Return the largest total variation distance between the numbers at ``parts`` positions in turn."""
    columns = tokens[: len(tokens) // parts * parts].reshape(-1, parts).T.astype(np.int64)
    shares = np.stack([np.bincount(column, minlength=int(tokens.max()) + 1) / len(column) for column in columns])
    return float((np.abs(shares - shares[:1]).sum(-1) / 2).max())


def token_notes(tokens: np.ndarray, *, first: int, path: Path, split: str, vocabulary: int) -> Iterator[str]:
    """Yield notes on the tokens of a split that are unusual.

    Args:
        tokens: (n,) the split, memory-mapped.
        first: the most numbers to read of either end.
        path: the file of the split.
        split: its name.
        vocabulary: number of token ids.
    """
    head, tail, name = np.asarray(tokens[:first]), np.asarray(tokens[-first:]), f"{split} ({path.name})"
    if len(head) < FEW:
        return
    lead, rest = head[:LEAD], head[LEAD:]
    if len(rest) >= LEAD and (lead == 0).mean() > 0.8 and (rest == 0).mean() < 0.2:
        yield f"most of the first {LEAD} tokens of {name} are 0, and few of the others: is it a header?"
    different = np.flatnonzero(tail != tail[-1])
    run = len(tail) - 1 - int(different[-1]) if len(different) else len(tail)
    if run > max(FEW, len(tokens) // 100):
        least = "" if len(different) else "at least "
        yield f"{least}the last {run:,} tokens of {name} are all {int(tail[-1]):,}: is the file longer than its content?"
    if (np.diff(head.astype(np.int64)) >= 0).all():
        yield f"the tokens of {name} never decrease: are they in the order of a text?"
    counts = np.bincount(head)
    if (share := counts.max() / len(head)) > PADDED:
        yield f"{100 * share:.0f} % of the tokens of {name} are {int(counts.argmax()):,}: are rows padded?"
    if tokens.dtype.itemsize == 2 and len(head) >= 4 * MANY and _is_of_bytes(head):
        yield f"the upper and the lower bytes of the tokens of {name} are alike: is it a file of uint8?"
    if tokens.dtype.itemsize == 2 and _alternate(head):
        yield f"the tokens of {name} alternate between different ranges: is it a file of wider numbers?"
    if split == "train":
        largest = int(max(head.max(), tail.max()))
        if 2 * largest < vocabulary and len(head) >= MANY:
            yield f"the largest token of {name} is {largest:,}, of a vocabulary of {vocabulary:,}"
        if tokens.dtype.itemsize == 2 and len(head) >= MANY and _entropy(head >> 8) > _entropy(head & 255) + SWAPPED:
            yield f"the upper bytes of the tokens of {name} vary more than the lower ones: is it a big-endian file?"


def _entropy(values: np.ndarray) -> float:
    """Return the bits of the frequencies of values below 256."""
    shares = np.bincount(values, minlength=256) / len(values)
    shares = shares[shares > 0]
    return float(-(shares * np.log2(shares)).sum())
