"""Intervals, paired differences and verdicts, against scipy and by hand."""

from dataclasses import replace

import pytest

from attnlab.stats import paired
from attnlab.stats.sequential import Looks

BASE = {0: 2.10, 1: 2.14, 2: 2.09, 3: 2.12, 4: 2.11}
LOWER = {seed: value - 0.05 + 0.002 * (-1) ** seed for seed, value in BASE.items()}


def test_interval_agrees_with_scipy() -> None:
    from scipy import stats as reference

    values = list(BASE.values())
    found = paired.interval(values)
    low, high = reference.t.interval(0.95, len(values) - 1, found.mean, reference.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high))


def test_one_value_has_no_interval() -> None:
    found = paired.interval([0.5])
    assert (found.n, found.mean, found.half) == (1, 0.5, None)
    with pytest.raises(ValueError):
        paired.interval([])


def test_difference_is_paired_and_agrees_with_scipy() -> None:
    from scipy import stats as reference

    found = paired.difference(LOWER | {9: 1.0}, BASE | {8: 7.0}, margin=0.01)
    assert found is not None and found.interval.n == 5  # seeds 8 and 9 have no partner
    expected = reference.ttest_rel(list(LOWER.values()), list(BASE.values()))
    assert found.p == pytest.approx(expected.pvalue)  # type: ignore[attr-defined]


def test_equivalence_agrees_with_two_one_sided_tests() -> None:
    from scipy import stats as reference

    margin = 0.06
    gaps = [LOWER[s] - BASE[s] for s in BASE]
    upper = reference.ttest_1samp(gaps, margin, alternative="less").pvalue  # type: ignore[attr-defined]
    lower = reference.ttest_1samp(gaps, -margin, alternative="greater").pvalue  # type: ignore[attr-defined]
    found = paired.difference(LOWER, BASE, margin=margin)
    assert found is not None and found.p_equivalent == pytest.approx(max(upper, lower))


def test_holm_by_hand() -> None:
    assert paired.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert paired.holm([]) == []
    assert paired.holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])


def test_correct_keeps_the_places_of_what_has_no_p_value() -> None:
    single = paired.difference({0: 1.0}, {0: 2.0})
    found = paired.correct([None, paired.difference(LOWER, BASE), single, paired.difference(LOWER, BASE)])
    assert found[0] is None and found[2] == single
    assert found[1] is not None and found[1].p is not None
    assert found[1].p_holm == pytest.approx(2 * found[1].p)


@pytest.mark.parametrize(("direction", "word"), [("min", "better"), ("max", "worse")])
def test_direction_decides_the_word(direction: str, word: str) -> None:
    assert paired.verdict(paired.difference(LOWER, BASE), direction=direction) == word


def test_a_small_real_difference_is_named_as_small() -> None:
    found = paired.difference(LOWER, BASE, margin=0.2)
    assert paired.verdict(found, direction="min") == "better, by less than the margin"


def test_noise_is_equivalent_only_within_a_margin() -> None:
    noisy = {seed: value + 0.01 * (-1) ** seed for seed, value in BASE.items()}
    with_margin = paired.difference(noisy, BASE, margin=0.05)
    assert paired.verdict(with_margin, direction="min") == "equivalent within the margin"
    without = paired.verdict(paired.difference(noisy, BASE), direction="min")
    assert without.startswith("not settled: ") and "would" in without


def test_one_seed_and_no_seed_are_said() -> None:
    assert "one seed" in paired.verdict(paired.difference({0: 1.0}, {0: 2.0}), direction="min")
    assert "no seed" in paired.verdict(paired.difference({0: 1.0}, {1: 2.0}), direction="min")


def test_identical_values_do_not_divide_by_zero() -> None:
    assert paired.verdict(paired.difference(BASE, BASE), direction="min") == "the same value in each of 5 seeds"
    four = paired.difference(BASE, {seed: BASE[seed] for seed in range(4)}, margin=0.1)
    assert four is not None and four.finding == "" and paired.seeds_needed(four) == 5
    said = "not settled: the same value in each of 4 seeds; about 1 more seed would settle it"
    assert paired.verdict(four, direction="min") == said


