"""Flip-flop: a register of one bit, which instructions write, read or ignore.

    w 1  i 0  r 1  i 0  w 0  i 1  r 0
              1                   0         targets, at the instruction r

The bit after ``w`` is written, the bit after ``i`` is random and to be ignored, the bit after ``r`` is the register's. A
recurrent network with one gate solves it. Attention must find the last ``w`` among all tokens, and makes rare errors, which the
authors call glitches, when it is far away. The threshold is therefore 0.99.

Liu et al. 2023, "Exposing Attention Glitches with Flip-Flop Language Modeling" (arXiv:2306.00946): 256 instructions, of which
80 % are ``i``, and tests with 10 % and 98 %. There, training predicts every token; here, rows have 32 instructions by default,
training predicts only the bits that are determined, and evaluations score the ones in the last quarter of a row. The last
instruction is always ``r``.

``sparse_flip_flop`` tests out of distribution, as the paper does: rows of ``test`` have fewer instructions ``w`` and ``r`` than
rows of ``train`` and ``valid``. The paper finds that attention which makes no error in distribution makes some there, and an
LSTM none.
"""

from collections.abc import Sequence

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks import IGNORED, whole_number
from attnlab.tasks.diagnostics.base import Diagnostic, commonest_share, last_quarter

WRITE, READ, IGNORE = 2, 3, 4  # tokens 0 and 1 are the bits
NAMES = "01wri"
LATEST = 12  # bits that ``chance`` weighs


class FlipFlop(Diagnostic):
    """Predict the bit after each ``r``, in rows of ``length`` tokens: instructions and their bits.

    Args:
        length: tokens of a row, an even number.
        ignore: probability of ``i``; ``w`` and ``r`` share the rest equally.
    """

    paper = "arXiv:2306.00946"
    vocabulary = 5
    threshold = 0.99
    levels = ({"length": 32}, {"length": 64, "ignore": 0.9}, {"length": 256, "ignore": 0.95})

    def __init__(self, *, length: int = 64, ignore: float = 0.8) -> None:
        self.length = whole_number(length, name="length", least=16)  # 8 instructions: each split has some rows
        if length % 2:
            raise UserError(f"length: expected an even number, an instruction and a bit each, got {length}")
        if not isinstance(ignore, int | float) or isinstance(ignore, bool) or not 0 <= ignore < 1:
            raise UserError(f"ignore: expected a probability of at least 0 and below 1, got {ignore!r}")
        self.ignore = ignore

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        shape = (count, self.length // 2)
        others = (1 - self.ignore) / 2
        instructions = rng.choice([WRITE, READ, IGNORE], p=[others, others, self.ignore], size=shape)
        instructions[:, 0], instructions[:, -1] = WRITE, READ
        bits = rng.integers(2, size=shape)
        last_write = np.maximum.accumulate(np.where(instructions == WRITE, np.arange(shape[1]), 0), axis=1)
        register = np.take_along_axis(bits, last_write, axis=1)
        bits = np.where(instructions == READ, register, bits)
        targets = np.where(instructions == READ, register, IGNORED)
        return _interleave(instructions, bits), _interleave(targets, np.full(shape, IGNORED))

    def solve(self, inputs: Sequence[int]) -> list[int]:
        targets, register = [], IGNORED
        for instruction, bit in zip(inputs[::2], inputs[1::2], strict=True):
            if instruction == WRITE:
                register = bit
            targets += [register if instruction == READ else IGNORED, IGNORED]
        return targets

    def evaluated_targets(self, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return last_quarter(targets)

    def chance(self) -> float:
        """Return the accuracy of the better one of two guesses.

        One is the commonest of the bits written so far: of a model that does not know which is the last. The other, better
        where few instructions are ``i``, weighs the latest bits by their age, and does not know their instructions.
        """
        return max(self._commonest_written(), self._likeliest_by_age())

    def _commonest_written(self) -> float:
        """Each written bit is equally likely to be the last. Their number is 1 for the first instruction, then binomial."""
        share = (1 - self.ignore) / 2  # of w, and of r
        shares = np.array([commonest_share(writes, 2) for writes in range(1, self.length // 2)])
        count = np.array([1.0])  # the probability of each number of writes
        right = reads = 0.0
        scored = last_quarter(np.zeros((1, self.length), dtype=np.int64))[0, ::2] != IGNORED
        for i in range(1, self.length // 2):
            if scored[i]:
                weight = 1.0 if i == self.length // 2 - 1 else share
                right, reads = right + weight * float(count @ shares[: len(count)]), reads + weight
            count = np.convolve(count, [1 - share, share])
        return right / reads

    def _likeliest_by_age(self) -> float:
        share = (1 - self.ignore) / 2  # of w, and of r
        chances = np.array([[0.5], [0.5]])  # (2, bits so far): of the register together with these bits
        for _ in range(min(LATEST, 3 * self.length // 8)):  # before the first instruction that is scored
            same = share * (chances + chances.sum(axis=0) / 2)  # the next bit is the register's: read, or written
            chances = self.ignore / 2 * chances[..., None] + np.eye(2)[:, None] * same[..., None]
            chances = chances.reshape(2, -1)
        return float(chances.max(axis=0).sum())

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(NAMES[token] for token in ids)


class SparseFlipFlop(FlipFlop):
    """Predict the bit after each ``r``, in rows with a larger share of ``i`` than in training.

    Args:
        length: tokens of a row, an even number.
        ignore: probability of ``i`` in ``train`` and ``valid``.
        test_ignore: probability of ``i`` in ``test``.
    """

    levels = (
        {"length": 64, "test_ignore": 0.9},
        {"length": 128, "test_ignore": 0.95},
        {"length": 256, "test_ignore": 0.98},
    )

    def __init__(self, *, length: int = 128, ignore: float = 0.8, test_ignore: float = 0.95) -> None:
        super().__init__(length=length, ignore=ignore)
        if not isinstance(test_ignore, int | float) or isinstance(test_ignore, bool) or not ignore < test_ignore < 1:
            raise UserError(f"test_ignore: expected a probability above ignore, {ignore:g}, and below 1, got {test_ignore!r}")
        self.sparse = FlipFlop(length=length, ignore=test_ignore)

    def rows(self, split: str, count: int, *, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        return self.sparse.rows(split, count, seed=seed) if split == "test" else super().rows(split, count, seed=seed)

    def chance(self) -> float:
        """Return the chance of ``FlipFlop`` in the rows of ``test``."""
        return self.sparse.chance()


def _interleave(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return (count, 2 n) from two arrays (count, n), with alternating columns."""
    return np.stack([first, second], axis=2).reshape(len(first), -1)
