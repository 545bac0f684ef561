"""The part of a text that a limited evaluation reads: stretches of equal size, spread evenly over the split.

The first bytes of a split may be one odd document: of a text made of files, the first 20 kB differed from
the whole by 0.09 bits per byte. Many short stretches represent the split best, and few long ones leave a
model its context: each stretch begins without one (a memory is empty, a sliding window short). The choice
depends on the size of the split and on the limit alone, not on the length of a row, the protocol or the
memory, so that all cells of a study and all ``evaluate.lengths`` are tested on the same tokens.

A limit of up to 2,047 tokens is one stretch at the beginning; up to 65,536 tokens there are at most ``FEW``
stretches of at least ``SHORT`` tokens, then at most ``MANY`` of about ``LONG`` tokens or more. With a
stretch of ``LONG`` tokens, a memory of up to 512 tokens is complete for at least 15/16 of it.

A text of subwords has the stretches of its bytes (``attnlab.tasks.bytes``), as nearly as its tokens allow, so that cells with
different vocabularies are tested on the same text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FEW, SHORT = 8, 1_024
MANY, LONG = 64, 8_192
MULTIPLE = 256  # of tokens that a stretch predicts: rows of a power of two up to this length are then all full


@dataclass(frozen=True)
class Stretches:
    """Disjoint parts of a text, in order.

    Attributes:
        starts: (n,) the first token of each stretch. It is the first input and is not predicted.
        ends: (n,) the token after the last one of each stretch.
    """

    starts: np.ndarray
    ends: np.ndarray

    @property
    def predicted(self) -> int:
        """Number of tokens that the longest stretch predicts, those after its first."""
        return int((self.ends - self.starts).max()) - 1

    def read(self, text: np.ndarray) -> list[np.ndarray]:
        """Return the tokens of each stretch, without copies."""
        return [text[start:end] for start, end in zip(self.starts, self.ends, strict=True)]


def stretches(size: int, limit: int | None) -> Stretches:
    """Return the stretches that an evaluation of a split reads.

    Args:
        size: tokens of the split, at least 2.
        limit: the most tokens to read, at least 2; None: all.
    """
    if limit is None or limit >= size:
        return Stretches(np.zeros(1, dtype=np.int64), np.array([size]))
    count = max(1, min(FEW, limit // SHORT), min(MANY, limit // LONG))
    predicted = limit // count - 1
    if count > 1:
        predicted -= predicted % MULTIPLE
    last = size - predicted - 1  # the start of the last stretch, which ends with the split
    starts = np.arange(count) * last // max(1, count - 1)
    return Stretches(starts, starts + predicted + 1)