@pytest.mark.parametrize(("n", "verdict"), [(2, "not settled"), (5, "not settled"), (6, "better")])
def test_one_difference_in_all_seeds_is_worth_what_its_sign_is(n: int, verdict: str) -> None:
    base = {seed: 0.3 + 0.1 * seed for seed in range(n)}  # not one of these differences is another's, bit by bit
    found = paired.difference({seed: value + 0.01 for seed, value in base.items()}, base)
    assert found is not None and found.interval.sd == 0 and found.p == 2 * 0.5**n
    assert paired.verdict(found, direction="max").startswith(verdict)
    assert n == 6 or paired.seeds_needed(found) == 6
    near = paired.difference({seed: value + 0.01 for seed, value in base.items()}, base, margin=0.02)
    assert near is not None and near.p_equivalent == 0.5**n and (near.finding == "") == (n < 5)


def test_rounding_is_no_difference() -> None:
    found = paired.difference({0: 0.3, 1: 0.3, 2: 0.3}, {0: 0.1 + 0.2, 1: 0.1 + 0.2, 2: 0.3})
    assert found is not None and found.same and found.p == 1.0


def test_a_metric_of_few_values_is_as_seldom_wrong_as_promised() -> None:
    """Cells that are the same, scored on 200 reviews with 2 seeds: equal differences are frequent, and prove nothing."""
    import numpy

    scores = numpy.random.RandomState(0).normal(0.85, 0.01, (1_000, 7, 2)).round(2).tolist()
    tables = [[paired.difference(dict(enumerate(cell)), dict(enumerate(base))) for cell in cells] for base, *cells in scores]
    wrong = sum(any(d and d.finding in ("lower", "higher") for d in paired.correct(table)) for table in tables)
    assert wrong < 0.05 * len(tables)


def test_few_seeds_name_no_number() -> None:
    for n in (2, 3):
        found = paired.difference({seed: BASE[seed] + 0.1 * (-1) ** seed for seed in range(n)}, BASE)
        assert paired.verdict(found, direction="min") == f"not settled: {n} seeds are too few"


def test_no_words_claim_that_there_is_no_difference() -> None:
    for values in (BASE, LOWER, {0: 2.0}, {7: 1.0}):
        said = paired.verdict(paired.difference(values, BASE), direction="min")
        assert "no difference" not in said


def seen(n: int, mean: float, sd: float, margin: float | None = None) -> paired.Difference:
    return paired.Difference(paired.Interval(n, mean, sd, 0, 0), p=1.0, margin=margin)


def test_more_seeds_settle_smaller_differences() -> None:
    near, far = (paired.seeds_needed(seen(5, mean, 0.02)) for mean in (0.01, 0.02))
    assert near is not None and far is not None and near > far > 5
    assert paired.seeds_needed(seen(5, 1e-6, 1.0)) is None
    assert paired.seeds_needed(seen(5, 0.0, 1.0)) is None, "what is not there will not show"


def test_the_level_of_a_table_or_of_many_looks_asks_for_more_seeds() -> None:
    alone = seen(5, 0.02, 0.02)
    in_a_table = replace(alone, levels=(0.05 / 6, 0.05 / 6))
    often = replace(alone, looks=Looks(3, 12))
    needed = [paired.seeds_needed(each) or 0 for each in (alone, in_a_table, often)]
    assert needed[0] < needed[1] and needed[0] < needed[2]


def test_holm_leaves_each_comparison_that_is_open_a_share_of_the_level() -> None:
    p = [0.001, 0.03, 0.2, None]
    found = paired.correct([None if each is None else replace(seen(5, 1.0, 1.0), p=each) for each in p])
    assert [d and d.levels for d in found] == [(0.025, 0.05)] * 3 + [None], "two are open: 0.03 times 2 is more than 0.05"


def test_the_seeds_that_it_takes_are_more_than_there_are() -> None:
    close = seen(10, 2.0, 1.0, margin=2.6)
    assert paired.power(10, 2.0, sd=1.0, margin=2.6) > paired.POWER, "as many again would be enough 4 times in 5"
    assert paired.seeds_needed(close) == 11
    assert paired.verdict(close, direction="min") == "not settled: about 1 more seed would settle it"


