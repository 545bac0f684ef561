"""Tests of looks that were not announced: how small their levels are, and that all looks together seldom err."""

import numpy
import pytest
from numpy.random import RandomState
from scipy.special import stdtr

from attnlab.stats import paired
from attnlab.stats.sequential import Looks

STUDIES = 60_000
BY_HAND = Looks(5, 5, tuple(range(6, 13)))


@pytest.fixture(scope="module")
def p_values() -> numpy.ndarray:
    """Two-sided p-values of the t-test after 1 to 12 seeds, in studies without a difference (studies x 12)."""
    values, n = RandomState(1).standard_normal((STUDIES, 12)), numpy.arange(1, 13)
    total, squares = values.cumsum(1), (values**2).cumsum(1)
    with numpy.errstate(all="ignore"):  # one seed has no t-statistic
        return 2 * stdtr(n - 1, -abs(total / numpy.sqrt((squares - total**2 / n) * n / (n - 1))))


def numbers(looks: Looks) -> list[int]:
    return [*range(looks.first, looks.last + 1), *looks.further]


def errors(p_values: numpy.ndarray, looks: Looks, *, level: float = 0.05, correct: bool = True) -> float:
    """Return the share of studies with a false verdict at any look, each judged when its later looks are not known yet."""
    wrong = numpy.zeros(STUDIES, bool)
    for n in numbers(looks):
        wrong |= p_values[:, n - 1] < (2 * looks.nominal_level(level / 2, n) if correct else level)
    return float(wrong.mean())


@pytest.mark.parametrize(
    "looks", [BY_HAND, Looks(5, 5, (8,)), Looks(3, 3, (5, 8)), Looks(2, 2, (5,)), Looks(3, 6, (9, 12))], ids=str
)
def test_all_looks_together_err_in_about_five_and_a_half_of_a_hundred_studies(p_values: numpy.ndarray, looks: Looks) -> None:
    error = 3 * (0.05 * 0.95 / STUDIES) ** 0.5
    share = errors(p_values, looks)
    assert 0.05 - error < share < 0.057 + error < errors(p_values, looks, correct=False)


def test_a_person_can_repeat_the_level_of_a_further_look() -> None:
    assert [2 * BY_HAND.nominal_level(0.025, n) for n in (5, 6, 7, 8)] == [0.05, 0.05 / 8, 0.05 / 16, 0.05 / 32]


def test_pocock_s_level_for_the_looks_so_far_would_err_more(p_values: numpy.ndarray) -> None:
    wrong = numpy.zeros(STUDIES, bool)
    for n in numbers(BY_HAND):
        wrong |= p_values[:, n - 1] < 2 * Looks(5, max(n, 5)).nominal_level(0.025)
    assert wrong.mean() > 0.075


@pytest.mark.parametrize("looks", [BY_HAND, Looks(3, 12, (15, 20))], ids=str)
def test_a_further_look_is_stricter_and_its_level_is_the_inverse_of_its_correction(looks: Looks) -> None:
    for level in (0.4, 0.05, 0.025, 0.004, 1e-6, 1e-12):
        nominal = [looks.nominal_level(level, n) for n in (looks.last, *looks.further)]
        assert nominal[1:] == sorted(nominal[1:], reverse=True) and 0 < nominal[1] <= level / 8
        for n, value in zip(looks.further, nominal[1:], strict=True):
            assert looks.adjust(value, n) == pytest.approx(level, rel=1e-6)
    assert looks.adjust(1.0) == 1 and looks.nominal_level(0.025) == looks.nominal_level(0.025, looks.latest)
    adjusted = looks.adjust(numpy.logspace(-9, 0, 50))
    assert (numpy.diff(adjusted) >= 0).all() and (adjusted <= 1).all()


def test_a_look_does_not_depend_on_later_ones() -> None:
    for n in (5, 6, 8):
        until = Looks(5, 5, tuple(range(6, n + 1)))
        assert BY_HAND.nominal_level(0.025, n) == until.nominal_level(0.025)
        assert BY_HAND.adjust(0.01, n) == until.adjust(0.01)


def test_looks_know_their_numbers_of_seeds() -> None:
    looks = Looks(5, 5, (8, 12))
    assert (looks.count, looks.latest, looks.announced) == (3, 12, False)
    assert (Looks(3, 12).count, Looks(3, 12).latest, Looks(3, 12).announced) == (10, 12, True)
    assert looks.extend_to(12) is looks and looks.extend_to(13) == Looks(5, 5, (8, 12, 13))
    assert looks.nominal_level(0.025, 4) == 0.025, "fewer seeds than the first look are no further look"
    assert looks.nominal_level(0.025, 7) == looks.nominal_level(0.025, 8), "fewer pairs than the study has seeds"
    with pytest.raises(ValueError, match="13"):
        looks.nominal_level(0.025, 13)
    for further in ((5,), (9, 8), (8, 8)):
        with pytest.raises(ValueError, match="increasing"):
            Looks(5, 5, further)


def test_a_difference_is_corrected_for_the_look_that_it_has_reached() -> None:
    values = {seed: 1.0 + 0.3 * (-1) ** seed for seed in range(8)}
    plain = paired.difference(values, dict.fromkeys(values, 0.0))
    first = paired.difference(values, dict.fromkeys(values, 0.0), looks=Looks(8, 8))
    later = paired.difference(values, dict.fromkeys(values, 0.0), looks=Looks(5, 5))
    assert plain and first and later and plain.p and later.p
    assert (first.p, first.interval) == (plain.p, plain.interval), "one look needs no correction"
    assert (
        later.looks is not None
        and later.looks == Looks(5, 5, (8,))
        and later.p == pytest.approx(2 * later.looks.adjust(plain.p / 2))
    )
    assert later.interval.half_width and plain.interval.half_width
    assert later.interval.half_width > plain.interval.half_width
    fewer = paired.difference({s: values[s] for s in range(4)}, dict.fromkeys(values, 0.0), looks=Looks(5, 5))
    assert fewer and fewer.p is not None, "only looks that were announced begin with a number of seeds"
