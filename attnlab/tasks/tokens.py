"""``tokens``: arrays of token numbers, as a tokenizer writes them for the training of a language model.

A file is a one-dimensional array of whole numbers in numpy's format (``.npy``), which states their type and byte order. It is
memory-mapped.

Bits per token depend on the tokenizer. Bits per byte do not, but they need the number of bytes of each token: with
``token_bytes``, the metric is the bits of all predicted tokens over the bytes of exactly these tokens, under every limit and
protocol. Without it, bits per byte are not estimated, and the metric is bits per token.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor

from attnlab.errors import UserError
from attnlab.tasks import SPLITS, reference_scores, whole_number
from attnlab.tasks.data_files import DataFile, SplitFiles, decode
from attnlab.tasks.lines import split_lines
from attnlab.tasks.reference_scores import Reference
from attnlab.tasks.sequence import SequenceTask, count_bytes

FIRST = 1 << 20  # tokens of each split that the plan reads
COUNTED = 100_000_000  # tokens of train, at most, that the n-gram model reads


class Tokens(SequenceTask):
    """Predict the next token of a file of token numbers.

    The splits are made as in the task ``text``: 90/5/5 % of ``path`` in order, or separate files.

    Args:
        path: the ``.npy`` file, relative to the study's file in a study and to the working directory in Python.
        vocabulary: number of token ids; every token of the files is smaller.
        valid, test: separate files for these splits, with numbers of the same type.
        token_bytes: a text file with the number of bytes of each token, one per line in the order of token ids; 0 for tokens
            that stand for no text. With it the metric is ``bits_per_byte``, without it ``bits_per_token``.
        length: tokens of a row.
        sampling: ``random`` positions, or ``contiguous`` rows, which a model with memory requires.
    """

    metric = "bits_per_token"
    files = ("path", "valid", "test", "token_bytes")
    kept = ()

    def __init__(
        self,
        *,
        path: str,
        vocabulary: int,
        valid: str | None = None,
        test: str | None = None,
        token_bytes: str | None = None,
        length: int = 256,
        sampling: str = "random",
    ) -> None:
        super().__init__(length=length, sampling=sampling)
        self.vocabulary = whole_number(vocabulary, name="vocabulary")
        self.split_files = SplitFiles(path, valid, test, task="tokens", items="tokens", read=read_array)
        self.split_files.require(self.length)
        parts = self.split_files.parts()
        for split, tokens in parts.items():
            self._require_tokens(tokens[:FIRST], split, parts["train"].dtype)
        self._token_bytes: Tensor | None = None
        if token_bytes is not None:
            self.metric = "bits_per_byte"
            self._token_bytes, self._token_bytes_digest = _token_bytes(token_bytes, vocabulary)

    def identity(self) -> str:
        data = f"tokens sha256:{self.split_files.digest()}"
        return data if self._token_bytes is None else f"{data} token_bytes sha256:{self._token_bytes_digest}"

    def cuts(self) -> tuple[int, int, int]:
        return self.split_files.cuts()

    def data_notes(self) -> list[str]:
        return self.split_files.overlap_notes()

    def read(self) -> np.ndarray:
        tokens = self.split_files.read()
        for split in SPLITS:
            self._require_tokens(tokens[self._place(split)], split, tokens.dtype)
        return tokens

    def _require_tokens(self, tokens: np.ndarray, split: str, dtype: np.dtype) -> None:
        """Raise ``UserError`` unless numbers have the type of ``train`` and are token ids of the vocabulary."""
        file = self.split_files.file(split)
        if tokens.dtype != dtype:
            raise UserError(f"{file.option}: expected {dtype} as in train, but {file.path} has {tokens.dtype}")
        if int(tokens.min()) < 0:
            raise UserError(f"{file.option}: expected tokens of at least 0, but {file.path} has {int(tokens.min())}")
        if (largest := int(tokens.max())) >= self.vocabulary:
            raise UserError(f"vocabulary: expected more than {largest:,}, a token of {file.path}, got {self.vocabulary:,}")

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


def read_array(file: DataFile) -> np.ndarray:
    """Return the numbers of a file, (n,) and memory-mapped.

    Raises:
        UserError: it is no one-dimensional array of whole numbers in numpy's format.
    """
    try:
        array = np.load(file.path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError):
        array = None
    if not isinstance(array, np.ndarray):
        hint = f"np.save('{file.path.stem}.npy', np.fromfile('{file.path.name}', dtype='uint16')) writes one of raw uint16"
        raise UserError(f"{file.option}: expected an array in numpy's format (.npy), but {file.path} is none; {hint}")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        found = f"{array.dtype} of {array.shape}"
        raise UserError(f"{file.option}: expected whole numbers in one dimension, but {file.path} has {found}")
    return array


def _token_bytes(path: str, vocabulary: int) -> tuple[Tensor, str]:
    """Return the number of bytes of each token, (vocabulary,) int64, and the checksum of the file."""
    file = DataFile(path, option="token_bytes")
    contents = file.path.read_bytes()
    lines = split_lines(decode(contents, file))
    if len(lines) != vocabulary:
        raise UserError(f"token_bytes: expected a line for each of {vocabulary:,} tokens, {file.path} has {len(lines):,} lines")
    for number, line in enumerate(lines, start=1):
        if not (line.strip().isascii() and line.strip().isdigit() and len(line) <= 9):
            raise UserError(f"token_bytes: {file.path}:{number}: expected a number of bytes, got {line[:40]!r}")
    return torch.tensor([int(line) for line in lines]), hashlib.sha256(contents).hexdigest()
