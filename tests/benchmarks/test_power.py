"""Tests of the number of seeds for a known mean and spread."""

from dataclasses import replace

import pytest

from attnlab.stats import paired
from attnlab.stats.predict import POWER
from attnlab.stats.sequential import Looks
from attnlab.stats.variance_prior import table_prior
from benchmarks.power import power, seeds_needed
from tests.stats.test_paired import seen


def test_smaller_differences_need_more_seeds() -> None:
    near, far = (seeds_needed(seen(5, mean, 0.02)) for mean in (0.01, 0.02))
    assert near is not None and far is not None and near > far > 5
    assert seeds_needed(seen(5, 1e-6, 1.0)) is None
    assert seeds_needed(seen(5, 0.0, 1.0)) is None, "there is no difference to detect"


def test_a_table_or_many_looks_need_more_seeds() -> None:
    alone = seen(5, 0.02, 0.02)
    in_a_table = replace(alone, levels=(0.05 / 6, 0.05 / 6))
    often = replace(alone, looks=Looks(3, 12))
    needed = [seeds_needed(difference) or 0 for difference in (alone, in_a_table, often)]
    assert needed[0] < needed[1] and needed[0] < needed[2]


def test_more_seeds_are_needed_than_there_are() -> None:
    close = seen(10, 2.0, 1.0, margin=2.6)
    assert power(10, 2.0, sd=1.0, margin=2.6) > POWER, "as many seeds again are enough with probability 80 %"
    assert seeds_needed(close) == 11


@pytest.mark.parametrize(("mean", "margin"), [(0.02, None), (0.0, 0.02)])
def test_needed_seeds_are_counted_at_the_level_of_each_look(mean: float, margin: float | None) -> None:
    looks, alone = Looks(3, 40), seen(5, mean, 0.02, margin=margin)
    # Levels of the two-sided test and of the one-sided tests.
    levels = (2 * looks.nominal_level(0.025), looks.nominal_level(0.05))
    assert seeds_needed(replace(alone, looks=looks)) == seeds_needed(replace(alone, levels=levels))


@pytest.mark.parametrize("looks", [Looks(5, 5), Looks(3, 5), Looks(3, 3, (5,))])
def test_needed_seeds_beyond_all_looks_are_those_of_a_further_look(looks: Looks) -> None:
    alone = replace(seen(5, 0.02, 0.02), looks=looks)
    needed = seeds_needed(alone)
    assert needed is not None and needed > 5

    def conclusive(n: int) -> bool:
        level = 2 * looks.extend_to(n).nominal_level(0.025)
        return power(n, 0.02, sd=0.02, levels=(level, level)) >= POWER

    assert conclusive(needed) and not conclusive(needed - 1)
    assert needed > (seeds_needed(replace(alone, looks=None)) or 0)


def test_borrowing_needs_fewer_seeds() -> None:
    prior = table_prior([1.0] * 4, [5] * 4)
    plain = paired.Difference(paired.Interval(3, 2.0, 1.0, 0, 0), p=1.0, levels=(0.0125, 0.05))
    borrowed = replace(plain, interval=replace(plain.interval, prior=prior))
    without, with_prior = seeds_needed(plain), seeds_needed(borrowed)
    assert without is not None and with_prior is not None and 3 < with_prior < without
