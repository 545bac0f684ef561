"""Tests of the coverage of intervals over whole tables, and of the bias of chosen estimates, in a few thousand tables."""

import numpy
import pytest

from attnlab.stats.joint import hides_correction, simultaneous_interval
from benchmarks.intervals import EFFECTS, INTERVALS, chosen_estimates, simultaneous_ends, together
from benchmarks.simulate import CELLS, judge, tables
from benchmarks.table_tests import t_tests

STUDIES = 4_000


@pytest.mark.parametrize("name", EFFECTS)
def test_simultaneous_intervals_hold_together(name: str) -> None:
    shares = together(EFFECTS[name], 5, STUDIES, seed=1)
    least = 0.95 if len(set(EFFECTS[name])) == 1 else 0.95 - 0.05 * (CELLS - 1) / CELLS
    assert shares["bonferroni"].value >= 0.95 - 3 * shares["bonferroni"].error
    assert shares["simultaneous"].value >= least - 3 * shares["simultaneous"].error
    assert shares["single"].value < 0.9, "single intervals do not hold together"


def test_the_promised_coverage_is_that_of_the_documentation() -> None:
    assert INTERVALS.quantity("simultaneous").limit == pytest.approx(0.95 - 0.05 * (CELLS - 1) / CELLS)


def test_the_simulated_intervals_are_those_of_a_report() -> None:
    differences = tables("normal", 4, studies=60, seed=2) + numpy.array([0.0, 2.0, 4.0, -6.0])[:, None]
    tests = t_tests(differences)
    low, high = simultaneous_ends(tests)
    hidden = ~tests.covers(0) & ~tests.differs
    assert hidden.any() and tests.differs.any()
    for i, table in enumerate(differences.tolist()):
        judged = judge(table)
        intervals = [simultaneous_interval(difference) for difference in judged]
        assert [interval and interval.low for interval in intervals] == pytest.approx(list(low[i]))
        assert [interval and interval.high for interval in intervals] == pytest.approx(list(high[i]))
        assert [hides_correction(difference) for difference in judged] == list(hidden[i])


def test_estimates_chosen_for_their_size_are_too_large_with_few_seeds_only() -> None:
    few, many = (chosen_estimates(1.0, n, STUDIES, seed=2) for n in (4, 40))
    assert few["ratio"] > 1.5 and few["covered"].value < 0.7  # type: ignore[operator, union-attr]
    assert many["ratio"] == pytest.approx(1, abs=0.02) and many["chosen"].value > 0.95  # type: ignore[union-attr]
    assert many["covered"].value > 0.94  # type: ignore[union-attr]
