"""Tests of the notes on what makes no difference."""

import numpy
import pytest

from attnlab.config.comparability import PROGRAM
from attnlab.report.notes import notes_on_equal_results
from attnlab.stats.compare import summarize_cells
from tests.support.specs import comparison_spec


@pytest.mark.parametrize(
    ("shift", "sd", "words"),
    [
        (0.0, 0.02, ""),
        (-2.5e6, 0.02, ""),  # seeds that differ, whatever the size of what is added to all scores
        (1.93, 1e-7, "the same difference"),  # one run repeated on a GPU
        (1.93, 0.0, "the same result"),
    ],
)
def test_seeds_are_called_equal_only_if_they_are(shift: float, sd: float, words: str) -> None:
    scatter = numpy.random.RandomState(0).normal(0, sd, (2, 8))
    spec = comparison_spec("s", ("kind",), "loss", "min", {"kind": "a"})
    runs = [
        {"kind": kind, "cell": kind, "seed": seed, "state": "completed", "test": PROGRAM, "loss": value + scatter[i, seed]}
        for i, (kind, value) in enumerate({"a": shift, "b": shift + 0.05}.items())
        for seed in range(8)
    ]
    notes = notes_on_equal_results(summarize_cells(runs, spec))
    assert [words in note for note in notes] == [True] * bool(words)
