"""Tests of fragile verdicts: those of t-tests that a test corrected for skewness does not share."""

import math
from dataclasses import replace

import pytest
from scipy.stats import skew, t

from attnlab.stats import paired
from attnlab.stats.joint import moderate
from attnlab.stats.paired import SKEWNESS_SEEDS, sample_skewness, skewness_corrected_p
from attnlab.stats.sequential import Looks
from attnlab.stats.verdict import VerdictKind, judge

SYMMETRIC = [0.02, 0.04, 0.03, 0.025, 0.035, 0.03]
LOW_TAIL = [0.050, 0.052, 0.048, 0.051, 0.049, 0.001]  # one seed far below the others, toward zero


def difference(gaps: list[float], **options: object) -> paired.Difference:
    result = paired.difference(dict(enumerate(gaps)), dict.fromkeys(range(len(gaps)), 0.0), **options)  # type: ignore[arg-type]
    assert result is not None
    return result


def test_the_skewness_is_the_third_moment_over_the_cubed_deviation() -> None:
    assert sample_skewness(LOW_TAIL) == pytest.approx(float(skew(LOW_TAIL)))
    assert sample_skewness(LOW_TAIL[: SKEWNESS_SEEDS - 1]) is None


def test_hall_s_test_of_a_sample() -> None:
    """Computed by hand: S = 1, g = 0.6, n = 9: 1 + 0.2 + 0.36/27 + 0.6/54 = 1.224444."""
    expected = t.sf(3 * (1 + 0.2 + 0.36 / 27 + 0.6 / 54), 8)
    assert skewness_corrected_p(1.0, 9, skewness=0.6, degrees_of_freedom=8) == pytest.approx(float(expected))
    assert skewness_corrected_p(1.0, 9, skewness=0.0, degrees_of_freedom=8) == pytest.approx(float(t.sf(3, 8)))


def test_a_larger_difference_never_has_a_larger_p_value() -> None:
    for skewness in (-2.0, -0.5, 0.5, 2.0):
        p = [skewness_corrected_p(size / 10, 6, skewness=skewness, degrees_of_freedom=5) for size in range(-30, 120)]
        assert p == sorted(p, reverse=True)


def test_a_verdict_of_skewed_differences_is_fragile() -> None:
    fragile, sound = (paired.correct([difference(gaps)])[0] for gaps in (LOW_TAIL, SYMMETRIC))
    assert fragile is not None and sound is not None
    assert fragile.conclusion == sound.conclusion == "higher"
    assert fragile.fragile and not sound.fragile
    verdict = judge(fragile, direction="min")
    assert verdict.kind is VerdictKind.WORSE and verdict.fragile
    assert not judge(sound, direction="min").fragile


def test_the_mirror_image_of_a_fragile_verdict_is_fragile() -> None:
    mirrored = difference([-gap for gap in LOW_TAIL])
    assert mirrored.conclusion == "lower" and mirrored.fragile


def test_a_tail_away_from_zero_makes_no_verdict_fragile() -> None:
    away = difference([0.030, 0.032, 0.028, 0.031, 0.029, 0.045])
    assert away.conclusion == "higher" and not away.fragile


def test_too_few_seeds_and_inconclusive_differences_are_not_fragile() -> None:
    few = difference(SYMMETRIC[: SKEWNESS_SEEDS - 1])
    assert few.skewness is None and not few.fragile
    open_ = difference([0.01, -0.02, 0.03, -0.01, 0.02])
    assert open_.conclusion == "" and not open_.fragile
    constant = difference([0.5] * 8)
    assert constant.conclusion == "" and constant.skewness is None and not constant.fragile


def test_an_equivalent_verdict_is_fragile_if_only_the_t_tests_place_it_within_the_margin() -> None:
    gaps = [0.010, 0.012, 0.008, 0.011, 0.009, -0.045]
    p = [difference(gaps, margin=margin).p_equivalent for margin in (0.024, 0.2)]
    assert p[0] is not None and p[0] < paired.LEVEL
    narrow, wide = (difference(gaps, margin=margin) for margin in (0.024, 0.2))
    assert narrow.conclusion == wide.conclusion == "equivalent"
    assert narrow.fragile and not wide.fragile


def test_the_level_is_that_of_the_table_and_of_the_looks() -> None:
    alone = difference(SYMMETRIC)
    assert alone.p is not None and not alone.fragile
    borderline = difference([0.05, 0.06, 0.04, 0.055, 0.045, 0.022])
    assert borderline.conclusion == "higher" and not borderline.fragile
    corrected = replace(borderline, p_table=(borderline.p or 0) * 8)
    assert corrected.conclusion == "higher" and corrected.fragile
    looked = difference([0.05, 0.06, 0.04, 0.055, 0.045, 0.022], looks=Looks(3, 12))
    assert looked.conclusion == "higher" and looked.fragile


def test_a_moderated_test_is_compared_with_its_own_standard_deviation() -> None:
    noise = [[0.012, -0.012, 0.008, -0.008, 0.004, -0.004], [0.016, -0.008, 0.004, 0.0, -0.012, 0.008]]
    table = [difference(LOW_TAIL), *(difference(gaps) for gaps in noise), difference(SYMMETRIC)]
    moderated = moderate(table)[0]
    assert moderated is not None and moderated.interval.prior is not None and moderated.skewness == table[0].skewness
    size = moderated.interval.mean / (moderated.interval.moderated_sd or math.nan)
    degrees = moderated.interval.degrees_of_freedom
    p = 2 * skewness_corrected_p(size, 6, skewness=moderated.skewness or math.nan, degrees_of_freedom=degrees)
    own = moderated.interval.mean / (moderated.interval.sd or math.nan)
    alone = 2 * skewness_corrected_p(own, 6, skewness=moderated.skewness or math.nan, degrees_of_freedom=5)
    assert replace(moderated, p_table=moderated.p_moderated).fragile == (max(p, alone) >= paired.LEVEL)
