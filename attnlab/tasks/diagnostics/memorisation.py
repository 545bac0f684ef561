"""Memorization: the values of keys under a mapping that is the same in all rows.

    k3 ? k1 ? k3 ?
       v7   v2   v7         targets

Nothing of it is in the row: the weights must store the mapping, and only the position before has to be
read. The number of keys at which a model fails is what it can store, or learn in the time.

Poli et al. 2024, "Mechanistic Design and Scaling of Hybrid Architectures" (MAD, arXiv:2403.17844), with
127 keys at the easiest level, 256 rows of training and 4,095 keys at the hardest.
"""

from collections.abc import Sequence

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks import IGNORED, whole_number
from attnlab.tasks.diagnostics.base import Diagnostic

ASK = 0  # token 0, at which the value of the key before it is predicted; keys follow, then values


class Memorisation(Diagnostic):
    """Learn the values of ``keys`` keys by heart, which rows of ``length`` tokens ask for.

    Args:
        keys: number of keys, each with one value.
        length: tokens of a row, an even number.
        seed: determines the mapping from keys to values.
    """

    paper = "arXiv:2403.17844"
    levels = ({"keys": 64}, {"keys": 256}, {"keys": 1024}, {"keys": 4096})
    estimand, threshold = "mean", None  # the share of the keys that are learned varies little between seeds

    def __init__(self, *, keys: int = 256, length: int = 32, seed: int = 0) -> None:
        self.keys = whole_number(keys, name="keys", least=2)
        self.length = whole_number(length, name="length", least=16)
        if length % 2:
            raise UserError(f"length: expected an even number, two tokens for each key, got {length}")
        self.values = np.random.default_rng(whole_number(seed, name="seed", least=0)).permutation(keys) + 1 + keys
        self.vocabulary = 1 + 2 * keys

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        keys = rng.integers(self.keys, size=(count, self.length // 2))
        inputs = np.full((count, self.length), ASK)
        targets = np.full(inputs.shape, IGNORED)
        inputs[:, ::2] = 1 + keys
        targets[:, 1::2] = self.values[keys]
        return inputs, targets

    def solve(self, inputs: Sequence[int]) -> list[int]:
        targets = [IGNORED] * len(inputs)
        targets[1::2] = [int(self.values[key - 1]) for key in inputs[::2]]
        return targets

    def chance(self) -> float:
        return 1 / self.keys
