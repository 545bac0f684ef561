"""An MLflow server that hangs, or dies and comes back, while a study runs: nothing lost, nothing doubled, nothing slowed."""

import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.study.execution.progress import Display
from attnlab.study.run import run
from attnlab.tracking import delivery
from attnlab.tracking.client import connect, tracking_uri
from attnlab.tracking.runs import load_runs
from attnlab.tracking.tracker import Tracker
from attnlab.tracking.ui import Server
from tests.support.server_fakes import POINTS
from tests.tracking.test_delivery import points, small


class Away:
    """A server on this machine whose store is in ``root``, and that goes away and comes back when told."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = tracking_uri(root)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.start()

    def start(self) -> None:
        self.server = Server(self.store, root=self.root, port=self.port)
        self.server.ready(600)

    def hang(self) -> None:
        os.killpg(self.server.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.killpg(self.server.pid, signal.SIGCONT)

    def die(self) -> None:
        os.killpg(self.server.pid, signal.SIGKILL)
        self.server.wait()


@pytest.fixture(scope="module")
def away(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Away]:
    made = Away(Path(shutil.copytree(empty_store, tmp_path_factory.mktemp("server") / "runs")))
    yield made
    made.server.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, away: Away) -> None:
    monkeypatch.setattr(delivery, "LONGEST_PAUSE", 0.5)
    monkeypatch.setattr(delivery, "QUIET", 1.5)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:s3cret@127.0.0.1:{away.port}")


def study(name: str, **changes: Any) -> dict[str, Any]:
    base = {"task": {"name": "pydocs", "length": 16}, "model": {"dim": 8, "depth": 1, "heads": 2}}
    base |= {"train": {"steps": 20}, "machine": {"device": "cpu"}}
    return {"study": name, "base": base, "grid": {"variant": ["dense"]}, "seeds": [0, 1], **changes}


def left_running(root: Path) -> list[str]:
    client = connect(root)
    everywhere = [each.experiment_id for each in client.search_experiments()]
    return [found.info.run_id for found in client.search_runs(everywhere, "attributes.status = 'RUNNING'")]


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", ["hangs", "dies"])
def test_a_server_that_goes_away_and_comes_back(
    away: Away, tmp_path: Path, how: str, seconds: float, log: pytest.LogCaptureFixture
) -> None:
    """Both ends of two runs and everything between them fall into the time in which nobody answers."""
    plan = small(how)
    pen = Tracker(plan, tmp_path)
    runs = [pen.start(each) for each in plan.runs]
    pen.delivery.call(lambda: None)
    away.hang() if how == "hangs" else away.die()
    back = threading.Timer(seconds, away.wake if how == "hangs" else away.start)
    for step in range(1_500):  # a log that waited for the server would wait for ever: nobody brings it back yet
        for run_id in runs:
            pen.log(run_id, step, {"train/loss": 1 / (1 + step), "train/lr": 0.1})
        time.sleep(seconds / 3_000)
    back.start()
    pen.tag(runs[0], "attnlab.device", "a device")
    for run_id in runs:
        pen.finish(run_id, "completed", summary={"bits_per_byte": 2.5})
    third = pen.start(plan.runs[0])
    pen.finish(third, "failed", reason="just so")
    pen.close()
    back.join()
    for run_id in runs:
        for key in ("train/loss", "train/lr"):
            assert [step for step, _ in points(away.root, run_id, key)] == list(range(1_500))
    why = {"dies": "[Errno 111] Connection refused", "hangs": "Read timed out"}[how]
    store = f"the MLflow store http://***@127.0.0.1:{away.port}"
    assert log.messages[0].startswith(f"{store} does not answer ({why})")
    assert log.messages[-1] == f"{store} answers again"
    found = load_runs(how, tmp_path)
    assert sorted(found["state"]) == ["completed", "failed"] and set(found["run_id"]) == {runs[1], third}
    assert left_running(tmp_path) == []


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make the file for which ``while_it_hangs`` waits, when the study is about to close a record."""
    finish = Tracker.finish

    def announce(self: Tracker, *given: Any, **more: Any) -> Any:
        (tmp_path / "work" / "waiting").touch()
        return finish(self, *given, **more)

    monkeypatch.setattr(Tracker, "finish", announce)


@pytest.mark.usefixtures("announced")
def test_training_goes_on_while_the_parent_waits(away: Away, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is away until the second run has trained, however long that takes on this machine.

    Were the second run held up, the study would end once the parent's patience is over.
    """
    monkeypatch.setenv("ATTNLAB_SERVER", str(away.server.pid))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")  # a server that has just started may take seconds to answer
    trained, over = tmp_path / "work" / "trained", threading.Event()

    def wake() -> None:
        while not trained.exists() and not over.wait(0.05):
            pass
        away.wake()

    watch = threading.Thread(target=wake)
    watch.start()
    try:
        result = run(
            study("slow"), root=tmp_path, workers=2, show=Display(quiet=True), train="tests.support.server_fakes:while_it_hangs"
        )
    finally:
        over.set()
        watch.join()
    assert result.ok and [row.state for row in result.rows] == ["completed"] * 2
    assert [step for step, _ in points(away.root, result.rows[1].run_id)] == list(range(POINTS))


@pytest.mark.usefixtures("announced")
def test_when_patience_is_over_the_study_ends_and_can_go_on(
    away: Away, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNLAB_SERVER", str(away.server.pid))
    monkeypatch.setenv("ATTNLAB_TRACKING_PATIENCE", "2")
    made = study("patient")
    try:
        with pytest.raises(UserError) as caught:
            run(made, root=tmp_path, workers=2, show=Display(quiet=True), train="tests.support.server_fakes:while_it_hangs")
    finally:
        away.wake()
    line = str(caught.value)
    assert line.startswith(f"expected an answer of the MLflow store http://***@127.0.0.1:{away.port}, got none: ")
    assert "\n" not in line
    result = run(made, root=tmp_path, show=Display(quiet=True), train="tests.support.study_fakes:good")
    assert result.ok and not any(row.earlier for row in result.rows)
    assert list(load_runs("patient", tmp_path)["state"]) == ["completed"] * 2
    assert left_running(tmp_path) == []
