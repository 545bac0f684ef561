"""Tests of the runs of cells in MLflow: what they show, once each, and that no reader takes one for the run of a seed."""

import base64
import json
import shutil
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlflow
import pytest

import attnlab
from attnlab.report.result import Result
from attnlab.study.withdrawal import withdraw
from attnlab.tracking.cells import CellRun, write_cells
from attnlab.tracking.client import connect, search_runs
from attnlab.tracking.record import CELL_RUN, PARENT_TAG, VIEW, VIEW_KEY
from attnlab.tracking.runs import find_experiment
from attnlab.tracking.tags import split_note
from attnlab.tracking.transfer import read_study_record
from tests.report.test_result import go
from tests.support.empty_store import copy_store

RESULTS = f"tags.`{CELL_RUN}` != ''"


def of_mlflow(root: Path, search: str = RESULTS) -> Any:
    """Return what a person finds with MLflow's own function."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{root / 'mlflow.db'}")
        return mlflow.search_runs(experiment_names=["small"], filter_string=search, order_by=["metrics.bits_per_byte"])


def view(root: Path) -> dict[str, Any]:
    saved = json.loads(find_experiment(connect(root), "small").tags[f"{VIEW}{VIEW_KEY}"])
    return json.loads(zlib.decompress(base64.b64decode(saved["state"].removeprefix("deflate;"))))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_store(tmp_path_factory.mktemp("cells") / "runs")
    go(folder)
    return folder


@pytest.fixture
def result(trained: Path, root: Path) -> Result:
    shutil.copytree(trained, root, dirs_exist_ok=True)
    result = go(root)
    assert result.compared.cells
    return result


def test_a_cell_is_one_run_with_its_verdict_above_the_runs_of_its_seeds(result: Result, root: Path) -> None:
    found = of_mlflow(root).set_index("tags.mlflow.runName")
    verdicts = result.verdicts.set_index("cell")
    assert sorted(found.index) == sorted(verdicts.index) and len(found) == 3
    for cell, row in verdicts.iterrows():
        shown = found.loc[cell]
        assert shown["metrics.bits_per_byte"] == pytest.approx(row["value"], rel=1e-4) and shown["metrics.seeds"] == 4
        assert shown["tags.verdict"] == (row["verdict"] or "baseline") and shown["tags.baseline"] == row["baseline"]
        numbers = [shown[f"metrics.{name}"] for name in ("difference", "low", "high", "p")]
        assert numbers == pytest.approx([row[name] for name in ("difference", "low", "high", "p")], rel=1e-3, nan_ok=True)
    worse = of_mlflow(root, "tags.verdict = 'worse'")
    assert worse["params.variant"].tolist() == ["no_wo"] and "`no_wo learned` is worse" in worse["tags.sentence"][0]
    children = of_mlflow(root, f"tags.`{PARENT_TAG}` = '{found.loc['no_wo learned', 'run_id']}'")
    assert sorted(children["tags.attnlab.seed"]) == ["0", "1", "2", "3"]


def test_no_reader_of_runs_sees_a_cell(result: Result, root: Path) -> None:
    assert len(attnlab.load_runs("small", root)) == 12 == len(read_study_record("small", root).runs)
    assert all(row.reused for row in go(root).rows) and len(go(root).verdicts) == 3
    assert not any(PARENT_TAG in run.tags for run in read_study_record("small", root).runs)


def test_a_new_answer_takes_the_place_of_the_one_before(result: Result, root: Path) -> None:
    before = of_mlflow(root)
    assert result.compared is go(root).compared or sorted(of_mlflow(root)["run_id"]) == sorted(before["run_id"])
    more = go(root, seeds=[0, 1, 2, 3, 4], baseline={"variant": "narrow"})
    more.compared  # noqa: B018  (the look writes the answer)
    after = of_mlflow(root).set_index("params.variant")
    assert len(after) == 3 and after.loc["narrow", "tags.verdict"] == "baseline" and set(after["metrics.seeds"]) == {5}
    assert after.loc["narrow", ["metrics.difference", "metrics.p"]].isna().all(), "a baseline keeps no difference"
    parents = {
        record.tags[PARENT_TAG] for record in search_runs(connect(root), find_experiment(connect(root), "small").experiment_id)
    }
    assert parents == set(after["run_id"])


@pytest.mark.parametrize("verb", ["delete", "redo"])
def test_an_answer_is_taken_back_with_the_runs_that_it_rests_on(result: Result, root: Path, verb: str) -> None:
    with withdraw("small", ["no_wo learned"], root=root) as withdrawal:
        getattr(withdrawal, verb)()
    assert of_mlflow(root).empty and "attnlab.current" in view(root)["searchFilter"]
    assert split_note(find_experiment(connect(root), "small").tags)[0] == ""
    again = go(root)
    assert len(again.verdicts) == 3 == len(of_mlflow(root)) and view(root)["searchFilter"] == RESULTS


def test_processes_that_write_at_once_leave_one_run_of_each_cell(result: Result, root: Path) -> None:
    client, cells = (
        connect(root),
        [CellRun(f"c{i}", {"x": f"{i}"}, {"bits_per_byte": float(i)}, {"verdict": "better"}) for i in range(3)],
    )
    study = find_experiment(client, "small").experiment_id
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: write_cells(connect(root), study, cells, root), range(3)))
    assert of_mlflow(root)["tags.mlflow.runName"].tolist() == ["c0", "c1", "c2"]


def test_the_preset_view_has_runs_until_there_is_an_answer_and_then_cells(root: Path) -> None:
    result = go(root)
    assert "attnlab.current" in view(root)["searchFilter"]
    assert result.compared.cells
    state = view(root)
    assert state["searchFilter"] == RESULTS and "groupBy" not in state
    assert state["selectedColumns"][:3] == ["tags.`verdict`", "metrics.`bits_per_byte`", "metrics.`difference`"]
    assert all(len(tag) <= 5_000 for tag in find_experiment(connect(root), "small").tags.values())
