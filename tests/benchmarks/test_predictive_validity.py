"""Tests of the simulated intervals of predictive validity (``benchmarks.validity`` simulates more studies)."""

from itertools import combinations

import numpy
import pytest

from attnlab.stats.cells import CellSummary
from benchmarks import predictive_validity
from examples.my_analysis.validity import share_interval, summarize_agreement
from tests.support.specs import comparison_spec

STUDIES = 2_000
CELLS = 7
SPEC = comparison_spec("simulated", ("variant", "train.steps"), "loss", "min", {"variant": "0"}, over="train.steps")


def cells_of(lower: numpy.ndarray, higher: numpy.ndarray) -> list[CellSummary]:
    """Return the cells of a study, given its runs, shape (cells, seeds), at 100 and 900 steps."""
    return [
        CellSummary(
            name=f"{i} steps={steps}",
            axes={"variant": str(i), "train.steps": str(steps)},
            values=dict(enumerate(values)),
            value=None,
            costs={},
            states={},
        )
        for steps, runs in ((100, lower.tolist()), (900, higher.tolist()))
        for i, values in enumerate(runs)
    ]


def test_the_simulated_studies_are_counted_as_in_a_report() -> None:
    random = numpy.random.RandomState(1)
    effects = 20 * random.standard_normal((2, 20, CELLS, 1))
    lower, higher = effects + random.standard_normal((2, 20, CELLS, 3))
    first, second = predictive_validity.compare_pairs(lower), predictive_validity.compare_pairs(higher)
    kept = first.mean * second.mean > 0
    assert first.differs.any(1).all() and not kept.all()
    lows, highs = predictive_validity.share_intervals(first.differs, kept, numpy.argsort(lower.mean(2), axis=1))
    for i in range(20):
        (agreement,) = summarize_agreement(cells_of(lower[i], higher[i]), SPEC)
        assert agreement.verdicts == first.differs[i].sum()
        assert agreement.kept == (first.differs & kept)[i].sum()
        assert agreement.confirmed == (first.differs & second.differs & kept)[i].sum()
        assert agreement.interval == pytest.approx((lows[i], highs[i]))


def test_the_intervals_are_those_of_a_report() -> None:
    random = numpy.random.RandomState(2)
    verdicts, kept = random.random_sample((2, 200, CELLS * (CELLS - 1) // 2)) < [[[0.4]], [[0.8]]]
    verdicts[:, 0] = True
    lows, highs = predictive_validity.share_intervals(verdicts, kept, numpy.tile(numpy.arange(CELLS), (200, 1)))
    pairs = [(str(i), str(j)) for i, j in combinations(range(CELLS), 2)]
    for i in range(200):
        marked = {pair: bool(same) for pair, verdict, same in zip(pairs, verdicts[i], kept[i], strict=True) if verdict}
        assert share_interval(marked, [*map(str, range(CELLS))]) == pytest.approx((lows[i], highs[i]))


@pytest.mark.parametrize("correlation", [0.5, 0.9])
def test_intervals_cover_where_a_binomial_interval_does_not(correlation: float) -> None:
    outcome = predictive_validity.agreement("near ties", 12, correlation, 20.0, STUDIES, 3)
    covered, naive = outcome["covered"], outcome["covered binomial"]
    assert isinstance(covered, predictive_validity.Share) and isinstance(naive, predictive_validity.Share)
    assert covered.value > 0.93 and naive.value < 0.85


@pytest.mark.parametrize("within", predictive_validity.WITHIN)
def test_intervals_cover_where_two_families_change_places(within: float) -> None:
    covered = predictive_validity.family_agreement(2, 10, 0.3, within, STUDIES, 3)["covered"]
    assert isinstance(covered, predictive_validity.Share) and covered.value > 0.93
