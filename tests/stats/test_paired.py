"""Tests of intervals, paired differences and numbers of seeds, against scipy and by hand."""

from dataclasses import replace

import numpy
import pytest

from attnlab.stats import paired
from attnlab.stats.paired import NoTest
from attnlab.stats.sequential import Looks

BASE = {0: 2.10, 1: 2.14, 2: 2.09, 3: 2.12, 4: 2.11}
LOWER = {seed: value - 0.05 + 0.002 * (-1) ** seed for seed, value in BASE.items()}


def test_interval_agrees_with_scipy() -> None:
    from scipy import stats as reference

    values = list(BASE.values())
    interval = paired.interval(values)
    low, high = reference.t.interval(0.95, len(values) - 1, interval.mean, reference.sem(values))
    assert (interval.low, interval.high) == pytest.approx((low, high))


def test_one_value_has_no_interval() -> None:
    interval = paired.interval([0.5])
    assert (interval.n, interval.mean, interval.half_width) == (1, 0.5, None)
    with pytest.raises(ValueError):
        paired.interval([])


def test_difference_is_paired_and_agrees_with_scipy() -> None:
    from scipy import stats as reference

    difference = paired.difference(LOWER | {9: 1.0}, BASE | {8: 7.0}, margin=0.01)
    assert difference is not None and difference.interval.n == 5  # seeds 8 and 9 have no partner
    expected = reference.ttest_rel(list(LOWER.values()), list(BASE.values()))
    assert difference.p == pytest.approx(expected.pvalue)  # type: ignore[attr-defined]


def test_equivalence_agrees_with_two_one_sided_tests() -> None:
    from scipy import stats as reference

    margin = 0.06
    gaps = [LOWER[s] - BASE[s] for s in BASE]
    upper = reference.ttest_1samp(gaps, margin, alternative="less").pvalue  # type: ignore[attr-defined]
    lower = reference.ttest_1samp(gaps, -margin, alternative="greater").pvalue  # type: ignore[attr-defined]
    difference = paired.difference(LOWER, BASE, margin=margin)
    assert difference is not None and difference.p_equivalent == pytest.approx(max(upper, lower))


def test_holm_by_hand() -> None:
    assert paired.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert paired.holm([]) == []
    assert paired.holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])


def test_correct_keeps_the_order_of_differences_without_a_p_value() -> None:
    single = paired.difference({0: 1.0}, {0: 2.0})
    corrected = paired.correct([None, paired.difference(LOWER, BASE), single, paired.difference(LOWER, BASE)])
    assert corrected[0] is None and corrected[2] is not None and corrected[2].p_holm is None
    assert corrected[2].interval == paired.interval([-1.0])
    assert corrected[1] is not None and corrected[1].p is not None
    assert corrected[1].p_holm == pytest.approx(2 * corrected[1].p)


def test_identical_values_do_not_divide_by_zero() -> None:
    same = paired.difference(BASE, BASE)
    assert same is not None and same.conclusion == "identical"
    four = paired.difference(BASE, {seed: BASE[seed] for seed in range(4)}, margin=0.1)
    assert four is not None and four.conclusion == ""


@pytest.mark.parametrize("n", [2, 6, 20])
@pytest.mark.parametrize("margin", [None, 0.02])
def test_a_constant_difference_has_no_test(n: int, margin: float | None) -> None:
    base = {seed: 0.3 + 0.1 * seed for seed in range(n)}  # no two of these differences are equal bit by bit
    difference = paired.difference({seed: value + 0.01 for seed, value in base.items()}, base, margin=margin)
    assert difference is not None and difference.interval.sd == 0 and difference.interval.low is None
    assert (difference.p, difference.p_equivalent, difference.no_test) == (None, None, NoTest.CONSTANT)
    assert difference.conclusion == ""


@pytest.mark.parametrize("n", [3, 5, 7, 10, 14])
def test_equal_values_have_no_scatter_however_their_mean_is_rounded(n: int) -> None:
    values: list[float] = numpy.random.RandomState(n).uniform(-1, 1, 200).tolist()
    assert {paired.interval([value] * n).sd for value in values} == {0.0}
    differences = [paired.difference(dict.fromkeys(range(n), value), dict.fromkeys(range(n), 0.5)) for value in values]
    assert {difference and difference.no_test for difference in differences} == {NoTest.CONSTANT}


@pytest.mark.parametrize("n", [2, 3, 10])
def test_noise_of_one_run_is_no_scatter_of_seeds(n: int) -> None:
    """A program that ignores its seed, on a GPU: its results agree to six digits."""
    jitter = numpy.random.RandomState(n).uniform(-5e-7, 5e-7, (2, n))
    cell, base = ({s: (1.93 + shift) * (1 + jitter[i, s]) for s in range(n)} for i, shift in enumerate((3e-4, 0.0)))
    difference = paired.difference(cell, base, margin=0.1)
    assert difference is not None and difference.no_test is NoTest.CONSTANT and difference.conclusion == ""
    assert difference.interval.mean == pytest.approx(sum(cell.values()) / n - sum(base.values()) / n)


