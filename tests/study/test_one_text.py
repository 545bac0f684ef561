"""Tests that a study is what it was when it started: its file is read once, and parents that share it have one text."""

from pathlib import Path
from typing import Any

import pytest

import attnlab
from attnlab._util.database import storage_url
from attnlab.errors import UserError
from attnlab.study.comparison import load_info
from attnlab.study.run import run
from attnlab.study.trials.store import Store
from attnlab.tracking.client import connect
from attnlab.tracking.experiment import log_answer
from attnlab.tracking.runs import find_experiment
from attnlab.tracking.tags import split_note, to_yaml
from tests.study.test_study import QUIET, study
from tests.support.postgres import Server

FAKE: dict[str, Any] = {"display": QUIET, "train": "tests.support.study_fakes:settling"}


@pytest.mark.parametrize("later", ["study: small\nbaseline: {variant: no_wo}\n", "study: [half"])
def test_a_file_that_changes_while_its_study_runs_is_not_read_again(later: str, root: Path, tmp_path: Path) -> None:
    """An adaptive run recorded what the file said at each look, so that the page compared other cells than the terminal."""
    file = tmp_path / "small.yaml"
    text = to_yaml(study(baseline={"variant": "dense"}, seeds=[0, 1], max_seeds=3))
    file.write_text(text, encoding="utf-8")
    plan = attnlab.plan(file)
    file.write_text(later, encoding="utf-8")
    run(plan, root=root, **FAKE)
    info = load_info("small", root)[0]
    assert info.yaml == text and info.spec.baseline == {"variant": "dense"}


def test_parents_of_one_text_share_a_study_and_those_of_another_text_are_refused(postgres: Server, tmp_path: Path) -> None:
    address = storage_url(postgres.database())
    first, second = Store(tmp_path, address), Store(tmp_path, address)
    with first.share("s", "one"):
        with second.share("s", "one"), second.share("t", "two"):
            pass
        with pytest.raises(UserError, match="another study file"), second.share("s", "two"):
            pass
    with second.share("s", "two"):
        pass
    first.close()
    second.close()


def test_the_answer_stays_above_the_plan_when_the_study_runs_again(root: Path) -> None:
    run(study(seeds=[0]), root=root, **FAKE)
    log_answer("small", ["`no_wo` is better."], root=root)
    run(study(seeds=[0, 1]), root=root, **FAKE)
    answer, note = split_note(find_experiment(connect(root), "small").tags)
    assert answer == "`no_wo` is better." and "seeds 0, 1" in note
