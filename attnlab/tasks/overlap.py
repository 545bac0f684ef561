"""Overlap between ``train`` and ``test``: passages of ``test`` that a model has read in training.

Both splits are sampled at the same passages, wherever they stand (Manber 1994, "Finding similar files in a large file system"):
a window is a sample if a hash of its first 8 bytes is below a threshold. A passage that occurs in both splits is therefore
sampled in both or in neither, and the share of the samples of ``test`` that occur in ``train`` estimates the share of all
windows.

The check misses passages shorter than a window, and passages with a difference in every window, such as another spelling or
another tokenisation. Of a large split only parts are read: of ``train``, this makes the share a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

WINDOW = 64  # bytes that agree
ANCHOR = 8  # bytes that decide whether a window is a sample
RATE = 64  # one window in so many is a sample
PART = 1 << 22  # bytes that are hashed at a time
MOST = 1 << 28  # bytes of a split that are read
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio, for multiplicative hashing
NOTABLE = 0.01  # the smallest share that is worth a note


@dataclass(frozen=True)
class Overlap:
    """Sampled windows of ``valid`` or ``test``.

    Attributes:
        windows: their number.
        shared: those that also occur in ``train``.
        partial: only parts of ``train`` were read, so that ``shared`` is a lower bound.
    """

    windows: int
    shared: int
    partial: bool = False

    @property
    def share(self) -> float:
        """``shared`` as a fraction of ``windows``; 0 without windows."""
        return self.shared / self.windows if self.windows else 0.0


def overlap(train: np.ndarray, *others: np.ndarray) -> list[Overlap]:
    """Count the sampled windows of other splits that also occur in ``train``.

    Args:
        train, others: (n,) of one unsigned integer type; may be memory-mapped.

    Returns:
        The overlap of each of ``others``.
    """
    known = np.concatenate([np.zeros(0, np.uint64), *map(np.unique, _samples(train))])
    windows = [np.concatenate([np.zeros(0, np.uint64), *_samples(split)]) for split in others]
    return [Overlap(len(hashes), int(np.isin(hashes, known).sum()), train.nbytes > MOST) for hashes in windows]


def _samples(items: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the hashes of the sampled windows of each part of a split, (samples,) uint64."""
    return (_hashes(part, items.itemsize) for part in _parts(items))


def _parts(items: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the bytes of a split in parts that overlap by all but one byte of a window, spread evenly over a large split."""
    content = items.view(np.uint8)
    starts = range(0, max(0, len(content) - WINDOW + 1), PART)
    kept = MOST // PART
    chosen = starts if len(starts) <= kept else [starts[i * len(starts) // kept] for i in range(kept)]
    for start in chosen:
        yield np.ascontiguousarray(content[start : start + PART + WINDOW - 1])


def _hashes(part: np.ndarray, step: int) -> np.ndarray:
    """Return the hashes of the sampled windows that begin at a multiple of ``step`` bytes."""
    places = []
    for offset in range(0, ANCHOR, step):  # every window begins in one of these eight-byte grids
        anchors = np.frombuffer(part.data, dtype="<u8", offset=offset, count=(len(part) - offset) // ANCHOR)
        places.append(np.flatnonzero(anchors * MULTIPLIER < np.uint64(2**64 // RATE)) * ANCHOR + offset)
    starts = np.concatenate(places)
    starts = starts[starts <= len(part) - WINDOW]
    words = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(part, WINDOW)[starts]).view("<u8")
    hashes = np.zeros(len(starts), dtype=np.uint64)
    for column in words.T:
        hashes = (hashes ^ column) * MULTIPLIER
        hashes ^= hashes >> np.uint64(29)
    return hashes
