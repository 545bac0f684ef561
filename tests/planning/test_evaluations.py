"""Tests of the sample of ``valid`` that evaluations during training read."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.config.grid import Cell
from attnlab.errors import UserError
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


@pytest.mark.parametrize(
    ("stated", "recorded", "direction"),
    [
        ("bits_per_byte at 48", "bits_per_byte_at/48", "min"),
        ("valid_bits_per_byte", "valid_bits_per_byte", "min"),
        ("tokens_per_s", "tokens_per_s", "max"),
        ("saved_mib", "saved_mib", "min"),
    ],
)
def test_what_every_run_records_can_be_the_question(stated: str, recorded: str, direction: str, tmp_path: Path) -> None:
    study = write(tmp_path, STUDY.replace("seeds:", f"metric: {stated}\nseeds:"))
    planned = plan(study, sets={"evaluate.lengths": [48, 96]})
    assert planned.metric_of(planned.cells[0]) == (recorded, direction)


@pytest.mark.parametrize("stated", ["bits_per_byte at 50", "bits_per_byte at", "accuracy at 48", "bits_per_byte_at/48"])
def test_a_metric_that_a_run_does_not_record_is_refused(stated: str, tmp_path: Path) -> None:
    study = write(tmp_path, STUDY.replace("seeds:", f"metric: {stated}\nseeds:"))
    with pytest.raises(UserError, match="unknown metric") as refused:
        plan(study, sets={"evaluate.lengths": [48, 96]})
    assert refused.value.where is not None and "bits_per_byte at 48" in str(refused.value)


def test_lengths_that_some_cells_lack_are_no_question(tmp_path: Path) -> None:
    text = STUDY.replace("seeds:", "  evaluate.lengths: [[48], [48, 96]]\nmetric: bits_per_byte at 96\nseeds:")
    with pytest.raises(UserError, match="unknown metric"):
        plan(write(tmp_path, text))
    assert plan(write(tmp_path, text.replace("byte at 96", "byte at 48"))).metric == "bits_per_byte_at/48"
