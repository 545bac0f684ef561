"""Scores far below every reference are questioned, and scores that are no better than a guess."""

import pytest

from attnlab.report.reference_scores import score_warnings
from attnlab.stats.cells import CellSummary
from attnlab.stats.paired import Interval, interval
from attnlab.tracking.artifacts import ReferenceScore


def cell(mean: float) -> CellSummary:
    return CellSummary("leaky", {}, {0: mean}, Interval(1, mean), {}, {})


def score(value: float, metric: str = "bits_per_byte", name: str = "n-gram") -> ReferenceScore:
    return ReferenceScore(name, "pydocs", "data", None, metric, value, 1.0, "a model of counts")


@pytest.mark.parametrize(
    ("mean", "metric", "questioned"),
    [(0.13, "bits_per_byte", True), (3.1, "bits_per_byte", False), (0.9, "bits_per_byte", False), (0.1, "accuracy", False)],
)
def test_a_score_far_below_every_reference_is_questioned(mean: float, metric: str, questioned: bool) -> None:
    notes = score_warnings([cell(mean)], [score(1.67, metric), score(2.5, metric)], metric=metric)
    assert bool(notes) == questioned
    assert not questioned or ("leaky" in notes[0] and "1.67" in notes[0])


def test_nothing_is_questioned_without_a_reference_of_the_metric() -> None:
    assert score_warnings([cell(0.1)], [score(1.0, "bits_per_token")], metric="bits_per_byte") == []


@pytest.mark.parametrize(
    ("seeds", "noted"),
    [
        ({"a": [0.5, 0.51, 0.49], "b": [0.48, 0.5, 0.51]}, True),
        ({"a": [0.5, 0.51, 0.49], "b": [0.53, 0.54, 0.53]}, False),
        ({"a": [0.5, 0.5, 0.5], "b": [0.5, 0.5, 1.0]}, False),  # one seed of three solves the task
        ({"a": [0.51]}, False),
        ({"a": [0.5]}, True),
    ],
)
@pytest.mark.parametrize("name", ["majority", "chance"])
def test_a_table_without_a_cell_above_a_guess_is_noted(seeds: dict[str, list[float]], noted: bool, name: str) -> None:
    cells = [CellSummary(cell, {}, dict(enumerate(v)), interval(v), {}, {}) for cell, v in seeds.items()]
    scores = [score(0.5, "accuracy", name), score(0.8, "accuracy", "tf-idf")]
    assert bool(score_warnings(cells, scores, metric="accuracy")) == noted
    assert score_warnings(cells, scores[1:], metric="accuracy") == []
    assert score_warnings(cells, scores, metric="recall") == []
