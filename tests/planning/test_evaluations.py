"""Tests of the sample of ``valid`` that evaluations during training read."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.planning.cell import Cell
from attnlab.planning.plan import plan
from tests.support.studies import STUDY, misplanned, write


def dense(folder: Path, **sets: Any) -> Cell:
    return plan(write(folder, STUDY), sets={name.replace("__", "."): value for name, value in sets.items()}).cells[0]


def test_evaluations_before_the_end_read_the_sample_of_the_task(tmp_path: Path) -> None:
    assert dense(tmp_path, task={"name": "enwik8", "length": 24}, train__eval_every=2).config.evaluate.sample == 50_000


@pytest.mark.parametrize(
    "sets",
    [
        {"task": {"name": "enwik8", "length": 24}},  # one evaluation, at the end
        {"task": {"name": "enwik8", "length": 24}, "train__eval_every": 2, "evaluate__valid_limit": 50_000},
        {"task": {"name": "enwik8", "length": 24}, "train__eval_every": 2, "evaluate__sample": None},
        {"train__eval_every": 2},  # valid is shorter than the sample
    ],
)
def test_every_evaluation_reads_the_same_where_a_sample_saves_nothing(sets: dict[str, Any], tmp_path: Path) -> None:
    assert dense(tmp_path, **sets).config.evaluate.sample is None


def test_a_sample_without_effect_makes_no_run_of_its_own(tmp_path: Path) -> None:
    planned = plan(write(tmp_path, STUDY.replace("seeds:", "  evaluate.sample: [100, 200]\nseeds:")))
    assert len(planned.runs) == len({run.fingerprint for run in planned.runs})
    assert any("'evaluate.sample' changes nothing: valid is read once" in note for note in planned.notes)


def test_the_cost_counts_samples_and_the_whole_of_valid_once(tmp_path: Path) -> None:
    sets = {"train__eval_every": 2, "evaluate__valid_limit": 500, "evaluate__test_limit": 600, "evaluate__sample": 120}
    cell = dense(tmp_path, **sets)  # the sample is read after steps 2, 4 and 5
    assert cell.flops_per_token is not None
    assert cell.eval_flops == cell.flops_per_token * (3 * 120 + 504 + 600)


def test_a_sample_that_scores_nothing_is_refused(tmp_path: Path) -> None:
    refusal = dense(tmp_path, train__eval_every=2, evaluate__sample=1).refusal
    assert refusal == "evaluate.sample: one byte leaves nothing to predict, expected at least 2"


def test_a_sample_is_a_number_auto_or_null(tmp_path: Path) -> None:
    assert (
        "expected" in (message := misplanned(write(tmp_path, STUDY), sets={"evaluate.sample": "half"})) and "'half'" in message
    )
