"""Indirect indexing: the symbol at a given distance from a given symbol.

    a d c b  +2 d  -1 c
                b     d         targets

A model must find a symbol by its content and then another by its position relative to the first. Rotary
embeddings mix the two in one rotation; polar coordinate embeddings (``position: pope``) keep them apart.

Gopalakrishnan et al. 2025, "Decoupling the 'What' and 'Where' With Polar Coordinate Positional
Embeddings" (arXiv:2509.10534), with one query in a row. Here a row has several, for more targets in a
batch. The sizes differ from the paper's.
"""

from collections.abc import Sequence

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks import IGNORED, whole_number
from attnlab.tasks.diagnostics.base import Diagnostic, distinct


class IndirectIndex(Diagnostic):
    """Find the symbols at a distance of up to ``reach`` from given ones, among ``items`` symbols.

    Args:
        items: symbols of a row, all different.
        reach: the largest distance to the left or right.
        queries: queries of a row, each of a distance and a symbol.
        symbols: number of distinct symbols.
    """

    paper = "arXiv:2509.10534"
    levels = (
        {"items": 8, "reach": 1, "symbols": 16},
        {"items": 16, "reach": 2},
        {"items": 16, "reach": 4},
        {"items": 32, "reach": 8},
    )

    def __init__(self, *, items: int = 16, reach: int = 4, queries: int = 8, symbols: int = 32) -> None:
        self.items = whole_number(items, name="items", least=2)
        self.reach = whole_number(reach, name="reach")
        self.queries = whole_number(queries, name="queries")
        self.symbols = whole_number(symbols, name="symbols")
        if items > symbols:
            raise UserError(f"items: expected at most {symbols}, the number of symbols, got {items}")
        if reach >= items:
            raise UserError(f"reach: expected at most {items - 1}, the largest distance between {items} items, got {reach}")
        self.length = items + 2 * queries
        self.vocabulary = symbols + 2 * reach

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        items = distinct(rng, count, self.symbols, self.items)
        shape = (count, self.queries)
        distances = rng.integers(1, 1 + self.reach, size=shape)
        to_right = rng.integers(2, size=shape, dtype=bool)
        lower = rng.integers(self.items - distances)  # the left of the two places
        upper = lower + distances
        source, place = np.where(to_right, lower, upper), np.where(to_right, upper, lower)
        inputs = np.empty((count, self.length), dtype=np.int64)
        targets = np.full(inputs.shape, IGNORED)
        inputs[:, : self.items] = items
        inputs[:, self.items :: 2] = self.symbols + distances - 1 + self.reach * to_right
        inputs[:, self.items + 1 :: 2] = np.take_along_axis(items, source, axis=1)
        targets[:, self.items + 1 :: 2] = np.take_along_axis(items, place, axis=1)
        return inputs, targets

    def solve(self, inputs: Sequence[int]) -> list[int]:
        items = list(inputs[: self.items])
        targets = [IGNORED] * len(inputs)
        for i in range(self.items, len(inputs), 2):
            number = inputs[i] - self.symbols  # distances to the left, then those to the right
            distance = -1 - number if number < self.reach else 1 + number - self.reach
            targets[i + 1] = items[items.index(inputs[i + 1]) + distance]
        return targets

    def chance(self) -> float:
        """Return the accuracy of a guess among the symbols that have a neighbor at the distance, but for the given symbol.

        That is one of them, unless it has no neighbor on the other side.
        """
        distances = np.arange(1, 1 + self.reach)
        places = self.items - distances  # that can hold the target
        inside = np.maximum(0, places - distances) / places  # the share of given symbols that stand at one of them
        return float((inside / np.maximum(1, places - 1) + (1 - inside) / places).mean())
