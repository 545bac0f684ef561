"""Tests of an MLflow store that others use too, and of commands that read from a server that fails or hangs."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from attnlab import load_curves, load_runs
from attnlab._util.run_state import RunState
from attnlab.cli import main
from attnlab.errors import UserError
from attnlab.report.write import write_report as report
from attnlab.study.comparison import comparison_of, to_json
from attnlab.tracking import client as client_module
from attnlab.tracking.artifacts import AttentionMap
from attnlab.tracking.client import connect
from attnlab.tracking.tracker import Tracker
from attnlab.trained.attention_maps import record_attention_maps
from attnlab.trained.model import find_run
from tests.tracking.test_delivery import small

HTTP_VARIABLES = ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT")


@pytest.fixture
def shared(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a study of two runs, a foreign run in its experiment, and a foreign experiment."""
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    plan = small()
    with Tracker(plan, root) as tracker:
        tracker.log_study(to_json(comparison_of(small())))
        for run in plan.runs:
            run_id = tracker.start(run)
            tracker.log_metrics(run_id, 1, {"train/loss": 1.0})
            tracker.finish(run_id, RunState.COMPLETED, summary={"bits_per_byte": 2.5})
    client = connect(root)
    study = client.get_experiment_by_name("small")
    assert study is not None
    for experiment_id in (study.experiment_id, client.create_experiment("theirs")):
        foreign = client.create_run(experiment_id, run_name="foreign", tags={"seed": "0"}).info.run_id
        client.log_metric(foreign, "train/loss", 3.0)
    return root


def test_only_marked_runs_count(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(load_runs("small", shared)["seed"]) == [0, 1]
    assert set(load_curves("small", shared)["value"]) == {1.0}
    page = report("small", shared, out=tmp_path / "page")
    assert "foreign" not in (page / "README.md").read_text()
    monkeypatch.setattr("attnlab.trained.attention_maps.compute_maps", lambda *_, **__: [AttentionMap(reason="no model")])
    assert len(record_attention_maps("small", root=shared)) == 1
    with pytest.raises(UserError, match="no run.*'foreign'"):
        find_run("foreign", root=shared)
    with Tracker(small(), shared) as tracker:
        assert len(tracker.reconcile()) == 2
    assert connect(shared).search_runs([connect(shared).get_experiment_by_name("theirs").experiment_id])  # type: ignore[union-attr]


def test_only_marked_experiments_are_studies(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["runs"]) == 0
    out = capsys.readouterr().out
    assert "small" in out and "theirs" not in out
    for command in (["runs", "theirs"], ["report", "theirs"], ["attention-maps", "theirs"]):
        assert main.main(command) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and "'theirs'" in error and "small" in error


@pytest.mark.parametrize("tag, value", [("attnlab.seed", None), ("attnlab.seed", "one"), ("attnlab.config", "{")])
def test_a_record_with_a_damaged_tag_is_left_out_with_a_warning(
    shared: Path, tag: str, value: str | None, log: pytest.LogCaptureFixture
) -> None:
    client, run_id = connect(shared), str(load_runs("small", shared)["run_id"][0])
    client.delete_tag(run_id, tag) if value is None else client.set_tag(run_id, tag, value)
    assert list(load_runs("small", shared)["seed"]) == [1] and len(load_curves("small", shared)) == 1
    assert [(run_id in line, tag in line) for line in log.messages] == [(True, True)]


def test_an_experiment_that_was_deleted_is_one_clear_line(shared: Path) -> None:
    client = connect(shared)
    client.delete_experiment(client.get_experiment_by_name("small").experiment_id)  # type: ignore[union-attr]
    with pytest.raises(UserError, match="'small' was deleted in MLflow"):
        load_runs("small", shared)


def test_a_study_uses_an_experiment_that_someone_made_for_it(root: Path) -> None:
    connect(root).create_experiment("small", artifact_location=(root / "artifacts/7").as_uri())
    with Tracker(small(), root) as tracker:
        tracker.finish(tracker.start(small().runs[0]), RunState.COMPLETED)
    assert len(load_runs("small", root)) == 1


@contextmanager
def failing_server(monkeypatch: pytest.MonkeyPatch, *, hangs: bool = False) -> Iterator[list[str]]:
    """Set MLFLOW_TRACKING_URI to a server that answers 500, or nothing at all; yield the requests that it gets."""
    requests: list[str] = []
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            if hangs:
                over.wait()
                return
            self.send_response(500)
            self.end_headers()
            self.wfile.write(b"Internal Server Error")

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    for name in HTTP_VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:s3cret@127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield requests
        finally:
            over.set()
            server.shutdown()


@pytest.mark.parametrize("command", [["runs"], ["runs", "small"], ["report", "small"], ["generate", "0123"]])
@pytest.mark.parametrize("hangs", [False, True])
def test_a_command_that_reads_fails_at_once(
    command: list[str], hangs: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(client_module.HTTP_ENVIRONMENT, "MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with failing_server(monkeypatch, hangs=hangs) as requests:
        assert main.main(command) == 2
    error = capsys.readouterr().err
    assert len(requests) == 1, "the request was repeated"
    assert error.count("\n") == 1 and "http://***@127.0.0.1" in error and "s3cret" not in error


def test_a_server_that_fails_after_the_first_answer_is_one_line(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    with Tracker(small(), root) as tracker:
        tracker.log_study(to_json(comparison_of(small())))

    def fail(*_: object, **__: object) -> None:
        raise MlflowException("API request failed: too many 500 error responses")

    monkeypatch.setattr(MlflowClient, "search_runs", fail)
    with pytest.raises(UserError, match="too many 500 error responses"):
        load_runs("small", root)


def test_requests_of_mlflow_end_soon_unless_the_user_says_otherwise(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in HTTP_VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    connect(root, create=True)
    assert [os.environ[name] for name in HTTP_VARIABLES] == ["0", "20"]
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "33")
    connect(root)
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "33"
