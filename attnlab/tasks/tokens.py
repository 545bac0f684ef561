"""``tokens``: files of token numbers, as a tokenizer writes them for the training of a language model.

A file is a plain array of little-endian uint16 or uint32 numbers without a header. It is memory-mapped.

Bits per token depend on the tokenizer. Bits per byte do not, but they need the number of bytes of each token: with
``token_bytes``, the metric is the bits of all predicted tokens over the bytes of exactly these tokens, under every limit and
protocol. Without it, bits per byte are not estimated, and the metric is bits per token.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attnlab.errors import UserError, nearest
from attnlab.tasks import whole_number
from attnlab.tasks.data_files import DataFile, SplitFiles, decode
from attnlab.tasks.reference_scores import ngram
from attnlab.tasks.reference_scores.base import Reference
from attnlab.tasks.sequence import SequenceTask, count_bytes

TYPES = {"uint16": "uint16", "u16": "uint16", "uint32": "uint32", "u32": "uint32"}  # parts of a file's name -> type
FIRST = 1 << 20  # tokens of each file that the constructor reads
COUNTED = 100_000_000  # tokens of train, at most, that the n-gram model reads


class Tokens(SequenceTask):
    """Predict the next token of a file of token numbers.

    The splits are those of the task ``text``: 90/5/5 % of ``path`` in order, or files of their own.

    Args:
        path: the file, relative to the study's file in a study and to the working directory in Python.
        vocabulary: number of token ids; every token of the files is smaller.
        dtype: ``uint16`` or ``uint32``; default: from the name of ``path``, such as ``train.uint16.bin`` or ``train.u16``.
        valid, test: files of their own for these splits, of the same type.
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
        self.dtype = _type(dtype, Path(path).name)
        self._files = SplitFiles(path, valid, test, task="tokens", items="tokens", dtype=self.dtype)
        self._files.require(self.length)
        for file in self._files.files.values():
            self._check(np.fromfile(file.path, dtype=self._files.dtype, count=FIRST), file.path)
        self._token_bytes: Tensor | None = None
        if token_bytes is not None:
            self.metric = "bits_per_byte"
            self._token_bytes, self._token_bytes_digest = _token_bytes(token_bytes, vocabulary)

    def identity(self) -> str:
        data = f"tokens {self.dtype} sha256:{self._files.digest()}"
        return data if self._token_bytes is None else f"{data} token_bytes sha256:{self._token_bytes_digest}"

    def cuts(self) -> tuple[int, int, int]:
        return self._files.cuts()

    def data_notes(self) -> list[str]:
        return self._files.overlap_notes()

    def read(self) -> np.ndarray:
        tokens = self._files.read()
        self._check(tokens, self._files.files["path"].path)
        return tokens

    def _check(self, tokens: np.ndarray, path: Path) -> None:
        """Raise ``UserError`` if the tokens do not fit into the vocabulary, or are of a wider type."""
        head = tokens[: FIRST // 2 * 2]
        if self.dtype == "uint16" and len(head) >= 64 and head[0::2].any() and not head[1::2].any():
            raise UserError(f"dtype: expected uint16, but every second number of {path} is 0, as in a file of uint32")
        if (largest := int(tokens.max())) >= self.vocabulary:
            hint = f"; is it a file of {'uint16' if self.dtype == 'uint32' else 'uint32'}?" if largest >= 2**20 else ""
            raise UserError(f"vocabulary: expected more than {largest:,}, a token of {path}, got {self.vocabulary:,}{hint}")

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
            return bits * (len(test) - 1) / int(self._token_bytes.cpu().numpy()[test[1:]].sum())

        part = "all of train" if self.cuts()[0] <= COUNTED else f"the first {COUNTED:,} tokens of train"
        before = f"each token from the {order - 1} before it"
        about = f"an interpolated {order}-gram model of tokens (modified Kneser-Ney) of {part}: {before}"
        return {"n-gram": Reference(about, score, options=("vocabulary",))}


def _type(stated: str | None, name: str) -> str:
    """Return the type of the numbers: the stated one, or that of a part of the file's name."""
    if stated is not None and stated not in TYPES.values():
        raise UserError(f"dtype: expected uint16 or uint32, got {stated!r}{nearest(str(stated), TYPES.values())}")
    if name.endswith(".npy"):
        raise UserError(f"path: expected numbers without a header, but {name} is a file of numpy: write it with array.tofile")
    of_name = next((TYPES[part] for part in reversed(name.split(".")) if part in TYPES), None)
    if stated is None and of_name is None:
        raise UserError(f"dtype: expected uint16 or uint32, or a file name such as train.uint16.bin, got {name} alone")
    if stated is not None and of_name not in (None, stated):
        raise UserError(f"dtype: {stated} contradicts the name of the file, {name}")
    return stated or str(of_name)


def _token_bytes(path: str, vocabulary: int) -> tuple[Tensor, str]:
    """Return the number of bytes of each token, (vocabulary,) int64, and the checksum of the file."""
    file = DataFile(path, option="token_bytes")
    contents = file.path.read_bytes()
    lines = decode(contents, file, encoding="utf-8").splitlines()
    if len(lines) != vocabulary:
        raise UserError(f"token_bytes: expected a line for each of {vocabulary:,} tokens, {file.path} has {len(lines):,} lines")
    for number, line in enumerate(lines, start=1):
        if not (line.strip().isascii() and line.strip().isdigit() and len(line) <= 9):
            raise UserError(f"token_bytes: {file.path}:{number}: expected a number of bytes, got {line[:40]!r}")
    counts = torch.tensor([int(line) for line in lines], dtype=torch.int64)
    if not counts.any():
        raise UserError(f"token_bytes: expected a token of at least one byte in {file.path}, got none")
    return counts, hashlib.sha256(contents).hexdigest()
