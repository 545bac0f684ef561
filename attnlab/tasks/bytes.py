"""Language models over bytes: the common base of ``enwik8``, ``pydocs`` and ``text``.

Bits per byte is exact: total negative log2-likelihood over the number of predicted bytes, all of a split but its first.
"""

from collections.abc import Sequence

import numpy as np

from attnlab.tasks.reference_scores import compression, ngram
from attnlab.tasks.reference_scores.base import Reference
from attnlab.tasks.sequence import SequenceTask


class ByteTask(SequenceTask):
    """Predict the next byte. A subclass defines the text with ``cuts``, ``read`` and ``identity``.

    Args:
        length: bytes of a row.
        sampling: ``random`` or ``contiguous`` rows, as in ``SequenceTask``.
    """

    metric = "bits_per_byte"
    vocabulary = 256
    unit = "byte"

    def reference_scores(self) -> dict[str, Reference]:
        """Return scores on the bytes that an evaluation counts; none depends on the length of rows or on how they are drawn."""

        def test(limit: int | None) -> np.ndarray:
            return self.counted("test", limit)

        def counted(limit: int | None) -> float:
            return ngram.bits_per_token(self.split("train"), test(limit))

        n = ngram.ORDER
        about = f"an interpolated {n}-gram model (modified Kneser-Ney) of all of train: each byte from the {n - 1} before it"
        return {
            "gzip": Reference(compression.GZIP, lambda limit: compression.gzip_bits_per_byte(test(limit)), options=()),
            "xz": Reference(compression.XZ, lambda limit: compression.xz_bits_per_byte(test(limit)), options=()),
            "n-gram": Reference(about, counted, options=()),
        }

    def encode(self, text: str) -> list[int]:
        return list(text.encode(errors="surrogateescape"))  # bytes of a command line that are not UTF-8 are surrogates

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode("utf-8", errors="replace")
