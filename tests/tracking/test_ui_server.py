"""Tests of the server of `attnlab ui`: it answers, it is a store, and it ends with the command, however the command ends."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from attnlab._util.run_state import RunState
from attnlab.errors import UserError
from attnlab.tracking.client import tracking_uri
from attnlab.tracking.runs import load_runs
from attnlab.tracking.tracker import Tracker
from attnlab.tracking.ui import Server, serve
from tests.support.processes import free_port, listening
from tests.tracking.test_delivery import small


def wait_until_listening(port: int, *, expected: bool, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while bool(listening(port)) != expected:
        assert time.monotonic() < until, f"expected {'a' if expected else 'no'} server on port {port}"
        time.sleep(0.1)


@contextmanager
def served(root: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run `attnlab ui` on a folder of runs, and yield its process and its port as soon as the server listens."""
    port = free_port()
    command = [sys.executable, "-m", "attnlab", "ui", "--port", str(port)]
    environment = {**os.environ, "ATTNLAB_RUNS": str(root)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            wait_until_listening(port, expected=True)
            yield process, port
        finally:
            process.kill()


@pytest.mark.parametrize("name", ["SIGKILL", pytest.param("SIGHUP", marks=pytest.mark.exhaustive)])
def test_the_server_ends_with_the_command(root: Path, name: str) -> None:
    for module in ("mlflow", "select", "uvicorn"):  # a stranger's: the server runs in this folder
        (root / f"{module}.py").write_text(f"open({str(root / 'ran')!r}, 'w')\n")
    with served(root) as (process, port):
        process.send_signal(signal.Signals[name])
        process.wait()
        wait_until_listening(port, expected=False)
    assert not (root / "ran").exists()


def test_the_ui_answers_is_a_store_too_and_ends_with_the_command(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with served(root) as (process, port):
        assert listening(port) == {"127.0.0.1"}
        assert b"MLflow" in _page(f"http://127.0.0.1:{port}")
        with pytest.raises(UserError, match=f"127.0.0.1:{port}.*--port"):
            Server(tracking_uri(root), root=root, port=port)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:s3cret@127.0.0.1:{port}")
        planned = small()
        tracker = Tracker(planned, tmp_path / "far")
        run_id = tracker.start(planned.runs[0])
        tracker.log_metrics(run_id, 3, {"train/loss": 0.5})
        tracker.finish(run_id, RunState.COMPLETED, summary={"bits_per_byte": 2.5, "lost": float("nan")})
        row = load_runs("small", tmp_path / "far").iloc[0]
        assert (row["state"], row["bits_per_byte"]) == ("completed", 2.5) and "lost" not in row
        serve(tmp_path / "far")
        output = "".join(capfd.readouterr())
        assert f"small: http://127.0.0.1:{port}/#/experiments/" in output and "s3cret" not in output
        process.terminate()
        process.wait()
        wait_until_listening(port, expected=False)


def _page(address: str, seconds: float = 120) -> bytes:
    """Return a page, as soon as the server answers."""
    until = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(address, timeout=10) as page:
                return page.read()
        except (urllib.error.URLError, OSError):
            assert time.monotonic() < until, f"no answer from {address}"
            time.sleep(0.2)
