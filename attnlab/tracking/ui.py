"""The MLflow UI: the server, and a preset view of a study with its axes, metrics and charts.

The view is stored in an experiment tag, in the format that MLflow's "share" button writes. That format is undocumented,
so nothing else depends on it.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util import supervise
from attnlab._util.cost_metrics import PROGRAM_COSTS, Place, shown_in
from attnlab._util.packages import require
from attnlab._util.process import as_interrupts
from attnlab._util.redact import LOGIN
from attnlab.errors import UserError
from attnlab.tracking.client import VIEW_KEY, connect, runs_folder, search_studies, tracking_uri
from attnlab.tracking.record import tag, with_tag
from attnlab.tracking.runs import find_experiment
from attnlab.tracking.tags import param_names

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan


def view_state(plan: Plan) -> str:
    """Return the preset view of a study as MLflow stores it: deflated JSON in base64 (a tag holds 5,000 bytes)."""
    metrics, metric = plan.metrics, plan.metric
    swept = [plan.study.sweep.path] if plan.study.sweep else []
    names = param_names([*plan.cells[0].axes, *swept])
    params = [*names.values(), *(["phase"] if plan.searched else []), "seed"]
    columns = [f"params.`{name}`" for name in params]
    columns += [f"metrics.`{name}`" for name in (*metrics, *_costs(plan, "mlflow columns"))] + [f"tags.`{tag('state')}`"]
    curve, sections, charts = "valid" if plan.study.command is None else "curve", [], []
    for title, chart, shown in (
        ("Result", _bar, [name for metric in metrics for name in (metric, f"valid_{metric}")]),
        ("Learning curves", _line, [*(f"{curve}/{metric}" for metric in metrics), "train/loss", "train/tokens_per_s"]),
        ("Cost", _bar, _costs(plan, "mlflow charts")),
    ):
        key = _id(plan, title)
        sections.append(
            {"uuid": key, "name": title, "display": True, "isReordered": True, "deleted": False, "isGenerated": False}
        )
        charts += [chart(plan, key, name) for name in shown]
    state = {
        "searchFilter": with_tag("current", "yes"),
        "orderByKey": f"metrics.`{metric}`",
        "orderByAsc": plan.direction == "min",
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": columns,
        "columnOrder": columns,  # axes, then metrics; MLflow puts its fixed columns after them
        "runsHiddenMode": "SHOW_ALL",
        "compareRunCharts": charts,
        "compareRunSections": sections,
        "isAccordionReordered": True,
        "hideEmptyCharts": True,
        "autoRefreshEnabled": True,
        "useGroupedValuesInCharts": True,
        "groupBy": {"aggregateFunction": "average", "groupByKeys": [{"mode": "tag", "groupByData": tag("cell")}]},
    }
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode(), 9)).decode()
    return f"deflate;{packed}"


def _costs(plan: Plan, place: Place) -> list[str]:
    """Return the names of the costs that attnlab records of the runs of a study."""
    if plan.study.command is None:
        return [cost.name for cost in shown_in(place) if cost.name not in PROGRAM_COSTS[:1]]
    return [cost.name for cost in shown_in(place) if cost.name in PROGRAM_COSTS]


def _id(plan: Plan, name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{plan.study.study}/{name}"))  # stable when the view is rewritten


def _bar(plan: Plan, section: str, metric: str) -> dict[str, Any]:
    shared = {"uuid": _id(plan, f"{section}/{metric}"), "metricSectionId": section, "deleted": False}
    return {**shared, "type": "BAR", "isGenerated": False, "runsCountToCompare": 100, "metricKey": metric}


def _line(plan: Plan, section: str, metric: str) -> dict[str, Any]:
    axes = {"xAxisKey": "step", "yAxisKey": "metric", "scaleType": "linear", "xAxisScaleType": "linear"}
    options = {"lineSmoothness": 0, "useGlobalXaxisKey": True, "useGlobalLineSmoothing": True}
    return {**_bar(plan, section, metric), "type": "LINE", "selectedMetricKeys": [metric], **axes, **options}


def ui_url(experiment: str | None, base: str) -> str:
    """Return the URL of an experiment's preset view, or of the list of experiments if ``experiment`` is None."""
    if experiment is None:
        return f"{base}/#/experiments?workflowType=machine_learning"
    return f"{base}/#/experiments/{experiment}/runs?viewStateShareKey={VIEW_KEY}&workflowType=machine_learning"


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
    return urls or [ui_url(None, base)]
