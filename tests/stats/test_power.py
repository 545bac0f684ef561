"""Tests of the power of t-tests, and of the number of seeds for the verdicts of a table, against scipy and simulation."""

import math
from dataclasses import replace

import numpy
import pytest

from attnlab.stats import paired
from attnlab.stats.paired import Interval
from attnlab.stats.predict import (
    POWER,
    Spread,
    TableDesign,
    largest_spread,
    pooled_spread,
    power,
    seeds_for_verdict,
    verdict_probability,
)
from attnlab.stats.sequential import Looks
from benchmarks.simulation import Share
from benchmarks.verdict_seeds import known_spread
from tests.stats.test_moderation import moderate

TABLE = TableDesign(1.0, 4, 4)


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


def test_seeds_for_a_verdict_are_the_fewest_with_its_probability() -> None:
    for design in (TableDesign(1.0), TABLE, replace(TABLE, looks=Looks(3, 12))):
        n = seeds_for_verdict(design, Spread(0.8))
        assert n is not None
        assert verdict_probability(design, n, Spread(0.8)) >= POWER > verdict_probability(design, n - 1, Spread(0.8))


def test_the_unit_of_the_metric_does_not_matter() -> None:
    scaled = replace(TABLE, margin=0.02)
    assert verdict_probability(TABLE, 7, Spread(0.8)) == pytest.approx(verdict_probability(scaled, 7, Spread(0.016)))


def test_a_difference_of_the_margin_and_none_are_both_judged_rightly() -> None:
    level = 0.05 / 4
    found = power(12, 1.0, sd=0.8, levels=(level, level), prior=TABLE.prior(12, 0.8))
    assert verdict_probability(TABLE, 12, Spread(0.8)) <= found
    assert found == pytest.approx(known_power(12, 0.8, level), abs=0.02)


def known_power(n: int, sd: float, level: float) -> float:
    """Return the power of a t-test with the degrees of freedom of a moderated one, from the noncentral t-distribution."""
    from scipy.stats import nct, t

    freedom = n - 1 + 4
    return float(nct.sf(t.ppf(1 - level / 2, freedom), freedom, math.sqrt(n) / sd))


@pytest.mark.parametrize("truth", ["no difference", "the margin", "half of each"])
def test_tables_with_that_number_of_seeds_have_the_right_verdicts(truth: str) -> None:
    right = known_spread(4, 0.8, truth, 1_000, 0)["right"]
    assert isinstance(right, Share) and right.value > POWER - 3 * right.error


def test_the_largest_spread_is_that_of_which_the_seeds_are_just_enough() -> None:
    for seeds in (2, 5, 9):
        sd = largest_spread(TABLE, seeds)
        assert sd is not None
        assert [seeds_for_verdict(TABLE, Spread(factor * sd)) == seeds for factor in (0.999, 1.01)] == [True, False]
    assert largest_spread(TABLE, 1) is None


def test_an_uncertain_spread_a_table_and_earlier_looks_need_more_seeds() -> None:
    alone = seeds_for_verdict(TableDesign(1.0), Spread(0.8))
    others = [
        seeds_for_verdict(TableDesign(1.0), Spread(0.8, degrees_of_freedom=4)),
        seeds_for_verdict(TableDesign(1.0, 4), Spread(0.8)),
        seeds_for_verdict(TableDesign(1.0, looks=Looks(3, 3)), Spread(0.8)),
        seeds_for_verdict(TableDesign(1.0, looks=Looks(3, 12)), Spread(0.8)),
    ]
    assert alone is not None and all(n is not None and n > alone for n in others)
    assert seeds_for_verdict(TableDesign(1.0), Spread(50.0)) is None


def test_the_pooled_spread_counts_a_shared_baseline() -> None:
    known = numpy.random.RandomState(0).normal(0, 1, (2_000, 5, 3))
    variances = (known[:, 1:] - known[:, :1]).var(2, ddof=1).mean(1)
    spread = pooled_spread([Interval(3, 0.0, 1.0)] * 4)
    assert spread is not None and spread.sd == 1.0
    # The variance of a variance with d degrees of freedom, relative to its square, is 2 / d.
    assert spread.degrees_of_freedom == pytest.approx(2 * variances.mean() ** 2 / variances.var(), rel=0.15)


def test_too_few_pairs_estimate_no_spread() -> None:
    assert pooled_spread([]) is None
    assert pooled_spread([Interval(2, 0.1, 0.3), Interval(1, 0.1)]) is None
    assert pooled_spread([Interval(2, 0.1, 0.0)] * 9) is None, "the same difference in all pairs"
    assert pooled_spread([Interval(2, 0.1, 0.3)] * 4) is not None
