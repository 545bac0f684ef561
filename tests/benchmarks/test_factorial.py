"""Tests of the error rates of factorial studies in a few thousand simulated ones (``benchmarks.validity`` simulates more)."""

import numpy
import pytest

from attnlab.stats.cells import ComparisonSpec
from attnlab.stats.factorial import judge_family
from benchmarks import factorial
from benchmarks.factorial import design_of, draw, simulate

STUDIES = 4_000
MOST = 0.05 + 3 * (0.05 * 0.95 / STUDIES) ** 0.5  # 5 % plus three standard errors in this many studies


@pytest.mark.parametrize(("name", "factors", "cells"), [("full", 3, 8), ("fractional", 8, 16), ("leave_one_out", 4, 6)])
@pytest.mark.parametrize("seeds", [3, 5])
def test_at_most_one_study_in_twenty_has_a_false_main_effect(name: str, factors: int, cells: int, seeds: int) -> None:
    rates = simulate(design_of(name, factors, cells), "equal", seeds, STUDIES, seed=1)
    assert rates["false"].value <= MOST and rates["false interactions"].value <= MOST
    assert rates["covered"].value >= 1 - MOST


def test_a_factor_that_changes_the_runs_of_a_seed_breaks_the_pooled_test_only() -> None:
    for noise in ("one 0.3", "one 0.6", "three 0.3"):
        rates = simulate(design_of("fractional", 8, 16), noise, 3, STUDIES, seed=2)
        assert rates["false"].value <= MOST < 0.1 < rates["false if pooled"].value


def test_the_tests_are_those_of_a_report() -> None:
    design = design_of("full", 3, 8)
    runs = draw(design, "one 0.6", seeds=4, studies=20, seed=3)
    effects = numpy.einsum("ip,tps->tis", numpy.random.RandomState(0).standard_normal((3, 8)), runs)
    tests = factorial._test(effects)
    spec = ComparisonSpec("simulated", (), "metric", "min", factorial=design)
    for study, p in zip(effects, tests.p, strict=True):
        judged = judge_family([dict(enumerate(row)) for row in study.tolist()], spec, scale=1.0)
        assert [difference.p for difference in judged] == pytest.approx(list(p))
