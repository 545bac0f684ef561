"""Random draws that diagnostics share, and the scores of guesses from them."""

from functools import cache

import numpy as np


def distinct(rng: np.random.Generator, count: int, below: int, size: int) -> np.ndarray:
    """Return (count, size) numbers below ``below`` in random order, distinct within each row.

    This is Floyd's algorithm (Bentley and Floyd 1987); its cost does not depend on ``below``.
    """
    drawn = np.empty((count, size), dtype=np.int64)
    for i, last in enumerate(range(below - size, below)):
        number = rng.integers(last + 1, size=count)
        is_drawn = (drawn[:, :i] == number[:, None]).any(axis=1)
        drawn[:, i] = np.where(is_drawn, last, number)
    return rng.permuted(drawn, axis=1)


def permutations(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    """Return (count, size) numbers: in each row, a random order of those below ``size``."""
    return np.argsort(rng.random((count, size)), axis=1)


@cache
def commonest_share(size: int, symbols: int) -> float:
    """Return the expected share of the most frequent of ``symbols`` symbols among ``size`` uniform draws.

    This is the accuracy of a model that knows the symbols of a row but not their order. It is exact: counts of symbols are
    independent Poisson variables given their sum, and E[max] is the sum of P(max > m) over m.
    """
    rate = size / symbols
    poisson = np.exp(-rate) * np.cumprod(np.concatenate([[1.0], rate / np.arange(1, size + 1)]))
    total = _power(poisson, symbols)[size]
    above = [1 - _power(np.where(np.arange(size + 1) <= most, poisson, 0), symbols)[size] / total for most in range(size)]
    return float(sum(above)) / size


def _power(series: np.ndarray, exponent: int) -> np.ndarray:
    """Return the coefficients of a power of a power series, up to the degree of ``series``."""
    result = np.zeros_like(series)
    result[0] = 1
    while exponent:
        if exponent % 2:
            result = np.convolve(result, series)[: len(series)]
        series = np.convolve(series, series)[: len(series)]
        exponent //= 2
    return result
