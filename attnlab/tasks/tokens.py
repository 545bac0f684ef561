"""``tokens``: files of token numbers, as a tokenizer writes them for the training of a language model.

A file is a plain array of little-endian uint16 or uint32 numbers without a header. It is memory-mapped. A file that
contradicts this, the type or the vocabulary is refused, and the plan notes unusual numbers (``attnlab.tasks.token_files``).

Bits per token depend on the tokenizer. Bits per byte do not, but they need the number of bytes of each token: with
``token_bytes``, the metric is the bits of all predicted tokens over the bytes of exactly these tokens, under every limit and
protocol. Without it, bits per byte are not estimated, and the metric is bits per token.
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
from attnlab.tasks import SPLITS, whole_number
from attnlab.tasks.data_files import DataFile, SplitFiles, decode
from attnlab.tasks.lines import split_lines
from attnlab.tasks.reference_scores import ngram
from attnlab.tasks.reference_scores.base import Reference
from attnlab.tasks.sequence import SequenceTask, count_bytes
from attnlab.tasks.token_files import require_plain, require_tokens, token_notes

TYPES = {"uint16": "uint16", "u16": "uint16", "uint32": "uint32", "u32": "uint32"}  # parts of a file's name -> type
FIRST = 1 << 20  # tokens of each split, at either end, that the plan reads
BYTES_PER_TOKEN = 1.0, 16.0  # the usual mean in a text
SINGLE_BYTES = 512  # tokens of one byte, at most: the bytes themselves, and characters that have a token besides
COUNTED = 100_000_000  # tokens of train, at most, that the n-gram model reads


class Tokens(SequenceTask):
    """Predict the next token of a file of token numbers.

    The splits are made as in the task ``text``: 90/5/5 % of ``path`` in order, or separate files.

    Args:
        path: the file, relative to the study's file in a study and to the working directory in Python.
        vocabulary: number of token ids; every token of the files is smaller.
        dtype: ``uint16`` or ``uint32``; default: from the name of ``path``, such as ``train.uint16.bin`` or ``train.u16``.
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
        order = ngram.longest(self.vocabulary)

        def score(limit: int | None) -> float:
            test = self.counted("test", limit)
            bits = ngram.bits_per_token(self.split("train")[:COUNTED], test, vocabulary=self.vocabulary)
            if self._token_bytes is None:
                return bits
            predicted = np.concatenate([stretch[1:] for stretch in test])
            return bits * len(predicted) / int(self._token_bytes.cpu().numpy()[predicted].sum())

        part = "all of train" if self.cuts()[0] <= COUNTED else f"the first {COUNTED:,} tokens of train"
        before = f"each token from the {order - 1} before it"
        about = f"an interpolated {order}-gram model of tokens (modified Kneser-Ney) of {part}: {before}"
        return {"n-gram": Reference(about, score, options=("vocabulary",))}


def _type(stated: str | None, *paths: str | None) -> str:
    """Return the type of the numbers: the stated one, or that of a part of the name of ``path``, the first file."""
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
