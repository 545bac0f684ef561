"""Tests of what a study's record says about a plan: finished runs, and comparisons of a part of a study."""

from pathlib import Path
from typing import Any

from attnlab.planning.plan import plan
from attnlab.stats.compare import CellSummary, summarize_cells
from attnlab.stats.records import exclude_trials
from attnlab.study.plan import finished_records
from attnlab.study.result import StudyResult
from attnlab.study.run import run
from tests.study.test_study import QUIET, go, study

BASELINE: dict[str, Any] = {"baseline": {"variant": "dense"}}
SEARCH = {"trials": 2, "space": {"train.lr": {"low": 1e-3, "high": 1e-2}}, "sampler": "RandomSampler"}
SEARCHED = {key: value for key, value in study(**BASELINE).items() if key != "seeds"}
SEARCHED |= {"search": SEARCH, "confirm": {"seeds": [5, 6]}}


def table(result: StudyResult) -> dict[str, CellSummary]:
    cells = summarize_cells(exclude_trials(result.records()), result.comparison())
    return {cell.name: cell for cell in cells}


def count(root: Path, **changes: Any) -> int:
    return len(finished_records(plan(study(**changes)), root))


def test_a_part_of_a_study_is_compared_with_what_is_finished(tmp_path: Path) -> None:
    go(tmp_path, only={"variant": "dense"}, **BASELINE)
    result = go(tmp_path, only={"variant": "no_wo"}, **BASELINE)
    assert [row.cell for row in result.rows] == ["no_wo learned"] * 2, "the rows are those of this call"
    cells = table(result)
    assert cells["dense learned"].is_baseline and cells["no_wo learned"].difference is not None
    other = go(tmp_path, only={"variant": "no_wo"}, sets={"train.steps": 30}, **BASELINE)
    assert set(table(other)) == {"no_wo learned"}, "runs of another configuration are not compared"


def test_a_part_of_a_searched_study_is_compared_with_what_is_confirmed(tmp_path: Path) -> None:
    assert finished_records(plan(SEARCHED), tmp_path) == {}
    run(SEARCHED, root=tmp_path, display=QUIET, only={"variant": "dense"})
    assert len(finished_records(plan(SEARCHED), tmp_path)) == 4
    cells = table(run(SEARCHED, root=tmp_path, display=QUIET, only={"variant": "no_wo"}))
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
