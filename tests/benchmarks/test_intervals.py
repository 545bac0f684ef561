"""Tests of the coverage of intervals over whole tables, and of the bias of chosen estimates, in a few thousand tables."""

import pytest

from benchmarks.intervals import EFFECTS, chosen_estimates, covered_together
from benchmarks.simulate import CELLS

STUDIES = 2_000


@pytest.mark.parametrize("name", EFFECTS)
def test_simultaneous_intervals_hold_together(name: str) -> None:
    covered = covered_together(EFFECTS[name], 5, studies=STUDIES, seed=1)
    least = 0.95 if len(set(EFFECTS[name])) == 1 else 0.95 - 0.05 * (CELLS - 1) / CELLS
    assert covered.bonferroni.value >= 0.95 - 3 * covered.bonferroni.error
    assert covered.simultaneous.value >= least - 3 * covered.simultaneous.error
    assert covered.single.value < 0.9, "single intervals do not hold together"


def test_estimates_chosen_for_their_size_are_too_large_with_few_seeds_only() -> None:
    few, many = (chosen_estimates(1.0, n, studies=STUDIES, seed=2) for n in (4, 40))
    assert few.ratio > 1.5 and few.covered.value < 0.7
    assert many.ratio == pytest.approx(1, abs=0.02) and many.chosen.value > 0.95 and many.covered.value > 0.94
