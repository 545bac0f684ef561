"""Tests of params, tags and the preset view of MLflow records, and secrets that must not be recorded."""

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from attnlab._util.redact import redact
from attnlab._util.run_state import RunState
from attnlab.errors import UserError
from attnlab.planning.plan import Plan, plan
from attnlab.tracking.client import connect, runs_folder, tracking_uri
from attnlab.tracking.runs import load_runs
from attnlab.tracking.tags import param_names, run_params, run_tags
from attnlab.tracking.tracker import Tracker
from attnlab.tracking.ui import ui_url
from attnlab.tracking.views import runs_view


def small(**grid: list[object]) -> Plan:
    base = {"task": {"name": "pydocs", "length": 16}, "model": {"dim": 8, "depth": 1, "heads": 2}}
    base |= {"train": {"steps": 5}, "machine": {"device": "cpu"}}
    return plan({"study": "small", "base": base, "grid": grid or {"variant": ["dense"]}, "seeds": [0, 1]})


def test_params_are_flat_and_the_same_in_every_run() -> None:
    sparse = {"name": "strided_sparse", "stride": 4}
    planned = small(variant=["dense", sparse], **{"train.lr": [1e-3, 3e-4], "model.feed_forward": ["relu", "gelu"]})
    shown = [run_params(run) for run in planned.runs]
    assert len({tuple(params) for params in shown}) == 1
    assert list(shown[0])[:3] == ["variant", "lr", "feed_forward"]
    last = shown[-1]
    assert (last["variant"], last["lr"], last["feed_forward"]) == ("strided_sparse stride=4", "0.0003", "gelu")
    assert (last["length"], last["seed"], last["steps"], last["task"]) == ("16", "1", "5", "pydocs length=16")


def test_two_axes_that_end_alike_keep_their_whole_path() -> None:
    assert param_names(["train.batch_size", "evaluate.batch_size", "model.dropout"]) == {
        "train.batch_size": "batch_size",
        "evaluate.batch_size": "evaluate.batch_size",
        "model.dropout": "dropout",
    }


def test_tags_hold_the_configuration_and_fit() -> None:
    planned = small()
    tags = run_tags(planned.runs[1], plan=planned)
    assert tags["attnlab.fingerprint"] == planned.runs[1].fingerprint and tags["attnlab.seed"] == "1"
    assert json.loads(tags["attnlab.config"])["model"]["dim"] == 8
    assert tags["mlflow.runColor"].startswith("#") and "dense" in tags["mlflow.note.content"]
    assert all(len(value) <= 8_000 for value in tags.values())


def test_the_preset_view_fits_into_a_tag() -> None:
    packed = runs_view(small(variant=["dense", "no_wo"], position=["learned", "none"]))
    assert packed.startswith("deflate;") and len(packed) < 5_000
    state = json.loads(zlib.decompress(base64.b64decode(packed.removeprefix("deflate;"))))
    assert state["selectedColumns"][:4] == [
        "params.`variant`", "params.`position`", "params.`seed`", "metrics.`bits_per_byte`",
    ]  # fmt: skip
    assert state["orderByAsc"] is True
    assert {chart.get("metricKey") for chart in state["compareRunCharts"]} >= {"bits_per_byte", "valid/bits_per_byte"}


@pytest.mark.parametrize(
    "address, shown",
    [
        ("postgresql://me:s3cret@host:5432/db", "postgresql://***@host:5432/db"),
        ("could not reach https://u:s3cret@host/mlflow: refused", "could not reach https://***@host/mlflow: refused"),
        ("sqlite:////tmp/mlflow.db", "sqlite:////tmp/mlflow.db"),
        ("http://host:5000/?at=me@home", "http://host:5000/?at=me@home"),
        ("mysql://me:p@ss@host/db", "mysql://***@host/db"),
    ],
)
def test_passwords_are_blanked(address: str, shown: str) -> None:
    assert redact(address) == shown


def test_a_password_is_in_no_message_and_in_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:s3cret@127.0.0.1:9/")
    with pytest.raises(UserError) as caught:
        connect(tmp_path, create=True)
    assert "127.0.0.1:9" in str(caught.value) and "s3cret" not in str(caught.value)
    planned = small()
    monkeypatch.setattr("sys.argv", ["/somewhere/attnlab", "run", "--store=http://me:s3cret@host/x"])
    tags = run_tags(planned.runs[0], plan=planned)
    assert tags["attnlab.command"] == "attnlab run '--store=http://***@host/x'"
    assert "s3cret" not in json.dumps(tags) + "".join(capfd.readouterr())


