"""Tests of an MLflow server that hangs, or dies and restarts, during a study: nothing is lost, doubled or slowed down."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlab._util.run_state import RunState
from attnlab.errors import UserError
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.run import run
from attnlab.tracking import delivery
from attnlab.tracking.client import connect, tracking_uri
from attnlab.tracking.runs import load_runs
from attnlab.tracking.tracker import Tracker
from attnlab.tracking.ui import Server
from tests.support.processes import free_port
from tests.support.server_fakes import POINTS
from tests.tracking.test_delivery import points, small

QUIET = ProgressDisplay(quiet=True)


class UnreliableServer:
    """An MLflow server on this machine with its store in ``root`` that can hang, die and restart."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = tracking_uri(root)
        self.port = free_port()
        self.start()

    def start(self) -> None:
        self.process = Server(self.store, root=self.root, port=self.port)
        self.process.ready(600)

    def hang(self) -> None:
        os.killpg(self.process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)

    def die(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def server(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnreliableServer]:
    unreliable = UnreliableServer(Path(shutil.copytree(empty_store, tmp_path_factory.mktemp("server") / "runs")))
    yield unreliable
    unreliable.process.close()


@pytest.fixture(autouse=True)
def short_timeouts(monkeypatch: pytest.MonkeyPatch, server: UnreliableServer) -> None:
    monkeypatch.setattr(delivery, "MAX_BACKOFF", 0.5)
    monkeypatch.setattr(delivery, "NOTICE_AFTER", 1.5)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:s3cret@127.0.0.1:{server.port}")


def study(name: str, **changes: Any) -> dict[str, Any]:
    base = {"task": {"name": "pydocs", "length": 16}, "model": {"dim": 8, "depth": 1, "heads": 2}}
    base |= {"train": {"steps": 20}, "machine": {"device": "cpu"}}
    return {"study": name, "base": base, "grid": {"variant": ["dense"]}, "seeds": [0, 1], **changes}


def left_running(root: Path) -> list[str]:
    client = connect(root)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return [record.info.run_id for record in client.search_runs(experiments, "attributes.status = 'RUNNING'")]


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("failure", ["hangs", "dies"])
def test_a_server_that_goes_away_and_comes_back(
    server: UnreliableServer, tmp_path: Path, failure: str, seconds: float, log: pytest.LogCaptureFixture
) -> None:
    """The server does not respond from the first step to the last of two runs."""
    plan = small(failure)
    tracker = Tracker(plan, tmp_path)
    runs = [tracker.start(run) for run in plan.runs]
    tracker.delivery.call(lambda: None)
    server.hang() if failure == "hangs" else server.die()
    back = threading.Timer(seconds, server.wake if failure == "hangs" else server.start)
    for step in range(1_500):  # if logging waited for the server, it would wait forever: the server has not restarted yet
        for run_id in runs:
            tracker.log_metrics(run_id, step, {"train/loss": 1 / (1 + step), "train/lr": 0.1})
        time.sleep(seconds / 3_000)
    back.start()
    tracker.log_tag(runs[0], "device", "a device")
    for run_id in runs:
        tracker.finish(run_id, RunState.COMPLETED, summary={"bits_per_byte": 2.5})
    third = tracker.start(plan.runs[0])
    tracker.finish(third, RunState.FAILED, reason="some reason")
    tracker.close()
    back.join()
    for run_id in runs:
        for key in ("train/loss", "train/lr"):
            assert [step for step, _ in points(server.root, run_id, key)] == list(range(1_500))
    reason = {"dies": "[Errno 111] Connection refused", "hangs": "Read timed out"}[failure]
    store = f"http://***@127.0.0.1:{server.port}"
    assert store in log.messages[0] and "does not respond" in log.messages[0] and reason in log.messages[0]
    assert store in log.messages[-1] and "responds again" in log.messages[-1]
    runs_table = load_runs(failure, tmp_path)
    assert sorted(runs_table["state"]) == ["completed", "failed"] and set(runs_table["run_id"]) == {runs[1], third}
    assert left_running(tmp_path) == []


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Create the files that ``while_it_hangs`` waits for: when both runs have records, and before one is closed."""
    start, finish = Tracker.start, Tracker.finish
    recorded: list[Any] = []

    def record(self: Tracker, *args: Any, **kwargs: Any) -> Any:
        recorded.append(start(self, *args, **kwargs))
        if len(recorded) == 2:
            (tmp_path / "work" / "ready").touch()
        return recorded[-1]

    def announce(self: Tracker, *args: Any, **kwargs: Any) -> Any:
        (tmp_path / "work" / "waiting").touch()
        return finish(self, *args, **kwargs)

    monkeypatch.setattr(Tracker, "start", record)
    monkeypatch.setattr(Tracker, "finish", announce)


@pytest.mark.usefixtures("announced")
def test_after_a_timeout_the_study_ends_and_can_be_resumed(
    server: UnreliableServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNLAB_SERVER", str(server.process.pid))
    monkeypatch.setenv("ATTNLAB_TRACKING_PATIENCE", "2")
    made = study("patient")
    try:
        with pytest.raises(UserError) as caught:
            run(
                made,
                root=tmp_path,
                workers=2,
                display=QUIET,
                train="tests.support.server_fakes:while_it_hangs",
            )
    finally:
        server.wake()
    line = str(caught.value)
    assert isinstance(caught.value, delivery.TrackingTimeout)
    assert f"http://***@127.0.0.1:{server.port} did not respond" in line and "\n" not in line
    monkeypatch.delenv("ATTNLAB_TRACKING_PATIENCE")
    result = run(made, root=tmp_path, display=QUIET, train="tests.support.study_fakes:good")
    assert result.ok and not any(row.reused for row in result.rows)
    assert list(load_runs("patient", tmp_path)["state"]) == ["completed"] * 2
    assert left_running(tmp_path) == []


@pytest.mark.usefixtures("announced")
def test_training_continues_while_the_parent_waits(
    server: UnreliableServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server hangs until the second run has trained.

    If the second run were held up, the study would end with a timeout.
    """
    monkeypatch.setenv("ATTNLAB_SERVER", str(server.process.pid))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")  # a server that has just started may take seconds to answer
    trained, over = tmp_path / "work" / "trained", threading.Event()

    def wake() -> None:
        while not trained.exists() and not over.wait(0.05):
            pass
        server.wake()

    watch = threading.Thread(target=wake)
    watch.start()
    try:
        result = run(
            study("slow"),
            root=tmp_path,
            workers=2,
            display=QUIET,
            train="tests.support.server_fakes:while_it_hangs",
        )
    finally:
        over.set()
        watch.join()
    assert result.ok and [row.state for row in result.rows] == ["completed"] * 2
    assert [step for step, _ in points(server.root, result.rows[1].run_id)] == list(range(POINTS))
