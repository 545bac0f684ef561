"""Language models over bytes, or over subwords of them: the common base of ``enwik8``, ``pydocs``, ``pysource`` and ``text``.

Bits per byte are exact in both cases: the bits of all predicted tokens over the bytes of exactly these tokens. A split of bytes
predicts all of its bytes but the first, and a split of subwords all of its tokens but the first.

Limits count bytes. A stretch of bytes that a limited evaluation reads (``attnlab.tasks.sequence``) becomes the tokens from the
one that contains its first byte, which is not predicted, to the last one that ends in it. Cells with different vocabularies are
so tested on the same text but for a few bytes at both ends of each stretch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attnlab.errors import UserError, nearest
from attnlab.tasks import SPLITS, known_split, reference_scores, whole_number
from attnlab.tasks.byte_bpe import BYTES, ByteBPE, encoded_splits, load_or_learn_byte_bpe, vocabulary_identity
from attnlab.tasks.reference_scores import Reference
from attnlab.tasks.sequence import SequenceTask, Stretches, count_bytes

if TYPE_CHECKING:
    from attnlab.config.run import RunConfig

TOKENS = ("bytes", "bpe")
LEAST_LIMIT = 256  # bytes of a limited evaluation of subwords, of which one may have many bytes


class ByteTask(SequenceTask):
    """Predict the next byte, or the next subword. A subclass defines the text with ``cuts``, ``read`` and ``identity``.

    ``cuts`` and ``read`` count bytes. ``identity`` appends ``tokens_identity()`` to the text's identity.

    Args:
        length: tokens of a row.
        sampling: ``random`` positions, or ``contiguous`` rows, which a model with memory requires.
        tokens: ``bytes``, or ``bpe``: byte-level byte-pair encoding, learned on ``train``.
        vocabulary: number of tokens of ``bpe``, at least 256.
    """

    metric = "bits_per_byte"
    text_unit = "byte"

    def __init__(
        self, *, length: int = 256, sampling: str = "random", tokens: str = "bytes", vocabulary: int | None = None
    ) -> None:
        super().__init__(length=length, sampling=sampling)
        if tokens not in TOKENS:
            raise UserError(f"tokens: expected {' or '.join(TOKENS)}, got {tokens!r}{nearest(str(tokens), TOKENS)}")
        if tokens == "bytes" and vocabulary is not None:
            raise UserError(f"vocabulary: expected none with tokens: bytes, of which there are {BYTES}, got {vocabulary!r}")
        if tokens == "bpe" and vocabulary is None:
            raise UserError("vocabulary: expected the number of tokens with tokens: bpe, such as 8192, got none")
        self.tokens, self.vocabulary = tokens, BYTES
        self.unit, self.kept = "byte", ("tokens",)
        if vocabulary is not None:
            self.kept = ("tokens", "tokenizer_json", "packages")
            self.packages = ("tokenizers",)
            self.vocabulary = whole_number(vocabulary, name="vocabulary", least=BYTES)
            self.unit, self.text_per_token = "token", bytes_per_token(self.vocabulary)

    def tokens_identity(self) -> str:
        """Return what ``identity`` appends to the identity of the text: "" for bytes."""
        return "" if self.tokens == "bytes" else vocabulary_identity(self.vocabulary)

    def vocabulary_identity(self) -> str:
        return "" if self.tokens == "bytes" else self.identity()

    def tokens_notes(self) -> list[str]:
        """Return the notes of the plan and the report on the tokens."""
        if self.tokens == "bytes":
            return []
        estimate = f"epochs and the cost of evaluation are estimated at {self.text_per_token:.1f} bytes per token"
        return [f"byte-level BPE of {self.vocabulary:,} tokens, learned on train; {estimate}"]

    def unsupported(self, config: RunConfig) -> str | None:
        for name, limit in config.evaluate.limits.items():
            if self.tokens == "bpe" and limit is not None and limit < LEAST_LIMIT:
                return f"evaluate.{name}: expected at least {LEAST_LIMIT} bytes with tokens: bpe, got {limit}"
        return super().unsupported(config)

    def prepare(self) -> None:
        super().prepare()
        self.split("train")  # which encodes all splits

    def split(self, name: str) -> np.ndarray:
        return self.text(name) if self.tokens == "bytes" else self._encoded[known_split(name)]

    @cached_property
    def tokenizer_json(self) -> str:
        """The vocabulary of ``tokens: bpe``, learned on ``train`` or from the folder of prepared data."""
        name = type(self).__name__.lower()
        return load_or_learn_byte_bpe(name, self.identity(), lambda: self.text("train"), self.vocabulary).to_str()

    @cached_property
    def subwords(self) -> ByteBPE:
        """The vocabulary of ``tokens: bpe``."""
        from tokenizers import Tokenizer

        return ByteBPE(Tokenizer.from_str(self.tokenizer_json))

    @cached_property
    def _encoded(self) -> dict[str, np.ndarray]:
        splits = {split: self.text(split) for split in SPLITS}
        return encoded_splits(type(self).__name__.lower(), self.identity(), splits, self.subwords)

    @cached_property
    def _token_bytes(self) -> Tensor:
        return torch.tensor([len(token) for token in self.subwords.tokens])

    def stretches(self, split: str, limit: int | None) -> Stretches:
        parts = super().stretches(split, limit)
        if self.tokens == "bytes":
            return parts
        tokens = self.split(split)
        ends = np.cumsum(self._token_bytes.cpu().numpy()[tokens])  # the byte after each token
        return Stretches(*(np.searchsorted(ends, places, side="right") for places in (parts.starts, parts.ends)))

    def target_bytes(self, targets: Tensor) -> Tensor:
        if self.tokens == "bytes":
            return super().target_bytes(targets)  # type: ignore[return-value]
        self._token_bytes = self._token_bytes.to(targets.device)
        return count_bytes(self._token_bytes, targets)

    def reference_scores(self) -> dict[str, Reference]:
        """Return scores on the bytes that an evaluation counts; none depends on the tokens or on how rows are drawn."""

        def test(limit: int | None) -> np.ndarray:
            return np.concatenate(self.counted("test", limit))

        def counted(limit: int | None) -> float:
            return reference_scores.ngram_bits_per_token(self.text("train"), self.counted("test", limit))

        n = reference_scores.NGRAM_ORDER
        about = f"an interpolated {n}-gram model (modified Kneser-Ney) of all of train: each byte from the {n - 1} before it"
        return {
            "gzip": Reference(
                reference_scores.GZIP, lambda limit: reference_scores.gzip_bits_per_byte(test(limit)), options=()
            ),
            "xz": Reference(reference_scores.XZ, lambda limit: reference_scores.xz_bits_per_byte(test(limit)), options=()),
            "n-gram": Reference(about, counted, options=()),
        }

    def encode(self, text: str) -> list[int]:
        data = text.encode(errors="surrogateescape")  # bytes of a command line that are not UTF-8 are surrogates
        return list(data) if self.tokens == "bytes" else self.subwords.encode(data).tolist()

    def decode(self, ids: Sequence[int]) -> str:
        data = bytes(ids) if self.tokens == "bytes" else self.subwords.decode(ids)
        return data.decode("utf-8", errors="replace")


def bytes_per_token(vocabulary: int) -> float:
    """Return the estimated bytes per token of English text with markup: a fit to enwik8, from 512 to 16,384 tokens."""
    return 1.5 + 0.35 * float(np.log2(vocabulary / BYTES))