@pytest.mark.parametrize("shift", [0.0, 1e4, -2.5e6, 1e9])
@pytest.mark.parametrize(("gap", "sd"), [(0.05, 0.01), (2.0, 1.0)])
def test_a_constant_added_to_all_scores_changes_no_verdict(shift: float, gap: float, sd: float) -> None:
    random = numpy.random.RandomState(0)
    base = dict(enumerate((3 + random.normal(0, sd, 8)).tolist()))
    cell = {seed: value - gap + random.normal(0, sd) for seed, value in base.items()}
    plain = paired.difference(cell, base)
    moved = paired.difference({s: shift + x for s, x in cell.items()}, {s: shift + x for s, x in base.items()})
    assert plain and moved and moved.interval.mean == pytest.approx(plain.interval.mean, abs=1e-6)
    assert moved.p == pytest.approx(plain.p, rel=1e-3) and moved.conclusion == plain.conclusion
    same = paired.difference({s: shift + x for s, x in base.items()}, {s: shift + x for s, x in base.items()})
    assert same is not None and same.identical


def test_a_small_scatter_that_is_no_noise_is_tested() -> None:
    cell = {seed: 1.93 + 3e-4 + 1e-5 * (-1) ** seed for seed in range(4)}
    difference = paired.difference(cell, dict.fromkeys(cell, 1.93))
    assert difference is not None and difference.conclusion == "higher"


def test_a_large_value_of_one_seed_does_not_hide_the_scatter_of_the_others() -> None:
    cell, base = {0: 1e6 + 0.3, 1: 1.1, 2: 1.5, 3: 1.2}, {0: 1e6, 1: 1.0, 2: 1.0, 3: 1.0}
    difference = paired.difference(cell, base)
    assert difference is not None and difference.interval.sd and difference.p is not None


def test_withheld_tests_count_in_the_table() -> None:
    constant = paired.difference({s: v + 0.5 for s, v in BASE.items()}, BASE)
    alone, _ = paired.correct([paired.difference(LOWER, BASE), constant])
    assert alone is not None and alone.p is not None and alone.comparisons == 2
    assert alone.p_holm == pytest.approx(2 * alone.p)


def test_rounding_is_no_difference() -> None:
    difference = paired.difference({0: 0.3, 1: 0.3, 2: 0.3}, {0: 0.1 + 0.2, 1: 0.1 + 0.2, 2: 0.3})
    assert difference is not None and difference.identical and difference.p == 1.0


def test_a_metric_with_few_values_keeps_the_error_rate() -> None:
    """Equal cells scored on 200 reviews with 2 seeds: constant differences are frequent, and prove nothing."""
    scores = numpy.random.RandomState(0).normal(0.85, 0.01, (1_000, 7, 2)).round(2).tolist()
    tables = [[paired.difference(dict(enumerate(cell)), dict(enumerate(base))) for cell in cells] for base, *cells in scores]
    wrong = sum(any(d and d.conclusion in ("lower", "higher") for d in paired.correct(table)) for table in tables)
    assert wrong < 0.05 * len(tables)


def seen(n: int, mean: float, sd: float, margin: float | None = None) -> paired.Difference:
    return paired.Difference(paired.Interval(n, mean, sd, 0, 0), p=1.0, margin=margin)


def test_holm_divides_the_level_among_inconclusive_comparisons() -> None:
    p = [0.001, 0.03, 0.2, None]
    corrected = paired.correct([None if value is None else replace(seen(5, 1.0, 1.0), p=value) for value in p])
    assert [d and d.levels for d in corrected] == [(0.025, 0.05)] * 3 + [None], (
        "two are inconclusive: 0.03 times 2 is more than 0.05"
    )


def test_effect_size_is_hedges_g_of_the_pairs() -> None:
    from math import gamma, sqrt

    difference = paired.difference({0: 1.0, 1: 2.0, 2: 6.0, 3: 3.0}, dict.fromkeys(range(4), 0.0))
    assert difference is not None and difference.interval.sd is not None and difference.effect_size is not None
    bias = gamma(1.5) / (sqrt(1.5) * gamma(1))
    assert difference.effect_size == pytest.approx(3.0 / difference.interval.sd * bias)
    two = paired.difference({0: 1.0, 1: 2.0}, BASE)
    assert two is not None and two.effect_size is None, "two pairs are too few: the correction is infinite"


def test_equivalence_is_corrected_over_the_table_too() -> None:
    noisy = {seed: value + 0.01 * (-1) ** seed for seed, value in BASE.items()}
    single = paired.difference(noisy, BASE, margin=0.016)
    alone, (among, *_) = paired.correct([single])[0], paired.correct([single] * 8)
    assert alone is not None and among is not None and alone.p_equivalent_holm is not None
    assert among.p_equivalent_holm == pytest.approx(8 * alone.p_equivalent_holm)
    assert (alone.conclusion, among.conclusion) == ("equivalent", "")


def test_looks_widen_the_interval_and_raise_the_p_value() -> None:
    plain, looked = paired.difference(LOWER, BASE), paired.difference(LOWER, BASE, looks=Looks(3, 12))
    assert plain is not None and looked is not None and plain.p is not None and looked.p is not None
    assert plain.interval.half_width is not None and looked.interval.half_width is not None
    assert looked.p > plain.p and looked.interval.half_width > plain.interval.half_width
