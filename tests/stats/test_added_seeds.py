"""Tests of the expected number of seeds where seeds are added until verdicts are conclusive."""

import pytest

from attnlab.stats.added_seeds import LARGE, added_seeds, simulate_added_seeds
from attnlab.stats.power import Spread, TableDesign, largest_spread, verdict_probability
from attnlab.stats.predict import POWER
from benchmarks.futility import added_seeds as added_seeds_of_one
from benchmarks.verdict_seeds import seeds_added


@pytest.mark.parametrize(("difference", "attribute"), [(0.0, "equal"), (LARGE, "large")])
def test_one_comparison_takes_the_seeds_of_studies_that_are_judged_one_by_one(difference: float, attribute: str) -> None:
    expected = simulate_added_seeds(TableDesign(2.0), 1.0, first=3, last=12)
    simulated = added_seeds_of_one(2.0 * difference, 2.0, 0.0, 400, 0)["seeds"]
    assert isinstance(simulated, float) and getattr(expected, attribute) == pytest.approx(simulated, rel=0.06)


@pytest.mark.parametrize("difference", [0.0, LARGE])
def test_a_table_takes_at_most_the_expected_seeds(difference: float) -> None:
    outcome = seeds_added(4, difference, 1_000, 0)
    assert 0.8 * outcome["expected"] < outcome["seeds"] < 1.02 * outcome["expected"]


def test_large_differences_take_fewer_seeds_than_a_fixed_number_and_none_takes_more() -> None:
    design = TableDesign(1.0, 4, 4)
    sd = largest_spread(design, 8)
    assert sd is not None and verdict_probability(design, 8, Spread(sd)) == pytest.approx(POWER, abs=0.01)
    outcome = added_seeds(design, sd, first=3, fixed=8)
    assert outcome is not None and outcome.right >= POWER and outcome.first == 3 < 8 < outcome.last
    assert outcome.large < 5 < 8 < outcome.equal
    before = simulate_added_seeds(design, sd, first=3, last=outcome.last - 1)
    assert before.right < POWER, "it is the smallest last look"
