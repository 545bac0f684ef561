"""Scores far below every reference are questioned."""

import pytest

from attnlab.report.reference_scores import implausible_scores
from attnlab.stats.cells import CellSummary
from attnlab.stats.paired import Interval
from attnlab.tracking.artifacts import ReferenceScore


def cell(mean: float) -> CellSummary:
    return CellSummary("leaky", {}, {0: mean}, Interval(1, mean), {}, {})


def score(value: float, metric: str = "bits_per_byte") -> ReferenceScore:
    return ReferenceScore("n-gram", "pydocs", "data", None, metric, value, 1.0, "a model of counts")


@pytest.mark.parametrize(
    ("mean", "metric", "questioned"),
    [(0.13, "bits_per_byte", True), (3.1, "bits_per_byte", False), (0.9, "bits_per_byte", False), (0.1, "accuracy", False)],
)
def test_a_score_far_below_every_reference_is_questioned(mean: float, metric: str, questioned: bool) -> None:
    notes = implausible_scores([cell(mean)], [score(1.67, metric), score(2.5, metric)], metric=metric)
    assert bool(notes) == questioned
    assert not questioned or ("leaky" in notes[0] and "1.67" in notes[0])


def test_nothing_is_questioned_without_a_reference_of_the_metric() -> None:
    assert implausible_scores([cell(0.1)], [score(1.0, "bits_per_token")], metric="bits_per_byte") == []
