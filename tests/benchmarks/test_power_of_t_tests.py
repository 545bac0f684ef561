"""Tests of the power of t-tests, against scipy and simulation."""

from dataclasses import replace

import numpy
import pytest

from attnlab.stats import paired
from benchmarks.power import power
from tests.stats.test_moderation import moderate


@pytest.mark.parametrize(("n", "mean", "margin"), [(5, 1.6, None), (9, 0.0, 1.2), (7, 0.4, 1.5), (4, 1.0, 1.0)])
def test_power_is_the_share_of_conclusive_studies(n: int, mean: float, margin: float | None) -> None:
    random = numpy.random.RandomState(0)
    studies = [dict(enumerate(values)) for values in random.normal(mean, 1, (3_000, n)).tolist()]
    zero = dict.fromkeys(range(n), 0.0)
    conclusive = [bool(d and d.conclusion) for d in (paired.difference(s, zero, margin=margin) for s in studies)]
    assert sum(conclusive) / 3_000 == pytest.approx(power(n, mean, sd=1, margin=margin), abs=0.025)


def test_power_of_the_t_test_alone_agrees_with_scipy() -> None:
    from scipy.stats import nct, t

    for n, mean in ((3, 2.0), (8, 0.7)):
        edge, shift = t.ppf(0.975, n - 1), mean * n**0.5
        expected = nct.sf(edge, n - 1, shift) + nct.cdf(-edge, n - 1, shift)
        assert power(n, mean, sd=1) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(("n", "mean", "margin"), [(3, 2.0, None), (4, 0.0, 1.8), (6, 0.5, 1.5)])
def test_power_is_the_share_of_conclusive_comparisons(n: int, mean: float, margin: float | None) -> None:
    """A large table, whose mean variance is 1, and in which each comparison is judged at the level of a table of 4."""
    comparisons, levels = 4_000, (0.0125, 0.0125)
    gaps = numpy.random.RandomState(0).normal(mean, 1, (comparisons, n))
    differences = moderate(gaps, margin=margin)
    prior = differences[0].interval.prior
    assert prior is not None and prior.variance == pytest.approx(1, abs=0.05)
    expected = power(n, mean, sd=1, margin=margin, prior=prior, levels=levels)
    near = [None if d.p_equivalent_moderated is None else 4 * d.p_equivalent_moderated for d in differences]
    table = [replace(d, p_table=4 * (d.p_moderated or 0), p_equivalent_table=p) for d, p in zip(differences, near, strict=True)]
    assert sum(bool(d.conclusion) for d in table) / comparisons == pytest.approx(expected, abs=0.025)
    assert expected > power(n, mean, sd=1, margin=margin, levels=levels) + 0.05, "borrowing gains power"
    assert expected <= power(n, mean, sd=1, margin=margin), "the comparison's t-test by itself limits it"
