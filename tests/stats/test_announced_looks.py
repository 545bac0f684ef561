"""Tests of the levels of announced looks."""

import pytest

from attnlab.stats.sequential import Looks


@pytest.mark.parametrize(("first", "last"), [(2, 5), (3, 12), (5, 20)])
def test_the_level_of_a_look_is_that_of_all_turned_round(first: int, last: int) -> None:
    looks = Looks(first, last)
    for level in (0.05, 0.025, 0.004):
        nominal = looks.nominal_level(level)
        assert level / looks.count < nominal < level
        assert looks.adjust(nominal) == pytest.approx(level, rel=0.01)
    assert looks.adjust(1e-9) == pytest.approx(looks.count * 1e-9), "far out it is Bonferroni's"
    assert Looks(4, 4).adjust(0.03) == 0.03 and Looks(4, 4).nominal_level(0.05) == 0.05, "one look needs no correction"


def test_many_observations_give_pocock_s_own_constant() -> None:
    """Five looks at equal steps, known variance: a two-sided level of 0.0158 each (Pocock 1977, table 1)."""
    from numpy.random import RandomState
    from scipy.special import ndtr

    sums = RandomState(0).standard_normal((200_000, 5)).cumsum(1) / [1, 2**0.5, 3**0.5, 2, 5**0.5]
    assert (2 * ndtr(-abs(sums)).min(1) < 0.0158).mean() == pytest.approx(0.05, abs=0.002)