def test_many_more_seeds_are_told_in_tens() -> None:
    needed = {mean: paired.seeds_needed(seen(5, mean, 0.02)) or 0 for mean in (0.02, 0.01)}
    assert needed[0.02] - 5 < 20 < needed[0.01] - 5
    said = [paired.verdict(seen(5, mean, 0.02), direction="min") for mean in needed]
    assert said == ["not settled: about 5 more seeds would settle it", "not settled: about 30 more seeds would settle it"]


@pytest.mark.parametrize(("mean", "margin"), [(0.02, None), (0.0, 0.02)])
def test_the_seeds_that_it_takes_are_counted_at_the_level_of_each_look(mean: float, margin: float | None) -> None:
    looks, alone = Looks(3, 12), seen(5, mean, 0.02, margin=margin)
    levels = (2 * looks.nominal(0.025), looks.nominal(0.05))  # of the test to both sides, and of those to one
    assert paired.seeds_needed(replace(alone, looks=looks)) == paired.seeds_needed(replace(alone, levels=levels))


@pytest.mark.parametrize(("n", "mean", "margin"), [(5, 1.6, None), (9, 0.0, 1.2), (7, 0.4, 1.5), (4, 1.0, 1.0)])
def test_power_is_the_share_of_studies_that_are_settled(n: int, mean: float, margin: float | None) -> None:
    import numpy

    random = numpy.random.RandomState(0)
    studies = [dict(enumerate(values)) for values in random.normal(mean, 1, (3_000, n)).tolist()]
    zero = dict.fromkeys(range(n), 0.0)
    settled = [bool(d and d.finding) for d in (paired.difference(s, zero, margin=margin) for s in studies)]
    assert sum(settled) / 3_000 == pytest.approx(paired.power(n, mean, sd=1, margin=margin), abs=0.025)


def test_power_of_the_t_test_alone_agrees_with_scipy() -> None:
    from scipy.stats import nct, t

    for n, mean in ((3, 2.0), (8, 0.7)):
        edge, shift = t.ppf(0.975, n - 1), mean * n**0.5
        expected = nct.sf(edge, n - 1, shift) + nct.cdf(-edge, n - 1, shift)
        assert paired.power(n, mean, sd=1) == pytest.approx(expected, abs=2e-3)


def test_effect_size_is_hedges_g_of_the_pairs() -> None:
    from math import gamma, sqrt

    found = paired.difference({0: 1.0, 1: 2.0, 2: 6.0, 3: 3.0}, dict.fromkeys(range(4), 0.0))
    assert found is not None and found.interval.sd is not None and found.effect is not None
    bias = gamma(1.5) / (sqrt(1.5) * gamma(1))
    assert found.effect == pytest.approx(3.0 / found.interval.sd * bias)
    two = paired.difference({0: 1.0, 1: 2.0}, BASE)
    assert two is not None and two.effect is None, "two pairs are too few: the correction is infinite"


def test_equivalence_is_corrected_over_the_table_too() -> None:
    noisy = {seed: value + 0.01 * (-1) ** seed for seed, value in BASE.items()}
    one = paired.difference(noisy, BASE, margin=0.016)
    alone, (among, *_) = paired.correct([one])[0], paired.correct([one] * 8)
    assert alone is not None and among is not None and alone.p_equivalent_holm is not None
    assert among.p_equivalent_holm == pytest.approx(8 * alone.p_equivalent_holm)
    assert (alone.finding, among.finding) == ("equivalent", "")


def test_looks_widen_the_interval_and_raise_the_p_value() -> None:
    plain, looked = paired.difference(LOWER, BASE), paired.difference(LOWER, BASE, looks=Looks(3, 12))
    assert plain is not None and looked is not None and plain.p is not None and looked.p is not None
    assert plain.interval.half is not None and looked.interval.half is not None
    assert looked.p > plain.p and looked.interval.half > plain.interval.half


def test_before_the_first_look_there_is_no_verdict() -> None:
    found = paired.difference({0: 1.0, 1: 1.1}, BASE, looks=Looks(3, 12))
    assert found is not None and found.finding == ""
    assert paired.verdict(found, direction="min") == "not settled: 2 pairs of seeds, the first look is at 3"
