"""Recall at an address that a state must track: bits at addresses, pointers to some of them, swaps of pointers, then the bits.

    0:1 1:0 2:1 3:1   a->2 b->0 c->1   - a<>b b<>c   b  a  c
                                                     0  1  1         targets

After the swaps, a points to 0, b to 1 and c to 2. A recurrent network can follow the swaps, and attention can look up the bits.
Each alone is expected to fail: attention, because products of permutations of five items need a depth that grows with
their number (unless TC0 = NC1), and a recurrence when its state is too small for all bits.

Merrill et al. 2026, "Olmo Hybrid: From Theory to Practice and Back" (arXiv:2604.03444), a theorem on state-based recall, not a
data set. Here, a token states an address together with its bit, or a pointer with its address, so that no position scheme is
needed; all pointers are asked for, in random order; training rows leave out some of the swaps, from none to all but one, so
that a model can learn one swap before several; and evaluations score the pointers that moved, in rows with all swaps: for the
other pointers, the bit at the first address is right without any state.
"""

from collections.abc import Sequence
from itertools import combinations
from math import comb

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks import IGNORED, whole_number
from attnlab.tasks.diagnostics.base import Diagnostic, distinct, permutations


class StateRecall(Diagnostic):
    """Find the bits under ``pointers`` pointers, after swaps of two pointers at a time.

    Args:
        bits: number of addresses, each with a random bit.
        pointers: number of pointers, to different addresses; there are as many queries.
        length: tokens of a row: the bits, the pointers, the token "no swap", the swaps, which fill the rest, and the queries.
    """

    paper = "arXiv:2604.03444"
    levels = (
        {"bits": 8, "pointers": 3, "length": 19},
        {"bits": 16, "pointers": 3, "length": 31},
        {"bits": 16, "length": 35},
        {"bits": 32, "length": 59},
    )
    steps = 2_000

    def __init__(self, *, bits: int = 16, pointers: int = 5, length: int = 35) -> None:
        self.bits = whole_number(bits, name="bits", least=3)
        self.pointers = whole_number(pointers, name="pointers", least=3)
        self.length = whole_number(length, name="length")
        if pointers > bits:
            raise UserError(f"pointers: expected at most {bits}, the number of addresses, got {pointers}")
        self.swaps = length - bits - 2 * pointers - 1
        if self.swaps < 2:  # the last swap alone decides the answer where there is one
            least = f"{bits + 2 * pointers + 3} = {bits} + 2 x {pointers} + 3"
            raise UserError(f"length: expected at least {least}, for bits, pointers, queries and two swaps, got {length}")
        self.pairs = list(combinations(range(pointers), 2))
        # Tokens: 0 and 1, the answers; an address with its bit; a pointer with its address; a swap, or none; a query.
        self.first_pointer = 2 + 2 * bits
        self.first_swap = self.first_pointer + pointers * bits
        self.no_swap = self.first_swap + len(self.pairs)
        self.first_query = self.no_swap + 1
        self.vocabulary = self.first_query + pointers

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        bits = rng.integers(2, size=(count, self.bits))
        swaps = self.first_swap + rng.integers(len(self.pairs), size=(count, self.swaps))
        left_out = permutations(rng, count, self.swaps) >= rng.integers(1, 1 + self.swaps, size=(count, 1))
        queries = permutations(rng, count, self.pointers)
        inputs = np.concatenate(
            [
                2 + 2 * np.arange(self.bits) + bits,
                self.first_pointer + self.bits * np.arange(self.pointers) + distinct(rng, count, self.bits, self.pointers),
                np.full((count, 1), self.no_swap),
                np.where(left_out, self.no_swap, swaps),
                self.first_query + queries,
            ],
            axis=1,
        )
        targets = np.full(inputs.shape, IGNORED)
        addresses = np.take_along_axis(self.addresses(inputs)[1], queries, axis=1)
        targets[:, -self.pointers :] = np.take_along_axis(bits, addresses, axis=1)
        return inputs, targets

    def addresses(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the addresses (count, pointers) of the pointers of rows before and after the swaps."""
        first = (inputs[:, self.bits : self.bits + self.pointers] - self.first_pointer) % self.bits
        pairs, rows, addresses = np.array([*self.pairs, (0, 0)]), np.arange(len(inputs)), first.copy()
        for swap in inputs[:, self.bits + self.pointers : -self.pointers].T - self.first_swap:
            one, other = pairs[swap].T
            addresses[rows, one], addresses[rows, other] = addresses[rows, other], addresses[rows, one]
        return first, addresses

    def solve(self, inputs: Sequence[int]) -> list[int]:
        end = len(inputs) - self.pointers
        bits = [token % 2 for token in inputs[: self.bits]]
        under = [bits[(token - self.first_pointer) % self.bits] for token in inputs[self.bits : self.bits + self.pointers]]
        for token in inputs[self.bits + self.pointers : end]:
            if token != self.no_swap:
                one, other = self.pairs[token - self.first_swap]
                under[one], under[other] = under[other], under[one]
        return [IGNORED] * end + [under[token - self.first_query] for token in inputs[end:]]

    def evaluated_targets(self, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the targets of the pointers that do not point to their first address, in rows with all swaps."""
        first, last = self.addresses(inputs)
        scored = np.full(inputs.shape, False)
        scored[:, -self.pointers :] = np.take_along_axis(first != last, inputs[:, -self.pointers :] - self.first_query, axis=1)
        scored &= (inputs == self.no_swap).sum(axis=1, keepdims=True) == 1
        return np.where(scored, targets, IGNORED)

    def chance(self) -> float:
        """Return the accuracy of a model that knows the last swap of a pointer that moved, but not the swaps before it.

        In that swap, the pointer got the address of another one: its first address if that one had not moved before, which is
        unlikely after many swaps. All other addresses of pointers but the pointer's first are equally likely. The model
        weighs their bits.
        """
        others = self.pointers - 2  # pointers besides the asked one and the one that it was last swapped with
        right = total = 0.0
        for before in range(self.swaps):
            stayed = 1 / self.pointers + (1 - 1 / self.pointers) * (1 - 2 / (self.pointers - 1)) ** before
            elsewhere = (1 - stayed) / (self.pointers - 1)  # the probability of each other address
            probability = 2 / self.pointers * (1 - 2 / self.pointers) ** (self.swaps - 1 - before)
            total += probability * (stayed + others * elsewhere)
            for ones in range(others + 1):  # bits 1 among them, given that the first bit of the partner is 1
                weight = stayed + ones * elsewhere
                share = comb(others, ones) / 2**others
                right += probability * share * max(weight, stayed + others * elsewhere - weight)
        return right / total

    def decode(self, ids: Sequence[int]) -> str:
        pointers = [chr(ord("a") + i) for i in range(self.pointers)]
        names = ["0", "1", *(f"{address}:{bit}" for address in range(self.bits) for bit in (0, 1))]
        names += [f"{pointer}->{address}" for pointer in pointers for address in range(self.bits)]
        names += [*(f"{pointers[one]}<>{pointers[other]}" for one, other in self.pairs), "-"]
        return " ".join([*names, *pointers][token] for token in ids)
