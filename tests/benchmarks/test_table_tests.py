"""Tests that the tests of many simulated tables are those of a report."""

from typing import Any

import numpy
import pytest

from attnlab.stats import paired
from attnlab.stats.joint import moderate
from attnlab.stats.sequential import Looks
from benchmarks.simulate import judge, tables
from benchmarks.table_tests import t_tests

CASES: list[dict[str, Any]] = [
    {},
    {"moderated": True},
    {"margin": 1.5},
    {"margin": 1.5, "moderated": True},
    {"looks": Looks(3, 9)},
    {"looks": Looks(5, 5, (6, 7)), "margin": 1.5},
    {"looks": Looks(4, 9), "margin": 1.5, "moderated": True},
]


def assert_same_tests(differences: numpy.ndarray, counts: numpy.ndarray, truth: float = 0.4, **options: Any) -> None:
    different = len(set(counts.ravel().tolist())) > 1
    tests = t_tests(differences, counts=counts if different else None, **options)
    for i, (table, pairs) in enumerate(zip(differences.tolist(), counts.tolist(), strict=True)):
        judged = judge([values[:n] for values, n in zip(table, pairs, strict=True)], **options)
        assert [d.p for d in judged] == pytest.approx(list(tests.p[i]))
        assert [d.p_equivalent or 1.0 for d in judged] == pytest.approx(list(tests.p_equivalent[i]))
        if options.get("moderated"):
            assert [d.p_moderated for d in judged] == pytest.approx(list(tests.p_table[i]))
            assert [d.p_equivalent_moderated or 1.0 for d in judged] == pytest.approx(list(tests.p_equivalent_table[i]))
        assert [d.is_significant for d in judged] == list(tests.differs[i])
        assert [d.within_margin for d in judged] == list(tests.within_margin[i])
        ends = [(d.interval.low or 0.0, d.interval.high or 0.0) for d in judged]
        assert [low <= truth <= high for low, high in ends] == list(tests.covers(truth)[i])


@pytest.mark.parametrize("options", CASES, ids=str)
def test_the_tests_are_those_of_a_report(options: dict[str, Any]) -> None:
    differences = tables("normal", 7, studies=40, seed=3) + 1.0
    assert_same_tests(differences, numpy.full(differences.shape[:2], 7), **options)


@pytest.mark.parametrize(
    "options", [{}, {"moderated": True}, {"looks": Looks(3, 7), "margin": 1.5, "moderated": True}], ids=str
)
def test_comparisons_of_one_table_may_have_different_numbers_of_pairs(options: dict[str, Any]) -> None:
    differences = tables("t3", 7, studies=40, seed=4)
    counts = numpy.random.RandomState(0).randint(3, 8, differences.shape[:2])
    assert_same_tests(differences, counts, **options)


def test_the_prior_is_limited_as_in_a_report() -> None:
    differences = tables("normal", 5, studies=10, seed=5)
    tests = t_tests(differences, moderated=True, most=3)
    zero = dict.fromkeys(range(5), 0.0)
    for table, p in zip(differences.tolist(), tests.p_table, strict=True):
        compared = moderate([paired.difference(dict(enumerate(gaps)), zero) for gaps in table], most=3)
        assert [d and d.p_moderated for d in compared] == pytest.approx(list(p))
