"""Tests of the draws that diagnostics share, against enumeration and simulation."""

from collections import Counter
from itertools import permutations, product

import numpy as np
import pytest

from attnlab.tasks.diagnostics.base import commonest_share, distinct


def test_every_ordered_choice_is_equally_likely() -> None:
    drawn = Counter(map(tuple, distinct(np.random.default_rng(0), 60_000, 5, 3).tolist()))
    assert drawn.keys() == set(permutations(range(5), 3))
    counts = np.array(list(drawn.values()))
    assert ((counts - 1000) ** 2 / 1000).sum() < 100  # chi-squared with 59 degrees of freedom: p = 0.0007


def test_all_numbers_are_drawn_in_a_random_order() -> None:
    drawn = distinct(np.random.default_rng(0), 50, 7, 7)
    assert (np.sort(drawn, axis=1) == np.arange(7)).all() and len(np.unique(drawn, axis=0)) > 45


def test_choices_from_many_numbers_need_little_memory() -> None:
    assert distinct(np.random.default_rng(0), 10, 10**12, 4).max() > 10**10


@pytest.mark.parametrize(("size", "symbols"), [(1, 5), (4, 3), (3, 2), (5, 4)])
def test_the_commonest_share_is_that_of_all_rows(size: int, symbols: int) -> None:
    rows = list(product(range(symbols), repeat=size))
    assert commonest_share(size, symbols) == pytest.approx(sum(max(Counter(row).values()) / size for row in rows) / len(rows))


def test_the_commonest_share_of_long_rows() -> None:
    rows = np.random.default_rng(0).integers(20, size=(4000, 126))
    largest = np.array([np.bincount(row).max() for row in rows])
    assert commonest_share(126, 20) == pytest.approx(largest.mean() / 126, abs=4 * largest.std() / 126 / 4000**0.5)
