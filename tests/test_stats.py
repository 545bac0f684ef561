"""Intervals, paired differences and verdicts, against scipy and by hand."""

import pytest

from attnlab import stats

BASE = {0: 2.10, 1: 2.14, 2: 2.09, 3: 2.12, 4: 2.11}
LOWER = {seed: value - 0.05 + 0.002 * (-1) ** seed for seed, value in BASE.items()}


def test_interval_agrees_with_scipy() -> None:
    from scipy import stats as reference

    values = list(BASE.values())
    found = stats.interval(values)
    low, high = reference.t.interval(0.95, len(values) - 1, found.mean, reference.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high))


def test_one_value_has_no_interval() -> None:
    found = stats.interval([0.5])
    assert (found.n, found.mean, found.half) == (1, 0.5, None)
    with pytest.raises(ValueError):
        stats.interval([])


def test_difference_is_paired_and_agrees_with_scipy() -> None:
    from scipy import stats as reference

    found = stats.difference(LOWER | {9: 1.0}, BASE | {8: 7.0}, margin=0.01)
    assert found is not None and found.interval.n == 5  # seeds 8 and 9 have no partner
    expected = reference.ttest_rel(list(LOWER.values()), list(BASE.values()))
    assert found.p == pytest.approx(expected.pvalue)  # type: ignore[attr-defined]


def test_equivalence_agrees_with_two_one_sided_tests() -> None:
    from scipy import stats as reference

    margin = 0.06
    gaps = [LOWER[s] - BASE[s] for s in BASE]
    upper = reference.ttest_1samp(gaps, margin, alternative="less").pvalue  # type: ignore[attr-defined]
    lower = reference.ttest_1samp(gaps, -margin, alternative="greater").pvalue  # type: ignore[attr-defined]
    found = stats.difference(LOWER, BASE, margin=margin)
    assert found is not None and found.p_equivalent == pytest.approx(max(upper, lower))


def test_holm_by_hand() -> None:
    assert stats.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert stats.holm([]) == []
    assert stats.holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])


def test_correct_keeps_the_places_of_what_has_no_p_value() -> None:
    single = stats.difference({0: 1.0}, {0: 2.0})
    found = stats.correct([None, stats.difference(LOWER, BASE), single, stats.difference(LOWER, BASE)])
    assert found[0] is None and found[2] is single
    assert found[1] is not None and found[1].p is not None
    assert found[1].p_holm == pytest.approx(2 * found[1].p)


@pytest.mark.parametrize(("direction", "word"), [("min", "better"), ("max", "worse")])
def test_direction_decides_the_word(direction: str, word: str) -> None:
    assert stats.verdict(stats.difference(LOWER, BASE), direction=direction) == word


def test_a_small_real_difference_is_named_as_small() -> None:
    found = stats.difference(LOWER, BASE, margin=0.2)
    assert stats.verdict(found, direction="min", margin=0.2) == "better, by less than the margin"


def test_noise_is_equivalent_only_within_a_margin() -> None:
    noisy = {seed: value + 0.01 * (-1) ** seed for seed, value in BASE.items()}
    with_margin = stats.difference(noisy, BASE, margin=0.05)
    assert stats.verdict(with_margin, direction="min", margin=0.05) == "equivalent within the margin"
    without = stats.verdict(stats.difference(noisy, BASE), direction="min")
    assert without.startswith("not settled: ") and "would" in without


def test_one_seed_and_no_seed_are_said() -> None:
    assert "one seed" in stats.verdict(stats.difference({0: 1.0}, {0: 2.0}), direction="min")
    assert "no seed" in stats.verdict(stats.difference({0: 1.0}, {1: 2.0}), direction="min")


def test_identical_values_do_not_divide_by_zero() -> None:
    assert stats.verdict(stats.difference(BASE, BASE), direction="min") == "the same value in each of 5 seeds"
    shifted = {0: 1.5, 1: 2.5}
    assert stats.verdict(stats.difference(shifted, {0: 1.0, 1: 2.0}), direction="max") == "better"


def test_no_words_claim_that_there_is_no_difference() -> None:
    for values in (BASE, LOWER, {0: 2.0}, {7: 1.0}):
        said = stats.verdict(stats.difference(values, BASE), direction="min")
        assert "no difference" not in said


def test_more_seeds_settle_smaller_differences() -> None:
    near = stats.seeds_needed(stats.Interval(5, 0.01, 0.02, 0, 0))
    far = stats.seeds_needed(stats.Interval(5, 0.02, 0.02, 0, 0))
    assert near is not None and far is not None and near > far > 5
    assert stats.seeds_needed(stats.Interval(5, 1e-6, 1.0, 0, 0)) is None
