"""Tests of the simulated claims about new test items (``benchmarks.validity`` simulates more studies)."""

import numpy
import pytest

from attnlab.stats.items import standard_errors
from benchmarks.items import false_claims, parts
from benchmarks.simulation import Share


@pytest.mark.parametrize("segments", [False, True])
def test_the_simulated_parts_are_those_of_a_page(segments: bool) -> None:
    differences = numpy.random.RandomState(1).standard_normal((20, 3, 64)) + numpy.arange(64) / 10
    expected = [standard_errors(study, numpy.full(64, 8 if segments else 1)) for study in differences]
    seeds, items, groups = parts(differences, segments=segments)
    assert numpy.transpose([seeds, items]) == pytest.approx(numpy.array([of[:2] for of in expected]))
    assert {groups} == {of[2] for of in expected} == {8 if segments else 64}


@pytest.mark.parametrize("seeds", [2, 5])
def test_claims_about_new_items_need_the_items_in_the_interval(seeds: int) -> None:
    shares = false_claims("t3", seeds, 10, 3.0, 0.0, 2_000, 1)
    false, alone = shares["false"], shares["false, seeds alone"]
    assert isinstance(false, Share) and isinstance(alone, Share)
    assert false.value < 0.05 and alone.value > 0.1
