"""Copy: a string of random symbols, token by token.

    c a b a S c a b . . .
            c a b a         targets

The next token is predicted from the copy so far. A model that copies by content, from the place behind
the same symbols, copies longer strings than in its training; one that learned the distances of its
training does not. ``evaluate.lengths`` tests it: strings have more than a quarter and at most half of
the tokens of a row, so that all strings in rows of twice the length are longer than in training.

Jelassi et al. 2024, "Repeat After Me: Transformers are Better than State Space Models at Copying"
(arXiv:2402.01032); Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization
in Transformers" (arXiv:2305.19466), in which strings of all lengths up to a limit are trained on, and
tested by whole answers.
"""

from collections.abc import Sequence

import numpy as np

from attnlab.tasks import IGNORED, whole_number
from attnlab.tasks.diagnostics.base import Diagnostic, commonest_share

FILLER, START = 0, 1  # the first tokens; symbols follow


class Copy(Diagnostic):
    """Copy a string of more than ``length`` / 4 and at most ``length`` / 2 symbols.

    Args:
        length: tokens of a row: the string, the token that starts the copy, the copy without its last token, and filler.
        symbols: number of distinct symbols.
    """

    paper = "arXiv:2402.01032"
    levels = ({"length": 16}, {"length": 32}, {"length": 64}, {"length": 128})

    def __init__(self, *, length: int = 32, symbols: int = 26) -> None:
        self.length = whole_number(length, name="length", least=8)
        self.symbols = whole_number(symbols, name="symbols", least=2)
        self.vocabulary = 2 + symbols
        self.sizes = range(length // 4 + 1, length // 2 + 1)  # of strings

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        string = rng.integers(2, self.vocabulary, size=(count, self.sizes[-1]))
        size = rng.integers(self.sizes[0], self.sizes[-1] + 1, size=(count, 1))
        place = np.arange(self.length)
        copied = np.take_along_axis(string, np.clip(place - size, 0, self.sizes[-1] - 1), axis=1)
        original = string[:, np.clip(place, 0, self.sizes[-1] - 1)]
        shown = np.roll(copied, 1, axis=1)
        inputs = np.select([place < size, place == size, place < 2 * size], [original, START, shown], FILLER)
        return inputs, np.where((place >= size) & (place < 2 * size), copied, IGNORED)

    def solve(self, inputs: Sequence[int]) -> list[int]:
        size = inputs.index(START)
        targets = [IGNORED] * len(inputs)
        targets[size : 2 * size] = inputs[:size]
        return targets

    def chance(self) -> float:
        """Return the accuracy of the better one of two guesses.

        One is the most frequent of the symbols that are still to be copied, the other, better in short rows, the symbol at the
        distance that is right for one of the sizes of a string.
        """
        rest = [commonest_share(left, self.symbols) for size in self.sizes for left in range(1, size + 1)]
        found = (2 * self.sizes[-1] - self.sizes[0]) / sum(self.sizes)  # one size at each place that has a target
        return max(float(np.mean(rest)), found + (1 - found) / self.symbols)
