"""Parity: at each bit, whether the number of ones so far is odd.

    0 1 1 0 1
    0 1 0 0 1         targets

A state of one bit suffices, if a token can flip it: recurrences with eigenvalues in [0, 1] cannot, and attention, which
averages, does not extrapolate beyond the trained length.

Hahn 2020, "Theoretical Limitations of Self-Attention in Neural Sequence Models"; Grazzi et al. 2024, "Unlocking State-Tracking
in Linear RNNs Through Negative Eigenvalues" (arXiv:2411.12537). There, only the last bit of a
row has a target, and training rows have up to 40 bits. Here, each prefix of a training row is such a row; evaluations score the
last quarter.
"""

from collections.abc import Sequence

import numpy as np

from attnlab.tasks import whole_number
from attnlab.tasks.diagnostics.base import Diagnostic, last_quarter


class Parity(Diagnostic):
    """Predict the parity of all bits so far, in rows of ``length`` random bits."""

    paper = "arXiv:2411.12537"
    vocabulary = 2
    levels = ({"length": 16}, {"length": 32}, {"length": 64})

    def __init__(self, *, length: int = 32) -> None:
        self.length = whole_number(length, name="length", least=8)  # 256 rows: each split has some

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        inputs = rng.integers(2, size=(count, self.length))
        return inputs, inputs.cumsum(axis=1) % 2

    def solve(self, inputs: Sequence[int]) -> list[int]:
        targets, odd = [], 0
        for bit in inputs:
            odd ^= bit
            targets.append(odd)
        return targets

    def evaluated_targets(self, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return last_quarter(targets)

    def chance(self) -> float:
        return 0.5
