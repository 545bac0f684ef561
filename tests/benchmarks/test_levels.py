"""Tests of the error rates of moderated tables over several levels, and of swept learning rates (few studies)."""

import numpy
import pytest

from attnlab.stats import paired
from attnlab.stats.joint import moderate
from benchmarks import levels
from benchmarks.levels import LEVELS, moderated_levels, moderated_sweeps, swept_trends
from benchmarks.sweeps import Curve, RateDesign
from benchmarks.table_tests import holm

STUDIES = 10_000
BOUND = 0.06 + 3 * 0.0024  # three Monte-Carlo standard errors


@pytest.mark.parametrize(("cells", "seeds"), [(2, 2), (3, 3), (3, 5)])
@pytest.mark.parametrize("spread", levels.SPREADS)
def test_moderation_within_levels_keeps_the_bound(spread: str, cells: int, seeds: int) -> None:
    assert moderated_levels(spread, cells, seeds, STUDIES, seed=1)["false"].value < BOUND


def test_one_prior_for_levels_that_scatter_differently_would_miss_differences_at_the_quiet_ones() -> None:
    shares = moderated_levels("highest level x3", 6, 3, STUDIES, seed=1)
    assert shares["power, one prior"].value < 0.15 < 0.3 < shares["power"].value
    assert shares["false"].value < BOUND and shares["covered"].value > 0.94


def test_the_tests_by_level_are_those_of_a_report() -> None:
    differences = numpy.random.RandomState(0).standard_normal((10, 4, len(LEVELS), 4))  # studies, cells, levels, seeds
    tests = levels._tests_by_level(differences)
    zero = dict.fromkeys(range(4), 0.0)
    for study, expected, corrected in zip(differences, tests.p_table, holm(tests.p_table), strict=True):
        by_level = [(level, gaps) for level in range(len(LEVELS)) for gaps in study[:, level].tolist()]
        compared = [paired.difference(dict(enumerate(gaps)), zero) for _, gaps in by_level]
        judged = paired.correct(moderate(compared, groups=[level for level, _ in by_level]))
        assert [d and d.p_moderated for d in judged] == pytest.approx(list(expected))
        assert [d and d.p_table for d in judged] == pytest.approx(list(corrected))


def test_moderated_sweeps_and_swept_trends_have_few_false_verdicts() -> None:
    table = moderated_sweeps(RateDesign(3, 3, (Curve(), Curve(1.0), Curve())), 300, seed=1)
    assert table["false"].value <= 0.06 + 3 * 0.014 and table["covered"].value > 0.85
    trends = swept_trends(RateDesign(3, 5, (Curve(), Curve(1.0, optimum=0.2))), 300, seed=1)
    assert trends["false"].value <= 0.06 + 3 * 0.014 and trends["no verdict"].value < 0.2
