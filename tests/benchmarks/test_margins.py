"""Tests of simulated margins in per cent of steps."""

import numpy

from attnlab.stats import paired
from benchmarks.margins import estimated_margins, within_margin


def test_an_estimated_margin_keeps_the_bound_and_a_constant_one_does_not() -> None:
    for variation, rho, broken in ((0.3, 0.0, 0.07), (0.6, 0.0, 0.14), (0.3, -0.6, 0.09)):
        shares = estimated_margins(3, variation, 0.3, rho, 10_000, seed=1)
        assert shares["false equivalence"].value < 0.06 < broken < shares["false, constant"].value
    assert estimated_margins(5, 0.1, 0.3, 0.0, 10_000, seed=2)["power"].value > 0.95


def test_the_tests_are_those_of_a_report() -> None:
    margins, gaps = 1 + numpy.random.RandomState(0).normal(0, 0.2, (2, 40, 4))
    differences = []
    for of_study, own in zip((gaps - 1).tolist(), margins.tolist(), strict=True):
        by_seed = dict(enumerate(of_study))
        plain = paired.difference(by_seed, dict.fromkeys(by_seed, 0.0), margin=float(numpy.mean(own)))
        difference = paired.with_estimated_margin(plain, by_seed, dict(enumerate(own)))
        assert difference is not None
        differences.append(difference.within_margin)
    assert differences == within_margin(gaps - 1, margins).tolist()
