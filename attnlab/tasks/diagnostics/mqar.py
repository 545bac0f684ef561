"""Multi-query associative recall: pairs of a key and a value, then the keys again; their values are the targets.

    k3 v7 k1 v2 k5 v4  .  k1  .  .  k5 k3  .
                           v2        v4 v7         targets

Attention looks a value up; a recurrent network must hold all pairs in a state of fixed size. The places of the queries behind
the pairs follow a power law, so that most distances are short and some are long.

Arora et al. 2023, "Zoology: Measuring and Improving Recall in Efficient Language Models" (arXiv:2312.04927).

Departures from the paper: its code has ``power`` 0.01, more queries close to the pairs; there, queries stand at every second
place behind the pairs, here at any; there, the first pairs tend to be asked for first, here the order is random, so that
the score of a guess is known; tokens between the queries are random and may repeat a key, here they are a token of their
own, so that every target is determined. The paper has 8,192 tokens, half of them values, and a fixed training set; here there
are 64 keys and as many values, and rows are drawn afresh.
"""

from collections.abc import Sequence

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks import IGNORED, whole_number
from attnlab.tasks.diagnostics.base import Diagnostic, distinct, permutations

FILLER = 0  # token 0; keys follow, then values


class Mqar(Diagnostic):
    """Recall the values of ``pairs`` key-value pairs in rows of ``length`` tokens.

    Args:
        pairs: pairs of a row, each with one query.
        length: tokens of a row: two of each pair and at least one for its query.
        keys: number of distinct keys, and of distinct values.
        power: exponent of the power law from which the place of a query is drawn; 1: all places are equally likely.
    """

    paper = "arXiv:2312.04927"
    generator = 2
    levels = ({"pairs": 4, "length": 32}, {"pairs": 8}, {"pairs": 16}, {"pairs": 32, "length": 128})

    def __init__(self, *, pairs: int = 8, length: int = 64, keys: int = 64, power: float = 0.1) -> None:
        self.pairs = whole_number(pairs, name="pairs")
        self.length = whole_number(length, name="length")
        self.keys = whole_number(keys, name="keys")
        if not isinstance(power, int | float) or isinstance(power, bool) or not 0 < power <= 1:
            raise UserError(f"power: expected a number above 0 and at most 1, got {power!r}")
        self.power = power
        if pairs > keys:
            raise UserError(f"pairs: expected at most {keys}, the number of keys, got {pairs}")
        if 3 * pairs > length:
            raise UserError(
                f"length: expected at least {3 * pairs}, two tokens and a query for each of {pairs} pairs, got {length}"
            )
        self.vocabulary = 1 + 2 * keys

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        keys = 1 + distinct(rng, count, self.keys, self.pairs)
        values = 1 + self.keys + distinct(rng, count, self.keys, self.pairs)
        inputs = np.full((count, self.length), FILLER)
        targets = np.full((count, self.length), IGNORED)
        inputs[:, 0 : 2 * self.pairs : 2] = keys
        inputs[:, 1 : 2 * self.pairs : 2] = values
        places = np.arange(1, self.length - 2 * self.pairs + 1)
        weights = np.log(self.power * places ** (self.power - 1))
        order = np.argsort(-(weights + rng.gumbel(size=(count, len(places)))), axis=1)  # draws without replacement
        # Places that are drawn first are likely to be early ones: the order of the queries must not follow that of the pairs.
        queries = 2 * self.pairs + rng.permuted(order[:, : self.pairs], axis=1)
        np.put_along_axis(inputs, queries, keys, axis=1)
        np.put_along_axis(targets, queries, values, axis=1)
        return inputs, targets

    def solve(self, inputs: Sequence[int]) -> list[int]:
        pairs = inputs[: 2 * self.pairs]
        values = dict(zip(pairs[::2], pairs[1::2], strict=True))
        return [values.get(token, IGNORED) for token in inputs]

    def chance(self) -> float:
        return 1 / self.pairs  # a guess among the values of the row


class StackedMqar(Diagnostic):
    """Recall the values of ``pairs`` key-value pairs, each of which is one token; then all their keys follow in random order.

    Args:
        pairs: pairs of a row.
        keys: number of distinct keys, and of distinct values; there are keys^2 tokens of pairs.
    """

    paper = "arXiv:2312.04927"
    levels = ({"pairs": 4, "keys": 8}, {"pairs": 8}, {"pairs": 16})

    def __init__(self, *, pairs: int = 8, keys: int = 16) -> None:
        self.pairs = whole_number(pairs, name="pairs", least=2)
        self.keys = whole_number(keys, name="keys")
        if pairs > keys:
            raise UserError(f"pairs: expected at most {keys}, the number of keys, got {pairs}")
        self.length = 2 * pairs
        self.vocabulary = 2 * keys + keys**2  # values, keys, pairs

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        keys, values = (distinct(rng, count, self.keys, self.pairs) for _ in range(2))
        order = permutations(rng, count, self.pairs)
        queries, answers = (np.take_along_axis(tokens, order, axis=1) for tokens in (keys, values))
        inputs = np.concatenate([2 * self.keys + self.keys * keys + values, self.keys + queries], axis=1)
        return inputs, np.concatenate([np.full_like(answers, IGNORED), answers], axis=1)

    def solve(self, inputs: Sequence[int]) -> list[int]:
        pairs = dict(divmod(token - 2 * self.keys, self.keys) for token in inputs[: self.pairs])
        return [IGNORED] * self.pairs + [pairs[token - self.keys] for token in inputs[self.pairs :]]

    def chance(self) -> float:
        return 1 / self.pairs  # a guess among the values of the row
