"""Tests of the error rates of factorial studies in a few thousand simulated ones (``benchmarks.validity`` simulates more)."""

import pytest

from benchmarks.factorial import QUANTITIES, SETTINGS, design_of, simulate, simulated_lines

STUDIES = 2_000
MOST = 0.05 + 3 * (0.05 * 0.95 / STUDIES) ** 0.5  # 5 % plus three standard errors in this many studies


@pytest.mark.parametrize(("name", "factors", "cells"), [("full", 3, 8), ("fractional", 8, 16), ("leave_one_out", 4, 6)])
@pytest.mark.parametrize("seeds", [3, 5])
def test_at_most_one_study_in_twenty_has_a_false_main_effect(name: str, factors: int, cells: int, seeds: int) -> None:
    rates = simulate(design_of(name, factors, cells), "equal", seeds=seeds, studies=STUDIES, seed=1)
    assert rates.false_main.value <= MOST and rates.false_interactions.value <= MOST
    assert rates.covered.value >= 1 - MOST


def test_a_factor_that_changes_the_runs_of_a_seed_breaks_the_pooled_test_only() -> None:
    for noise in ("one 0.3", "one 0.6", "three 0.3"):
        rates = simulate(design_of("fractional", 8, 16), noise, seeds=3, studies=STUDIES, seed=2)
        assert rates.false_main.value <= MOST < 0.1 < rates.pooled.value


def test_lines_have_one_row_for_each_quantity() -> None:
    lines = simulated_lines(SETTINGS[0], 50, 1)
    assert [line.quantity for line in lines] == list(QUANTITIES)
    assert {line.part for line in lines} == {"factorial"}
