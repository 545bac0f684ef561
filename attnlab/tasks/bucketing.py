"""Batches of rows of like lengths, so that next to nothing is computed on padding."""

from collections.abc import Sequence

import numpy as np

POOL = 64  # batches that are sorted together: more pads less, fewer mixes better


def shuffled_by_length(lengths: np.ndarray, rng: np.random.Generator, *, batch_size: int) -> list[np.ndarray]:
    """One epoch: every row once, in random batches of like lengths, in random order.

    Rows are shuffled, cut into pools, and sorted by length within each; so a row meets other rows every
    epoch.

    Args:
        lengths: (n,) of each row, as it will be read.
        rng: decides the order, wholly.

    Returns:
        ceil(n / batch_size) arrays of row numbers, whose sizes differ by one at most.
    """
    rows = rng.permutation(len(lengths))
    pools = np.array_split(rows, max(1, round(len(rows) / (POOL * batch_size))))
    ordered = [pool[np.argsort(lengths[pool], kind="stable")] for pool in pools]
    # every second pool downwards: a batch that spans two pools then holds like lengths too
    joined = np.concatenate([pool[::-1] if number % 2 else pool for number, pool in enumerate(ordered)])
    batches = np.array_split(joined, -(-len(rows) // batch_size))
    return [batches[i] for i in rng.permutation(len(batches))]


def by_length(lengths: np.ndarray, *, tokens: int) -> list[np.ndarray]:
    """Every row once, from the longest down, a batch of at most ``tokens`` with its padding (or one row).

    A batch ends where the length changes, unless less than half of the tokens would be used: without padding nothing has
    to be masked.
    """
    order = np.argsort(-lengths.astype(np.int64), kind="stable")
    batches, begin = [], 0
    while begin < len(order):
        longest = int(lengths[order[begin]])
        room = max(1, tokens // max(1, longest))
        alike = int((lengths[order[begin : begin + room]] == longest).sum())
        rows = alike if 2 * alike >= room else room
        batches.append(order[begin : begin + rows])
        begin += rows
    return batches


def padding_share(lengths: np.ndarray, batches: Sequence[np.ndarray]) -> float:
    """The share of all tokens in ``batches`` that are padding."""
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1 - int(sum(lengths[batch].sum() for batch in batches)) / padded
