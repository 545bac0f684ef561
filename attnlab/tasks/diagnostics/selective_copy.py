"""Selective copy: the symbols of a row in order, without the blanks that lie between them.

    . c . . a b . C . . .
                    c a b         targets

A model must keep the symbols and their order, and nothing of the blanks; their number between two
symbols is random.

Gu and Dao 2023, "Mamba" (arXiv:2312.00752); the form with a token that starts the copy is from Poli
et al. 2024, "Mechanistic Design and Scaling of Hybrid Architectures" (MAD, arXiv:2403.17844). There, no
blank follows the last symbol, and rows have 16 symbols and 256 tokens.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks import IGNORED, whole_number
from attnlab.tasks.diagnostics.base import Diagnostic, distinct

BLANK, COPY = 0, 1  # the first tokens; symbols follow
GUESSED, FEWEST = 20_000, 500  # rows from which the score of a guess is estimated, fewer of many symbols


class SelectiveCopy(Diagnostic):
    """Copy the ``tokens`` symbols of a row of ``length`` tokens to its end.

    Args:
        tokens: symbols of a row.
        length: tokens of a row: the symbols and the blanks between them, the token that starts the copy, and the copy.
        symbols: number of distinct symbols.
    """

    paper = "arXiv:2403.17844"
    chance_is_estimated = True
    levels = (
        {"tokens": 4, "length": 16},
        {"tokens": 4, "length": 32},
        {"tokens": 8, "length": 32},
        {"tokens": 8, "length": 64},
    )

    def __init__(self, *, tokens: int = 4, length: int = 32, symbols: int = 14) -> None:
        self.tokens = whole_number(tokens, name="tokens")
        self.length = whole_number(length, name="length")
        self.symbols = whole_number(symbols, name="symbols", least=2)
        if length < 2 * tokens + 1:
            raise UserError(
                f"length: expected at least {2 * tokens + 1}, {tokens} symbols, the token that starts the copy and "
                f"{tokens} copies, got {length}"
            )
        self.vocabulary = 2 + symbols

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        symbols = rng.integers(2, self.vocabulary, size=(count, self.tokens))
        inputs = np.full((count, self.length), BLANK)
        targets = np.full(inputs.shape, IGNORED)
        start = self.length - self.tokens - 1  # of the copy
        np.put_along_axis(inputs, np.sort(distinct(rng, count, start, self.tokens), axis=1), symbols, axis=1)
        inputs[:, start] = COPY
        targets[:, start + 1 :] = symbols
        return inputs, targets

    def solve(self, inputs: Sequence[int]) -> list[int]:
        symbols = [token for token in inputs if token not in (BLANK, COPY)]
        return [IGNORED] * (len(inputs) - len(symbols)) + symbols

    def chance(self) -> float:
        """Return the accuracy of a guess by the place of each symbol, without counting the symbols before it.

        Of the symbols of a row, it answers the one at the place that most often holds the symbol with the number that is asked
        for.
        """
        found = _found_by_place(self.length - self.tokens - 1, self.tokens)
        return found + (1 - found) / self.symbols  # another symbol may be the same one


@cache
def _found_by_place(places: int, tokens: int) -> float:
    """Return the share of symbols that a guess by their places finds, estimated from random rows.

    Args:
        places: of the symbols and the blanks between them.
        tokens: symbols of a row.
    """
    rows = min(GUESSED, FEWEST + 2**24 // tokens**2)
    drawn = np.sort(distinct(np.random.default_rng(0), rows, places, tokens), axis=1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, places + 1)))])
    before = np.arange(places)  # of each place
    right = 0.0
    for i in range(tokens):
        fits = (before >= i) & (places - 1 - before >= tokens - 1 - i)
        p = before[fits]
        # Log-probability that a symbol at place p has i others before it, C(p, i) C(n - 1 - p, k - 1 - i), up to a constant.
        is_number_i = np.full(places, -np.inf)
        is_number_i[p] = log_factorial[p] - log_factorial[p - i]
        is_number_i[p] += log_factorial[places - 1 - p] - log_factorial[places - p - tokens + i]
        right += float((is_number_i.round(9)[drawn].argmax(axis=1) == i).mean())
    return right / tokens
