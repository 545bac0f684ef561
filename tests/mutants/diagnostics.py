"""Diagnostics with one mistake each, which the contract of tasks must catch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks import IGNORED
from attnlab.tasks.diagnostics import Diagnostic
from attnlab.tasks.diagnostics.flip_flop import SparseFlipFlop
from attnlab.tasks.diagnostics.k_hop import KHop
from attnlab.tasks.diagnostics.mqar import StackedMqar
from attnlab.tasks.diagnostics.state_recall import StateRecall


class Total(Diagnostic):
    """A correct diagnostic, the sum of a row modulo 3 at its end: the base of several mutants."""

    levels = ({"length": 11}, {"length": 17})

    def __init__(self, *, length: int = 13, symbols: int = 5) -> None:
        if length < 7:
            raise UserError(f"length: expected at least 7, got {length}")
        self.length, self.vocabulary = length, symbols

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        inputs = rng.integers(self.vocabulary, size=(count, self.length))
        targets = np.full_like(inputs, IGNORED)
        targets[:, -1] = inputs.sum(1) % 3
        return inputs, targets

    def solve(self, inputs: Sequence[int]) -> list[int]:
        return [sum(inputs) % 3] * len(inputs)

    def chance(self) -> float:
        return 1 / 3


class SolvesAnother(Total):
    """Solves the sum modulo 4."""

    def solve(self, inputs: Sequence[int]) -> list[int]:
        return [sum(inputs) % 4] * len(inputs)


class SolvesTheEnd(Total):
    """Returns the target alone in place of a number for each input."""

    def solve(self, inputs: Sequence[int]) -> list[int]:
        return [sum(inputs) % 3]


class SmallChance(Total):
    """Guesses among all symbols, not among the three sums."""

    def chance(self) -> float:
        return 1 / 30


class ChanceInPercent(Total):
    """Returns chance in per cent."""

    def chance(self) -> float:
        return 33.0


class ShortLevel(Total):
    """Has a level that its constructor refuses."""

    levels = ({"length": 11}, {"length": 5})


class MisspeltLevel(Total):
    """Has a level with an option that its constructor does not take."""

    levels = ({"length": 11}, {"lenght": 17})


class EmptyLevel(Total):
    """Has a level with one row."""

    levels = ({"length": 11}, {"symbols": 1})


class PredictsItsInput(Total):
    """The target at the end is the token at the end, in a row with one target."""

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        inputs, targets = super().draw(rng, count)
        targets[:, -1] = inputs[:, -1]
        return inputs, targets

    def solve(self, inputs: Sequence[int]) -> list[int]:
        return list(inputs)


class StopsOneHopEarly(KHop):
    """The target of a query is the node before the one that it asks for."""

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        inputs, targets = super().draw(rng, count)
        for row, answers in zip(inputs, targets, strict=True):
            edges = row[: 2 * self.nodes]
            before = dict(zip(edges[1::2], edges[::2], strict=True))
            asked = answers != IGNORED
            answers[asked] = [before[node] for node in answers[asked]]
        return inputs, targets


class ForgetsTheSwaps(StateRecall):
    """The targets are the bits under the addresses that the pointers had at first."""

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        inputs, targets = super().draw(rng, count)
        asked = inputs[:, -self.pointers :] - self.first_query
        first = np.take_along_axis(self.addresses(inputs)[0], asked, axis=1)
        targets[:, -self.pointers :] = np.take_along_axis(inputs[:, : self.bits] % 2, first, axis=1)
        return inputs, targets


class AnswersInTheOrderOfPairs(StackedMqar):
    """The answers follow the order of the pairs, not that of the queries."""

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        inputs, targets = super().draw(rng, count)
        targets[:, self.pairs :] = (inputs[:, : self.pairs] - 2 * self.keys) % self.keys
        return inputs, targets


class ReadsTheFirstBit(SparseFlipFlop):
    """Solves a row with the bit that was written first, not last."""

    def solve(self, inputs: Sequence[int]) -> list[int]:
        targets = super().solve(inputs)
        return [target if target == IGNORED else inputs[1] for target in targets]
