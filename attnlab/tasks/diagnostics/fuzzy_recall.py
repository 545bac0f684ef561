"""Fuzzy recall: pairs of a key and a value of several tokens each, then the keys again; their values are the targets.

    k3 v7 v1 k3 k2 v4 k3 k2 ? k3 ? ?
                         v4   v7 v1         targets

Here "k3" and "k3 k2" are two keys: a model must join adjacent tokens before it compares them.

Poli et al. 2024, "Mechanistic Design and Scaling of Hybrid Architectures" (MAD, arXiv:2403.17844).
There, a row is a stream of pairs in which a key that occurs again has its value behind it, so that all
but the first token of a value can be guessed from the one before; sizes are random, and test rows have
only keys of the largest size. Here the queries show no values, each size is equally frequent, and keys
have few tokens, so that many end in the same one: a model that reads the last token of a key alone
scores what ``chance`` states.
"""

from collections.abc import Sequence

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks import IGNORED, whole_number
from attnlab.tasks.diagnostics.base import Diagnostic, distinct, permutations

BLANK = 0  # token 0, in place of each token of a value that is asked for; tokens of keys follow, then those of values
ABSENT = -1  # fills keys and values up to the largest size while rows are drawn


class FuzzyRecall(Diagnostic):
    """Recall the values of ``pairs`` pairs, with keys of 1 to ``key_size`` and values of 1 to ``value_size`` tokens.

    Args:
        pairs: pairs of a row, each with one query.
        key_size: the largest number of tokens of a key; the keys of a row have all sizes equally often.
        value_size: the same of values.
        symbols: number of distinct tokens in keys. With few, many keys end in the same token.
        values: number of distinct tokens in values.
    """

    paper = "arXiv:2403.17844"
    chance_is_estimated = True
    levels = ({"pairs": 4}, {"pairs": 8}, {"pairs": 8, "value_size": 2}, {"pairs": 12, "key_size": 3, "value_size": 3})
    steps = 1200  # attention first learns to read the last token of a key, and joins the tokens later

    def __init__(self, *, pairs: int = 4, key_size: int = 2, value_size: int = 1, symbols: int = 4, values: int = 16) -> None:
        self.pairs = whole_number(pairs, name="pairs")
        self.symbols = whole_number(symbols, name="symbols")
        self.values = whole_number(values, name="values")
        key_size, value_size = whole_number(key_size, name="key_size"), whole_number(value_size, name="value_size")
        if pairs > values:  # tokens at one place of the values of a row differ
            raise UserError(f"pairs: expected at most {values}, the number of tokens in values, got {pairs}")
        if (single := -(-pairs // key_size)) > symbols:
            raise UserError(
                f"pairs: expected at most {symbols} keys of one token, the number of symbols, "
                f"got {pairs} / {key_size} = {single}"
            )
        self.key_sizes, self.value_sizes = (1 + np.arange(pairs) % size for size in (key_size, value_size))
        self.length = 2 * int(self.key_sizes.sum() + self.value_sizes.sum())
        self.vocabulary = 1 + symbols + values

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        keys, values = self._keys(rng, count), self._values(rng, count)
        order = permutations(rng, count, self.pairs)[:, :, None]
        asked = np.where(np.take_along_axis(values, order, axis=1) == ABSENT, ABSENT, BLANK)
        queries = np.concatenate([np.take_along_axis(keys, order, axis=1), asked], axis=2)
        pairs = np.concatenate([keys, values], axis=2)
        tokens = np.concatenate([pairs, queries], axis=1).reshape(count, -1)
        hidden = np.concatenate([np.full_like(keys, IGNORED), np.take_along_axis(values, order, axis=1)], axis=2)
        targets = np.concatenate([np.full_like(pairs, IGNORED), hidden], axis=1).reshape(count, -1)
        present = tokens != ABSENT  # as many in each row
        targets = np.roll(targets[present].reshape(count, -1), -1, axis=1)  # predicted one position before their blanks
        return tokens[present].reshape(count, -1), targets

    def _keys(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Return distinct keys (count, pairs, key_size) in random order."""
        keys = np.full((count, self.pairs, self.key_sizes.max()), ABSENT)
        for size in range(1, keys.shape[2] + 1):
            (pairs,) = np.nonzero(self.key_sizes == size)
            numbers = distinct(rng, count, self.symbols**size, len(pairs))
            for i in range(size):  # the digits of the numbers
                keys[:, pairs, i] = 1 + numbers // self.symbols**i % self.symbols
        return np.take_along_axis(keys, permutations(rng, count, self.pairs)[:, :, None], axis=1)

    def _values(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Return values (count, pairs, value_size) in random order, with different tokens at each place."""
        values = np.stack([distinct(rng, count, self.values, self.pairs) for _ in range(self.value_sizes.max())], axis=2)
        values = np.where(np.arange(values.shape[2]) < self.value_sizes[:, None], 1 + self.symbols + values, ABSENT)
        return np.take_along_axis(values, permutations(rng, count, self.pairs)[:, :, None], axis=1)

    def solve(self, inputs: Sequence[int]) -> list[int]:
        blanks, values = [], {}
        key: tuple[int, ...] = ()
        previous, place = BLANK, 0
        for token in inputs:
            value = IGNORED
            if token == BLANK:
                place = place + 1 if previous == BLANK else 0
                value = values[key][place]
            elif token > self.symbols:
                values[key] = [*values.get(key, ()), token]
            else:
                key = (*key, token) if 0 < previous <= self.symbols else (token,)
            blanks.append(value)
            previous = token
        return [*blanks[1:], IGNORED]

    def chance(self) -> float:
        """Return the accuracy of a model that reads the last token of a key alone, estimated from 4,000 rows.

        Of the keys that end in one token, it answers one correctly: as many as there are different last tokens.
        """
        keys = self._keys(np.random.default_rng(0), 4000)
        last = keys[..., -1]
        for i in range(keys.shape[2] - 1, -1, -1):
            last = np.where(last == ABSENT, keys[..., i], last)
        correct = 0.0
        for place in range(self.value_sizes.max()):
            ends = np.sort(last[:, : (self.value_sizes > place).sum()], axis=1)  # keys are in random order
            correct += float((1 + (np.diff(ends, axis=1) != 0).sum(axis=1)).mean())
        return correct / float(self.value_sizes.sum())
