"""Batches of rows of similar lengths, which keep padding small."""

from collections.abc import Sequence

import numpy as np

POOL = 64  # batches that are sorted together: a larger pool needs less padding, a smaller one mixes better


def shuffled_by_length(lengths: np.ndarray, rng: np.random.Generator, *, batch_size: int) -> list[np.ndarray]:
    """Return the batches of one epoch: every row once, in random batches of similar lengths, in random order.

    Rows are shuffled, cut into pools and sorted by length within each pool, so that a row is batched with other rows in every
    epoch.

    Args:
        lengths: (n,) int, the tokens of each row that are read.
        rng: determines the batches.

    Returns:
        ceil(n / batch_size) arrays of row indices, whose sizes differ by at most one.
    """
    rows = rng.permutation(len(lengths))
    pools = np.array_split(rows, max(1, round(len(rows) / (POOL * batch_size))))
    ordered = [pool[np.argsort(lengths[pool], kind="stable")] for pool in pools]
    # Reverse every second pool: a batch that spans two pools then has similar lengths, too.
    joined = np.concatenate([pool[::-1] if number % 2 else pool for number, pool in enumerate(ordered)])
    batches = np.array_split(joined, -(-len(rows) // batch_size))
    return [batches[i] for i in rng.permutation(len(batches))]


def by_length(lengths: np.ndarray, *, tokens: int) -> list[np.ndarray]:
    """Return batches of every row once, from the longest to the shortest, of at most ``tokens`` each with padding.

    A batch has at least one row. It ends where the length changes, unless it would use less than half of its tokens: a batch
    without padding needs no mask.

    Args:
        lengths: (n,) int, the tokens of each row.
        tokens: the most tokens of a batch.
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
    """Return the fraction of all tokens in ``batches`` that are padding."""
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1 - int(sum(lengths[batch].sum() for batch in batches)) / padded
