"""The server of the MLflow UI, and the addresses of the studies' preset views."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from attnlab._util import supervise
from attnlab._util.packages import require
from attnlab._util.process import as_interrupts
from attnlab._util.redact import LOGIN
from attnlab.errors import UserError
from attnlab.tracking.client import connect, runs_folder, search_studies, tracking_uri
from attnlab.tracking.record import RUNS_VIEW_KEY, VIEW_KEY
from attnlab.tracking.runs import find_experiment


def ui_url(experiment: str | None, base: str, key: str = VIEW_KEY) -> str:
    """Return the URL of a preset view of an experiment, or of the list of experiments if ``experiment`` is None."""
    if experiment is None:
        return f"{base}/#/experiments?workflowType=machine_learning"
    return f"{base}/#/experiments/{experiment}/runs?viewStateShareKey={key}&workflowType=machine_learning"


def expect_free(host: str, port: int) -> None:
    """Raise ``UserError`` when another process listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore sockets that a server has just closed
        try:
            probe.bind((host, port))
        except OSError as error:
            message = f"cannot serve the UI at {host}:{port}: {error.strerror}; try another --port"
            raise UserError(message) from None


class Server:
    """``mlflow server`` as a child of this process. It ends with this process, even if this is killed (``supervise``).

    Args:
        uri: the store's URI. It is passed through the environment, because every user can read a command line.
        root: the runs folder, which holds the artifacts and the server's log, ``ui.log``.
        port: TCP port on ``host``.

    Raises:
        UserError: the port is in use.
    """

    def __init__(self, uri: str, *, root: Path, port: int, host: str = "127.0.0.1") -> None:
        expect_free(host, port)
        self.base = f"http://{host}:{port}"
        settings = {"MLFLOW_BACKEND_STORE_URI": uri, "MLFLOW_DEFAULT_ARTIFACT_ROOT": (root / "artifacts").as_uri()}
        settings |= {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        # The runs folder may come from somebody else: neither the server nor its children may import a module from there.
        # uvicorn always puts its working directory first on the import path, so the server runs in an empty one.
        self._empty = tempfile.TemporaryDirectory(prefix="attnlab-ui-")
        environment = {**os.environ, **settings, "PYTHONSAFEPATH": "1"}
        environment.pop("MLFLOW_TRACKING_URI", None)
        command = [sys.executable, "-P", supervise.__file__]
        command += [sys.executable, "-P", "-m", "mlflow", "server", "--host", host, "--port", str(port), "--workers", "1"]
        self._log = root / "ui.log"
        with self._log.open("wb") as log:
            options: dict[str, Any] = {
                "stdin": subprocess.PIPE,
                "stdout": log,
                "stderr": log,
            }  # the pipe closes with this process
            self._process = subprocess.Popen(command, env=environment, cwd=self._empty.name, start_new_session=True, **options)

    @property
    def pid(self) -> int:
        """Process ID; the process leads a separate process group."""
        return self._process.pid

    def ready(self, seconds: float = 60) -> None:
        """Wait until the server responds.

        Raises:
            UserError: the server exited or did not respond within ``seconds``.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.base}/health", timeout=2).close()
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
            else:
                return
        self.close()
        raise UserError(f"the MLflow UI did not start at {self.base}: see {self._log}, or try another --port")

    def wait(self) -> None:
        """Wait until the server exits."""
        self._process.wait()

    def close(self) -> None:
        """Stop the server and its children."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._empty.cleanup()
        try:
            self._process.wait(timeout=2 * supervise.GRACE_SECONDS)
        except subprocess.TimeoutExpired:  # the group is stopped
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def serve(root: str | Path | None = None, *, port: int = 5000, host: str = "127.0.0.1", study: str | None = None) -> None:
    """Serve the MLflow UI until Ctrl-C and print a URL for each study.

    If ``MLFLOW_TRACKING_URI`` is a server, only print the URLs, because the server has a UI.

    Args:
        root: the runs folder; see ``runs_folder``.
        study: print the URL of this study only.

    Raises:
        UserError: no runs, no such study, or the port is in use.
    """
    folder = runs_folder(root)
    uri = tracking_uri(folder)
    if uri.startswith("http"):
        for line in _study_urls(folder, LOGIN.sub("//", uri).rstrip("/"), study):
            print(line)
        return
    require("the MLflow UI", "flask")
    lines = _study_urls(folder, f"http://{host}:{port}", study)
    server = Server(uri, root=folder, port=port, host=host)
    try:
        with as_interrupts():
            server.ready()
            print("\n".join([*lines, "Press Ctrl-C to stop."]), flush=True)
            server.wait()
    except KeyboardInterrupt:
        print()
    finally:
        server.close()


def _study_urls(root: Path, base: str, study: str | None) -> list[str]:
    client = connect(root)
    experiments = [find_experiment(client, study)] if study else search_studies(client)
    urls = [f"{experiment.name}: {ui_url(experiment.experiment_id, base)}" for experiment in experiments]
    if study:
        urls.append(f"its runs: {ui_url(experiments[0].experiment_id, base, RUNS_VIEW_KEY)}")
    return urls or [ui_url(None, base)]
