"""Tests of a runs folder that is moved or copied: everything is read from, and written to, where it is now."""

import os
import shutil
import socket
import urllib.request
from pathlib import Path

import pytest

from attnlab import load_runs
from attnlab._util.run_state import RunState
from attnlab.report.write import write_report as report
from attnlab.study.run import run
from attnlab.tracking.artifacts import AttentionMap, load_attention_maps, log_attention_maps
from attnlab.tracking.client import connect, tracking_uri
from attnlab.tracking.tags import RULE
from attnlab.tracking.tracker import Tracker
from attnlab.tracking.ui import Server
from tests.study.test_study import QUIET, study
from tests.support.processes import free_port
from tests.tracking.test_delivery import small

GOOD = "tests.support.study_fakes:good"


@pytest.fixture
def finished(root: Path, tmp_path: Path) -> Path:
    """A runs folder with a finished study and its report; its path has a space in it."""
    folder = root.rename(tmp_path / "the runs")
    assert run(study(), root=folder, display=QUIET, train=GOOD).ok
    report("small", folder, out=tmp_path / "page")
    return folder


def artifacts(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in (folder / "artifacts").rglob("*")}


@pytest.mark.parametrize("how", ["moved", "copied"])
def test_a_report_is_written_where_the_folder_is_now(finished: Path, tmp_path: Path, how: str) -> None:
    new = tmp_path / "b" / "c"
    new.parent.mkdir()
    shutil.copytree(finished, new) if how == "copied" else finished.rename(new)
    before = artifacts(finished)
    runs = load_runs("small", new)
    assert {Path(folder).parent for folder in runs["folder"]} == {new / "work"}
    log_attention_maps(str(runs["run_id"][0]), [AttentionMap(weights=[[[[1.0]]]], words=("a",))], root=new)
    assert [attention_map.words for attention_map in load_attention_maps("small", new)] == [("a",)]
    report("small", new, out=tmp_path / "page")
    assert artifacts(finished) == before and finished.exists() == (how == "copied")
    names = {Path(name).name for name in artifacts(new)}
    assert {"attention.npz", "study.yaml"} <= names
    answers = [connect(folder).get_experiment_by_name("small") for folder in ((finished, new) if how == "copied" else (new,))]
    assert all(experiment and RULE in experiment.tags["mlflow.note.content"] for experiment in answers)


def test_a_moved_study_continues(root: Path, tmp_path: Path) -> None:
    assert run({**study(), "seeds": [0]}, root=root, display=QUIET, train=GOOD).ok
    root.rename(tmp_path / "moved")
    result = run(study(), root=tmp_path / "moved", display=QUIET, train=GOOD)
    assert result.ok and sum(row.reused for row in result.rows) == len(result.rows) // 2
    assert not root.exists()


def test_a_server_of_a_moved_folder_serves_its_artifacts(finished: Path, tmp_path: Path) -> None:
    new = finished.rename(tmp_path / "moved")
    run_id, port = load_runs("small", new)["run_id"][0], free_port()
    server = Server(tracking_uri(new), root=new, port=port)
    try:
        server.ready()
        address = f"{server.base}/get-artifact?path=study.yaml&run_uuid={run_id}"
        with urllib.request.urlopen(address, timeout=60) as file:
            assert b"study: small" in file.read()
    finally:
        server.close()


def locations(root: Path) -> list[str]:
    return [str(experiment.artifact_location) for experiment in connect(root).search_experiments()]


def test_a_location_outside_the_folder_is_kept(root: Path, tmp_path: Path) -> None:
    connect(root).create_experiment("elsewhere", artifact_location="s3://bucket/artifacts/0")
    connect(root).create_experiment("beside", artifact_location=f"{root}/artifacts-of-mine/0")
    moved = root.rename(tmp_path / "moved")
    assert {"s3://bucket/artifacts/0", f"{root}/artifacts-of-mine/0", f"{moved}/artifacts/0"} == set(locations(moved))


def test_a_folder_with_two_paths_keeps_the_first(root: Path, tmp_path: Path) -> None:
    """A folder that is mounted twice; here, its database has two names."""
    second = tmp_path / "second"
    second.mkdir()
    os.link(root / "mlflow.db", second / "mlflow.db")
    assert locations(second) == [f"{root}/artifacts/0"]


def abandon(root: Path) -> str:
    """Leave a record RUNNING, as a parent that was killed does; return its ID."""
    tracker = Tracker(small(), root)
    run_id = tracker.start(small().runs[0])
    tracker.delivery.call(lambda: None)
    tracker.delivery.close()
    return run_id


@pytest.mark.parametrize("store", ["in the folder", "elsewhere"])
@pytest.mark.parametrize("change", ["path", "host"])
def test_a_record_whose_owner_moved_is_recognised(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, change: str
) -> None:
    if store == "elsewhere":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shutil.copy(root / 'mlflow.db', tmp_path)}")
    run_id = abandon(root)
    folder = root.rename(tmp_path / "moved") if change == "path" else root
    if change == "host":
        monkeypatch.setattr(socket, "gethostname", lambda: "another-host")
    with Tracker(small(), folder) as tracker:
        assert [record.run_id for record in tracker.reconcile().values()] == [run_id]
    record = connect(folder).get_run(run_id)
    assert (record.info.status, record.data.tags["attnlab.state"]) == ("KILLED", RunState.INTERRUPTED)


def test_a_record_of_another_folder_is_left_alone(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shutil.copy(root / 'mlflow.db', tmp_path)}")
    run_id = abandon(tmp_path / "one")
    with Tracker(small(), tmp_path / "two") as tracker:
        tracker.reconcile()
    assert connect(root).get_run(run_id).info.status == "RUNNING"
