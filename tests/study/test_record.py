"""Tests of what a study's record says about a plan: finished runs, and comparisons of a part of a study."""

from pathlib import Path
from typing import Any

from attnlab.planning.plan import plan
from attnlab.report.verdicts import note_on_batches
from attnlab.stats.compare import CellSummary
from attnlab.study.plan import finished_records
from attnlab.study.run import run
from tests.study.test_study import QUIET, go, study
from tests.support.compared import recorded

BASELINE: dict[str, Any] = {"baseline": {"variant": "dense"}}
SEARCH = {"trials": 2, "space": {"train.lr": {"low": 1e-3, "high": 1e-2}}, "sampler": "RandomSampler"}
SEARCHED = {key: value for key, value in study(**BASELINE).items() if key != "seeds"}
SEARCHED |= {"search": SEARCH, "confirm": {"seeds": [5, 6]}}


def table(root: Path) -> dict[str, CellSummary]:
    return {cell.name: cell for cell in recorded("small", root)[1].cells}


def count(root: Path, **changes: Any) -> int:
    return len(finished_records(plan(study(**changes)), root))


def test_a_part_of_a_study_is_compared_with_what_is_finished(tmp_path: Path) -> None:
    go(tmp_path, only={"variant": "dense"}, **BASELINE)
    result = go(tmp_path, only={"variant": "no_wo"}, **BASELINE)
    assert [row.cell for row in result.rows] == ["no_wo learned"] * 2, "the rows are those of this call"
    cells = table(tmp_path)
    assert cells["dense learned"].is_baseline and cells["no_wo learned"].difference is not None
    go(tmp_path, only={"variant": "no_wo"}, sets={"train.steps": 30}, **BASELINE)
    assert "train.steps 30 instead of 20" in note_on_batches([*table(tmp_path).values()])[0]


def test_a_part_of_a_searched_study_is_compared_with_what_is_confirmed(tmp_path: Path) -> None:
    assert finished_records(plan(SEARCHED), tmp_path) == {}
    run(SEARCHED, root=tmp_path, display=QUIET, only={"variant": "dense"})
    assert len(finished_records(plan(SEARCHED), tmp_path)) == 4
    run(SEARCHED, root=tmp_path, display=QUIET, only={"variant": "no_wo"})
    cells = table(tmp_path)
    assert cells["dense learned"].is_baseline and len(cells["dense learned"].values) == 2
    assert cells["no_wo learned"].difference is not None
    planned = plan(SEARCHED, sets={"search.trials": 3})
    assert len(finished_records(planned, tmp_path)) == 8 and planned.total == 10
    moved = plan(SEARCHED, sets={"search.space": {"train.weight_decay": {"low": 0.0, "high": 0.1}}})
    assert finished_records(moved, tmp_path) == {}


def test_finished_runs_are_counted_without_writing(tmp_path: Path) -> None:
    assert count(tmp_path / "nothing") == 0 and not (tmp_path / "nothing").exists()
    go(tmp_path, only={"variant": "dense"})
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert count(tmp_path) == 2
    assert count(tmp_path, seeds=[1, 2]) == 1
    assert count(tmp_path, study="another") == 0
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
