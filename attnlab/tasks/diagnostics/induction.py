"""Induction: the token that followed the marker earlier in the row.

    d a M c b a M
                c         target

This is the smallest case of recall: one pair, with the same key in all rows. Attention solves it
with two layers, an induction head; a recurrent state must keep the one token that follows the marker.

Fu et al. 2022, "Hungry Hungry Hippos" (arXiv:2212.14052). Olsson et al. 2022, "In-context Learning and
Induction Heads" (arXiv:2209.11895), describe how attention does it.
"""

from collections.abc import Sequence

import numpy as np

from attnlab.tasks import IGNORED, whole_number
from attnlab.tasks.diagnostics.base import Diagnostic, commonest_share

MARKER = 0  # token 0; symbols follow


class Induction(Diagnostic):
    """Recall the token after the first marker at the second one, in rows of ``length`` tokens.

    Args:
        length: tokens of a row: random symbols with one marker among them, and the marker at the end.
        symbols: number of distinct tokens without the marker.
    """

    paper = "arXiv:2212.14052"
    levels = ({"length": 16}, {"length": 32}, {"length": 64}, {"length": 128})

    def __init__(self, *, length: int = 32, symbols: int = 20) -> None:
        self.length = whole_number(length, name="length", least=8)
        self.symbols = whole_number(symbols, name="symbols", least=2)
        self.vocabulary = 1 + symbols

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        inputs = rng.integers(1, 1 + self.symbols, size=(count, self.length))
        targets = np.full(inputs.shape, IGNORED)
        row, place = np.arange(count), rng.integers(self.length - 2, size=count)  # a symbol follows, the last token is a marker
        inputs[row, place] = inputs[:, -1] = MARKER
        targets[:, -1] = inputs[row, place + 1]
        return inputs, targets

    def solve(self, inputs: Sequence[int]) -> list[int]:
        after = inputs[inputs.index(MARKER) + 1]
        return [after] * len(inputs)

    def chance(self) -> float:
        """Return the accuracy of the commonest symbol of the row, but for the first token, which no token precedes.

        Where the marker is not first, there is one symbol less.
        """
        first, other = (commonest_share(size, self.symbols) for size in (self.length - 2, self.length - 3))
        return (first + (self.length - 3) * other) / (self.length - 2)
