"""Tests of simultaneous intervals: against scipy, against the verdicts, and their coverage in simulated tables."""

from dataclasses import replace

import numpy
import pytest

from attnlab.stats import paired
from attnlab.stats.joint import hides_correction, simultaneous_interval
from attnlab.stats.sequential import Looks

CELLS, SEEDS = 4, 5


def table(effects: list[float], random: numpy.random.RandomState, *, looks: Looks | None = None) -> list[paired.Difference]:
    """Return the corrected differences of one table, in standard deviations of a run; the cells share their baseline."""
    baseline = dict(enumerate(random.standard_normal(SEEDS).tolist()))
    cells = [dict(enumerate((effect + random.standard_normal(SEEDS)).tolist())) for effect in effects]
    corrected = paired.correct([paired.difference(cell, baseline, looks=looks) for cell in cells])
    return [difference for difference in corrected if difference is not None]


def test_an_open_comparison_has_the_interval_of_bonferroni() -> None:
    from scipy import stats as reference

    differences = table([0.0] * CELLS, numpy.random.RandomState(0))
    for difference in differences:
        interval = simultaneous_interval(difference)
        assert interval is not None and difference.conclusion == ""
        mean, error = difference.interval.mean, difference.interval.sd / SEEDS**0.5  # type: ignore[operator]
        expected = reference.t.interval(1 - 0.05 / CELLS, SEEDS - 1, mean, error)
        assert (interval.low, interval.high) == pytest.approx(expected)


def test_one_comparison_needs_no_correction() -> None:
    (difference,) = table([1.0], numpy.random.RandomState(0))
    interval = simultaneous_interval(difference)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((difference.interval.low, difference.interval.high))


@pytest.mark.parametrize("looks", [None, Looks(3, 8)])
def test_an_interval_excludes_zero_exactly_where_the_difference_is_significant(looks: Looks | None) -> None:
    random = numpy.random.RandomState(1)
    cut = settled = hidden = 0
    for _ in range(400):
        for difference in table([0.0, 1.5, 2.5, -3.0], random, looks=looks):
            interval = simultaneous_interval(difference)
            assert interval is not None and interval.low is not None and interval.high is not None
            if difference.conclusion:
                beyond = interval.low if difference.conclusion == "higher" else -interval.high
                assert beyond >= 0, "zero lies inside the interval of a significant difference"
                cut += beyond == 0
            else:
                assert interval.low < 0 < interval.high
            settled += bool(difference.conclusion)
            hidden += hides_correction(difference)
    assert 0 < cut < settled / 2 and hidden > 20, "the simulation reaches every case"


def test_the_intervals_of_a_table_hold_together() -> None:
    """Bonferroni's in 95 of 100 tables; cut at zero, where three cells of four differ by far, in 91."""
    tables = 3_000
    for effects, least in (([0.0] * CELLS, 0.95), ([9.0] * CELLS, 0.95), ([0.0, 9.0, 9.0, 9.0], 0.95 - 0.05 * 3 / CELLS)):
        random, together, alone = numpy.random.RandomState(2), 0, 0
        for _ in range(tables):
            differences = table(effects, random)
            intervals = [simultaneous_interval(difference) for difference in differences]
            together += all(map(covers, intervals, effects))
            alone += all(covers(difference.interval, effect) for difference, effect in zip(differences, effects, strict=True))
        error = (least * (1 - least) / tables) ** 0.5
        assert together / tables > least - 3 * error
        assert alone / tables < 0.90, "the intervals of single comparisons do not hold together"


def covers(interval: paired.Interval | None, truth: float) -> bool:
    """Return True if the truth lies in an interval; an end at zero excludes zero."""
    assert interval is not None and interval.low is not None and interval.high is not None
    return interval.low <= truth <= interval.high and not (truth == 0 in (interval.low, interval.high))


def test_there_is_no_interval_without_a_t_test() -> None:
    values = {seed: 0.3 + 0.1 * seed for seed in range(4)}
    constant = paired.difference({seed: value + 0.01 for seed, value in values.items()}, values)
    single = paired.difference({0: 1.0}, {0: 2.0})
    early = paired.difference({0: 1.0, 1: 1.2}, {0: 2.0, 1: 2.1}, looks=Looks(3, 5))
    for difference in paired.correct([constant, single, early]):
        assert difference is not None and simultaneous_interval(difference) is None and not hides_correction(difference)
    assert constant is not None and constant.interval.half_width is None, "a t-interval of one point would exclude zero"


def test_the_correction_is_hidden_only_from_a_significant_interval() -> None:
    difference = paired.Difference(paired.Interval(5, 1.0, 0.7, 0.13, 1.87), p=0.03, p_table=0.12, comparisons=4)
    assert hides_correction(difference)
    assert not hides_correction(replace(difference, p_table=0.04))
    assert not hides_correction(replace(difference, interval=paired.Interval(5, 0.5, 0.7, -0.37, 1.37), p=0.19))
