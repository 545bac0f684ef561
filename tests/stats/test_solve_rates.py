"""Tests of the exact inference on two solve rates: against counts by hand, SciPy, and enumeration of all outcomes."""

import numpy as np
import pytest
from scipy.stats import barnard_exact, binom

from attnlab.stats.exact import interval_of_difference, p_above


def test_the_p_values_are_those_counted_by_hand() -> None:
    """At a common rate of 1/2, each of the 2^6 outcomes of two times three seeds has the same probability."""
    assert p_above(3, 0, 3) == pytest.approx(1 / 64)  # only 3 against 0
    # 3 against 1 (3 outcomes) and 2 against 0 (3) have the same statistic, and 3 against 0 (1) a larger one.
    assert p_above(3, 1, 3) == p_above(2, 0, 3) == pytest.approx(7 / 64)
    assert p_above(5, 0, 5) == pytest.approx(1 / 1024)


@pytest.mark.parametrize(("cell", "baseline", "n"), [(5, 0, 5), (5, 1, 5), (8, 3, 8), (7, 2, 8), (11, 4, 12)])
def test_the_test_of_no_difference_is_barnard_s(cell: int, baseline: int, n: int) -> None:
    table = [[cell, baseline], [n - cell, n - baseline]]
    assert p_above(cell, baseline, n) == pytest.approx(barnard_exact(table, alternative="greater").pvalue, abs=1e-4)


@pytest.mark.parametrize("difference", [-0.4, 0.0, 0.3])
@pytest.mark.parametrize("level", [0.05, 0.0125])
def test_no_pair_of_rates_on_the_boundary_is_rejected_more_often_than_the_level(difference: float, level: float) -> None:
    n = 6
    p = np.array([[p_above(cell, baseline, n, difference) for baseline in range(n + 1)] for cell in range(n + 1)])
    counts = np.arange(n + 1)
    for rate in np.linspace(max(0, -difference), min(1, 1 - difference), 57):
        cells, baselines = binom.pmf(counts, n, rate + difference), binom.pmf(counts, n, rate)
        assert cells @ (p <= level) @ baselines <= level + 1e-4


@pytest.mark.parametrize("correlation", [0.2, 0.5, 0.9])
def test_seeds_that_tend_to_solve_both_cells_make_false_verdicts_rarer(correlation: float) -> None:
    """The exact probability of a verdict without a difference, over correlated pairs, is that of independent ones at most."""
    n, level = 8, 0.05
    counts = range(n + 1)
    rejected = np.array([[2 * min(p_above(a, b, n), p_above(b, a, n)) < level for b in counts] for a in counts])
    for rate in np.linspace(0.05, 0.5, 10):
        assert _probability(rejected, n, rate, correlation) <= _probability(rejected, n, rate, 0.0) + 1e-9 < level


def _probability(rejected: np.ndarray, n: int, rate: float, correlation: float) -> float:
    both = rate**2 + rate * (1 - rate) * correlation
    one = rate - both
    counts = np.zeros((n + 1, n + 1))
    counts[0, 0] = 1
    for _ in range(n):
        step = counts * (1 - both - 2 * one)
        step[1:, 1:] += counts[:-1, :-1] * both
        step[1:, :] += counts[:-1, :] * one
        step[:, 1:] += counts[:, :-1] * one
        counts = step
    return float(counts[rejected].sum())


def test_the_interval_excludes_a_difference_exactly_if_a_test_rejects_it() -> None:
    for n in (2, 3, 5):
        for cell in range(n + 1):
            for baseline in range(n + 1):
                for tail in (0.025, 0.025 / 4):
                    low, high = interval_of_difference(cell, baseline, n, tail)
                    assert low <= (cell - baseline) / n <= high
                    assert (low > 0) == (p_above(cell, baseline, n) <= tail)
                    assert (high < 0) == (p_above(baseline, cell, n) <= tail)


def test_the_interval_covers_the_truth_at_least_as_often_as_it_says() -> None:
    n, counts = 5, np.arange(6)
    ends = np.array([[interval_of_difference(a, b, n, 0.025) for b in counts] for a in counts])
    for cell in (0.1, 0.5, 0.9):
        for baseline in (0.2, 0.5, 0.95):
            covered = (ends[..., 0] <= cell - baseline + 1e-9) & (ends[..., 1] >= cell - baseline - 1e-9)
            assert binom.pmf(counts, n, cell) @ covered @ binom.pmf(counts, n, baseline) >= 0.95
