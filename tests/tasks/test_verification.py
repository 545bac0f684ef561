"""Tests of verification: a run records the data and user files that it read, and detects changes after the plan."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from attnlab.errors import UserError
from attnlab.models.build import build
from attnlab.planning.plan import Plan, plan
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.execution.reference_scores import compute_reference_scores
from attnlab.study.run import run
from attnlab.tasks.text import Text
from attnlab.trained import attention_maps, generation
from attnlab.training import evaluate, weights
from tests.support.studies import COSINE

TEXT = bytes(range(1, 101)) * 20


@pytest.fixture
def planned(folders: Path) -> Plan:
    """Return the plan of a study of two cells, dense and a variant in a file, on a text."""
    (folders / "corpus.txt").write_bytes(TEXT)
    (folders / "mine.py").write_text(COSINE)
    base = {
        "task": {"name": "text", "path": f"{folders}/corpus.txt", "length": 16},
        "position": "rotary",
        "model": {"dim": 12, "depth": 1, "heads": 2},
        "train": {"steps": 2, "batch_size": 2},
        "evaluate": {"lengths": [8]},
        "machine": {"device": "cpu"},
    }
    return plan({"study": "s", "base": base, "grid": {"variant": ["dense", f"{folders}/mine.py:Cosine"]}, "seeds": [0]})


def test_a_run_of_a_text_that_changed_after_the_plan_fails_with_the_reason(planned: Plan, folders: Path, root: Path) -> None:
    (folders / "corpus.txt").write_bytes(TEXT[::-1])
    for row in run(planned, root=root, display=ProgressDisplay(quiet=True)).rows:
        assert row.state == "failed" and f"{folders}/corpus.txt" in row.reason, row.reason
        assert "data have changed" in row.reason and planned.cells[0].config.data in row.reason


def test_a_variant_s_file_that_changed_after_the_plan_fails_its_runs_alone(planned: Plan, folders: Path, root: Path) -> None:
    (folders / "mine.py").write_text(COSINE + "x = 1\n")
    dense, mine = run(planned, root=root, display=ProgressDisplay(quiet=True), reference_scores=False).rows
    assert dense.state == "completed"
    assert mine.state == "failed" and f"{folders}/mine.py has changed since this was planned" in mine.reason


def test_readers_after_training_read_the_planned_data_or_none(
    planned: Plan, folders: Path, log: pytest.LogCaptureFixture
) -> None:
    config = planned.cells[0].config
    task = Text(**config.task.options)
    task.prepare()
    weights.save(build(config, task), config, folders)
    (folders / "corpus.txt").write_bytes(TEXT[::-1])
    made: list[Callable[[], Any]] = [
        lambda: generation.generate(str(folders), length=2),
        lambda: attention_maps.compute_maps(folders, length=2),
    ]
    for compute in made:
        with pytest.raises(UserError, match="its data have changed since this was planned"):
            compute()
    assert generation.generate(str(folders), prompt="a", length=2).origin == "as given"  # it reads no data

    assert compute_reference_scores(planned) == []
    assert "its data have changed" in log.messages[-1]

    scores, tags = evaluate.evaluate_lengths(build(config, task), task, {}, config=config, device=torch.device("cpu"))
    assert scores == {} and "its data have changed" in tags["length.8"]