def test_readers_ask_a_store_once_whether_it_responds_and_writers_each_time(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search, asked = MlflowClient.search_experiments, list[bool]()

    def counted(client: MlflowClient, **options: Any) -> Any:
        asked.append(True)
        return search(client, **options)

    monkeypatch.setattr(MlflowClient, "search_experiments", counted)
    counts = []
    for create in (False, False, True, True, False):
        connect(root, create=create)
        counts.append(len(asked))
    assert counts == [1, 1, 2, 3, 3]


def test_the_runs_folder_is_the_argument_or_the_environment_s_or_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNLAB_RUNS", raising=False)
    assert runs_folder() == tmp_path / "runs"
    monkeypatch.setenv("ATTNLAB_RUNS", "elsewhere")
    assert runs_folder() == tmp_path / "elsewhere" and runs_folder("here") == tmp_path / "here"
    assert tracking_uri(tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"
    with pytest.raises(UserError, match="no runs in .* yet"):
        load_runs("small")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["why?", "50%", "a%20b"])
def test_a_runs_folder_that_an_sqlite_uri_would_change_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"'[?%]'.*got /"):
        runs_folder(tmp_path / name / "runs")


def test_unknown_and_deleted_studies_are_errors(tmp_path: Path) -> None:
    planned = small()
    tracker = Tracker(planned, tmp_path)
    with pytest.raises(UserError, match=r"no study 'smal' \(did you mean 'small'\?\).*: small"):
        load_runs("smal", tmp_path)
    (tmp_path / "wo.yaml").write_text("study: small\n")
    assert load_runs(f"{tmp_path}/wo.yaml", tmp_path).empty
    with pytest.raises(UserError, match=r"no study 'no.yaml'; .*: small"):
        load_runs("no.yaml", tmp_path)
    assert list(load_runs("small", tmp_path).columns) == []
    client = connect(tmp_path)
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None and tracker.reconcile() == {}
    client.delete_experiment(experiment.experiment_id)
    with pytest.raises(UserError, match="was deleted in MLflow"):
        Tracker(planned, tmp_path)


def test_a_parent_killed_between_two_records_of_a_run_leaves_one(tmp_path: Path) -> None:
    planned = small()
    tracker, client = Tracker(planned, tmp_path), connect(tmp_path)
    first = tracker.start(planned.runs[0])
    tracker.finish(first, RunState.INTERRUPTED)
    before = client.get_run(first)
    second = client.create_run(before.info.experiment_id, tags=before.data.tags).info.run_id  # then the parent is killed
    assert [record.run_id for record in Tracker(planned, tmp_path).reconcile().values()] == [second]
    assert client.get_run(first).info.lifecycle_stage == "deleted"
    assert client.get_run(second).info.status == "KILLED"


@pytest.mark.parametrize("alive", [[set(), {"key"}], [{"key"}, set()]], ids=["claimed meanwhile", "ended meanwhile"])
def test_a_run_of_another_parent_is_not_closed(tmp_path: Path, alive: list[set[str]]) -> None:
    """The other parent claims or ends the run between the first reading of the queue and the second."""
    planned = small()
    run_id = Tracker(planned, tmp_path).start(planned.runs[0])
    running = iter([keys and {planned.runs[0].key} for keys in alive])
    records = Tracker(planned, tmp_path).reconcile(alive=lambda: next(running))
    assert [(record.run_id, record.status) for record in records.values()] == [(run_id, "RUNNING")]
    orphans = Tracker(planned, tmp_path).reconcile(alive=set)
    assert [record.status for record in orphans.values()] == ["KILLED"]


def test_a_record_that_is_replaced_is_not_left_running(tmp_path: Path) -> None:
    planned = small()
    with Tracker(planned, tmp_path) as tracker:
        first = tracker.start(planned.runs[0])
        tracker.start(planned.runs[0])
    left = connect(tmp_path).get_run(first).info
    assert (left.lifecycle_stage, left.status) == ("deleted", "KILLED")


def test_the_address_of_a_study_names_its_view() -> None:
    address = ui_url("3", "http://127.0.0.1:5000")
    assert address.endswith("/3/runs?viewStateShareKey=attnlab&workflowType=machine_learning")
