"""Overlap between splits: passages of ``valid`` and ``test`` that a model has read in training.

All windows of splits up to 2 MB are compared. Of larger ones, windows with a hash below a threshold are compared (Manber 1994,
"Finding similar files in a large file system"). A passage that occurs in both splits is therefore sampled in both or in
neither, wherever it stands, and the share of the samples of ``test`` that occur in ``train`` estimates the share of all
windows.

The check misses passages shorter than a window, and passages with a difference in every window, for example another spelling or
another tokenisation. Of a split above 256 MB only parts are read: of ``train``, this makes the share a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

WINDOW = 64  # bytes that agree
WORD = 8  # bytes that are read at a time
SAMPLES = 1 << 21  # windows of a split, about, that are compared
PART = 1 << 18  # bytes that are hashed at a time: few enough for the processor's cache
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
    rate = max(1, *(-(-split.nbytes // SAMPLES) for split in (train, *others)))  # one window in so many is a sample
    known = np.unique(_samples(train, rate))
    results = []
    for split in others:
        windows = _samples(split, rate)
        ends = [np.searchsorted(known, windows, side=side) for side in ("left", "right")]
        results.append(Overlap(len(windows), int((ends[0] < ends[1]).sum()), train.nbytes > MOST))
    return results


def _samples(items: np.ndarray, rate: int) -> np.ndarray:
    """Return (samples,) uint64: the hashes of the sampled windows of a split."""
    highest = np.uint64((2**64 - 1) // rate)
    hashes = (_hashes(part, items.itemsize) for part in _parts(items))
    return np.concatenate([np.zeros(0, np.uint64), *(part[part <= highest] for part in hashes)])


def _parts(items: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the bytes of a split in parts that overlap by all but one byte of a window, spread evenly over a large split."""
    content = items.view(np.uint8)
    starts = range(0, max(0, len(content) - WINDOW + 1), PART)
    kept = MOST // PART
    chosen = starts if len(starts) <= kept else [starts[i * len(starts) // kept] for i in range(kept)]
    for start in chosen:
        yield np.ascontiguousarray(content[start : start + PART + WINDOW - 1])


def _hashes(part: np.ndarray, step: int) -> np.ndarray:
    """Return the hash of each window that begins at a multiple of ``step`` bytes, from the hashes of its two halves."""
    hashes = np.empty((len(part) - WORD) // step + 1, dtype=np.uint64)
    for i, offset in enumerate(range(0, WORD, step)):  # NumPy reads words at multiples of their size only
        hashes[i :: WORD // step] = np.frombuffer(part.data, "<u8", offset=offset, count=(len(part) - offset) // WORD)
    hashes = _mixed(hashes, hashes)
    size = WORD
    while size < WINDOW:
        hashes = _mixed(hashes[: -(size // step)], hashes[size // step :])
        size *= 2
    return hashes


def _mixed(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return a hash of two hashes, in this order."""
    mixed = (first * MULTIPLIER) ^ second
    mixed ^= mixed >> np.uint64(32)
    return mixed * MULTIPLIER
