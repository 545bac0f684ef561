"""Tests of a study whose cells get other names: finished runs count under the new ones, and none is trained again."""

from pathlib import Path
from typing import Any

from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.result import StudyResult
from attnlab.study.run import run
from attnlab.tracking.runs import load_runs
from tests.study.test_study import SEARCHED, study

NAMED = {"attention": {"plain": {"variant": "dense"}, "without": {"variant": "no_wo"}}}
RENAMED = {"attention": {"full": {"variant": "dense"}, "without": {"variant": "no_wo"}}}


QUIET: dict[str, Any] = {"display": ProgressDisplay(quiet=True), "reference_scores": False}


def go(root: Path, grid: dict[str, Any]) -> StudyResult:
    return run(study(grid=grid), root=root, train="tests.support.study_fakes:good", **QUIET)


def test_a_level_may_be_renamed(root: Path) -> None:
    first, second = go(root, NAMED), go(root, RENAMED)
    assert all(row.reused for row in second.rows) and [row.run_id for row in second.rows] == [row.run_id for row in first.rows]
    names = ["full s0", "full s1", "without s0", "without s1"]
    assert [row.name for row in second.rows] == names
    runs = load_runs("small", root)
    assert sorted(runs["name"]) == names and sorted(runs["cell"]) == ["full"] * 2 + ["without"] * 2
    assert set(runs["attention"]) == {"full", "without"}


def test_an_axis_may_be_renamed(root: Path) -> None:
    go(root, NAMED)
    result = go(root, {"variant": ["dense", "no_wo"]})
    assert all(row.reused for row in result.rows)
    assert sorted(load_runs("small", root)["cell"]) == ["dense"] * 2 + ["no_wo"] * 2


def test_names_may_be_exchanged(root: Path) -> None:
    first = go(root, NAMED)
    result = go(root, {"attention": {"plain": {"variant": "no_wo"}, "without": {"variant": "dense"}}})
    assert all(row.reused for row in result.rows)
    of_first, of_second = ({row.run_id: row.cell for row in rows} for rows in (first.rows, result.rows))
    assert {run_id: of_second[run_id] for run_id in of_first} == {
        run_id: {"plain": "without", "without": "plain"}[cell] for run_id, cell in of_first.items()
    }


def test_a_refused_cell_may_be_renamed(root: Path) -> None:
    refused = {"variant": "dense", "model.heads": 3}
    go(root, {"attention": {"plain": {"variant": "dense"}, "odd": refused}})
    result = go(root, {"attention": {"plain": {"variant": "dense"}, "uneven": refused}})
    assert [row.cell for row in result.rows] == ["plain", "plain", "uneven"]
    assert "odd" not in set(load_runs("small", root)["cell"])


def search(root: Path, grid: dict[str, Any]) -> StudyResult:
    made = {key: value for key, value in study(**SEARCHED | {"grid": grid}).items() if key != "seeds"}
    return run(made, root=root, **QUIET)


def test_the_trials_of_a_search_keep_their_results(root: Path) -> None:
    first, second = search(root, NAMED), search(root, RENAMED)
    seconds = [sorted(row.summary["train_seconds"] for row in result.rows) for result in (first, second)]
    assert seconds[0] == seconds[1], "none was trained again"
    assert {row.cell for row in second.rows} == {"full", "without"} == set(load_runs("small", root)["cell"])
