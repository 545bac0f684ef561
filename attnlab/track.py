"""Runs into MLflow and out of it again. The only module that imports mlflow.

One flat MLflow run for each run of a study. At most one of them is active for each fingerprint: a new attempt replaces
the one before, which MLflow keeps among its deleted runs. A run counts as finished when MLflow says FINISHED, which is
written last.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sqlite3
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab import record
from attnlab.errors import UserError, nearest
from attnlab.view import VIEW_TAG, Server, ui_url, view_state

if TYPE_CHECKING:
    import pandas
    from mlflow import MlflowClient
    from mlflow.entities import Experiment
    from mlflow.entities import Run as Record

    from attnlab.plan import Cell, Plan, Run

STATUS = {"failed": "FAILED", "interrupted": "KILLED", "refused": "KILLED"}  # the other states are results: FINISHED
FLUSH_POINTS, FLUSH_SECONDS, BATCH = 400, 2.0, 1_000


def runs_folder(root: str | Path | None = None) -> Path:
    """Where runs are kept: ``root``, else ``ATTNLAB_RUNS``, else ``runs`` in the working directory."""
    return Path(root or os.environ.get("ATTNLAB_RUNS") or "runs").resolve()


def tracking_uri(root: Path) -> str:
    """``MLFLOW_TRACKING_URI`` where it is set, else the sqlite file under ``root``. May hold a password."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root / 'mlflow.db'}"


def connect(root: Path, *, create: bool = False) -> MlflowClient:
    """A client of its own: the caller's global MLflow settings stay as they are.

    Raises:
        UserError: nothing has been run here (and ``create`` is off), or the server cannot be reached.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when mlflow is imported
    uri, database = tracking_uri(root), root / "mlflow.db"
    local = uri == f"sqlite:///{database}"
    if local and not create and not database.exists():
        raise UserError(f"no runs in {root} yet: expected its mlflow.db (ATTNLAB_RUNS names another folder)")
    from mlflow import MlflowClient

    for name in ("alembic", "mlflow.store.db.utils"):  # a new database tells of each of its 50 migrations
        logging.getLogger(name).setLevel(logging.WARNING)
    root.mkdir(parents=True, exist_ok=True)
    try:
        client = MlflowClient(tracking_uri=uri)
        client.search_experiments(max_results=1)
    except Exception as error:  # whatever the store's driver raises; its text may quote the address
        raise UserError(f"cannot use the MLflow store {record.redact(uri)}: {record.redact(str(error))}") from None
    if local:
        with sqlite3.connect(database) as connection:
            connection.execute("PRAGMA journal_mode=WAL")  # readers (the UI) and the writer do not wait for each other
    return client


@dataclass
class _Buffer:
    points: list[tuple[str, float, int, int]] = field(default_factory=list)  # name, value, milliseconds, step
    flushed: float = field(default_factory=time.monotonic)


class Tracker:
    """The parent's pen: everything that a study writes into MLflow.

    Args:
        plan: the study; its name is the experiment's.
        root: the folder of runs.
    """

    def __init__(self, plan: Plan, root: Path) -> None:
        self._plan, self._root = plan, root
        self._client = connect(root, create=True)
        self._owner = record.owner(root)
        self._buffers: dict[str, _Buffer] = {}
        self._active: dict[str, Record] = {}
        self._experiment = self._open(plan.study.study)

    def _open(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            local = not tracking_uri(self._root).startswith("http")  # a server decides where its artifacts go
            folder = (self._root / "artifacts" / name).as_uri() if local else None
            return self._client.create_experiment(name, artifact_location=folder)
        if found.lifecycle_stage == "deleted":
            raise UserError(f"the experiment {name!r} was deleted in MLflow: restore it there, or rename the study")
        return found.experiment_id

    def describe(self) -> None:
        """Write the study's note and the preset view of the UI."""
        tags = {"mlflow.note.content": record.study_note(self._plan), VIEW_TAG: view_state(self._plan)}
        for key, value in tags.items():
            self._client.set_experiment_tag(self._experiment, key, value)

    def sweep(self) -> dict[str, Record]:
        """Put the records of earlier processes in order; return the finished ones by fingerprint.

        A run that is still RUNNING although its parent is gone becomes ``interrupted``; of two with one fingerprint
        the finished or else the later one stays; ``attnlab.current`` says whether the study still holds a run.
        """
        for found in self._search():
            data = found.data.tags
            mine = data.get("attnlab.owner") == self._owner
            if found.info.status == "RUNNING" and mine:
                self.finish(found.info.run_id, "interrupted", reason="its parent process ended")
                found = self._client.get_run(found.info.run_id)
            self._keep_one(found)
        planned = {run.fingerprint for run in self._plan.runs}
        elsewhere = record.names(self._plan) - {run.name for run in self._plan.runs}  # left out by `only`
        for fingerprint, found in self._active.items():
            still = fingerprint in planned or found.info.run_name in elsewhere
            self._mark(found, "yes" if still else "no")
        return {key: found for key, found in self._active.items() if found.info.status == "FINISHED"}

    def _keep_one(self, found: Record) -> None:
        fingerprint = found.data.tags.get("attnlab.fingerprint", found.info.run_id)
        other = self._active.get(fingerprint)
        if other is not None:
            loser = found if other.info.status == "FINISHED" else other
            self._client.delete_run(loser.info.run_id)
            found = other if loser is found else found
        self._active[fingerprint] = found

    def _mark(self, found: Record, current: str) -> None:
        if found.data.tags.get("attnlab.current") != current:
            self._client.set_tag(found.info.run_id, "attnlab.current", current)

    def _search(self) -> list[Record]:
        return _pages(self._client, self._experiment, order=["attributes.start_time ASC"])

    def start(self, run: Run) -> str:
        """Open the record of a run, in place of an earlier attempt's; return MLflow's id of it."""
        return self._create(run, name=run.name, key=run.fingerprint, state="running")

    def _create(self, run: Run, *, name: str, key: str, state: str) -> str:
        tags = record.tags(run, plan=self._plan)
        tags |= {"attnlab.fingerprint": key, "attnlab.state": state, "attnlab.current": "yes"}
        tags |= {"attnlab.owner": self._owner, "attnlab.attempt": "1"}
        earlier = self._active.get(key)
        if earlier is not None:
            before = earlier.data.tags
            tags["attnlab.attempt"] = str(1 + int(before.get("attnlab.attempt", 0)))
            tags["attnlab.earlier"] = f"{before.get('attnlab.state')}: {before.get('attnlab.reason', '')}"[:500]
        created = self._client.create_run(self._experiment, run_name=name, tags=tags)
        run_id = created.info.run_id
        if earlier is not None:
            self._client.delete_run(earlier.info.run_id)
        from mlflow.entities import Param

        self._client.log_batch(run_id, params=[Param(key, value) for key, value in record.params(run).items()])
        self._attach(run_id, run)
        self._active[key] = created
        return run_id

    def _attach(self, run_id: str, run: Run) -> None:
        with tempfile.TemporaryDirectory() as folder:
            text = run.config.to_json()
            (Path(folder) / "config.json").write_text(text)
            (Path(folder) / "config.yaml").write_text(record.as_yaml(json.loads(text)))
            (Path(folder) / "study.yaml").write_text(record.study_text(self._plan))
            self._client.log_artifacts(run_id, folder)

    def refuse(self, run: Run, cell: Cell) -> str:
        """Record a refused cell: one run without a seed in its name, with the reason; once."""
        key, reason = f"refused-{run.fingerprint}", str(cell.refusal)
        known = self._active.get(key)
        if known is not None and known.data.tags.get("attnlab.reason") == reason:
            self._mark(known, "yes")
            return known.info.run_id
        run_id = self._create(run, name=cell.name, key=key, state="refused")
        self.finish(run_id, "refused", reason=reason, note=record.note(run, plan=self._plan, reason=reason))
        return run_id

    def log(self, run_id: str, step: int, metrics: dict[str, float]) -> None:
        """Add points of curves; they are written in batches."""
        buffer = self._buffers.setdefault(run_id, _Buffer())
        stamp = int(1_000 * time.time())
        buffer.points += [(name, value, stamp, step) for name, value in metrics.items()]
        if len(buffer.points) >= FLUSH_POINTS or time.monotonic() - buffer.flushed >= FLUSH_SECONDS:
            self.flush(run_id)

    def flush(self, run_id: str) -> None:
        """Write what has been logged so far."""
        from mlflow.entities import Metric

        buffer = self._buffers.get(run_id, _Buffer())
        while buffer.points:
            batch = [Metric(*point) for point in buffer.points[:BATCH]]
            self._client.log_batch(run_id, metrics=batch)
            del buffer.points[:BATCH]
        buffer.flushed = time.monotonic()

    def tag(self, run_id: str, key: str, value: str) -> None:
        """Set one tag of a run."""
        self._client.set_tag(run_id, key, value)

    def finish(
        self, run_id: str, state: str, *, summary: dict[str, float] | None = None, reason: str = "", note: str = ""
    ) -> None:
        """Close a record. MLflow's status comes last: FINISHED means that everything else is there."""
        from mlflow.entities import Metric, RunTag

        self.flush(run_id)
        self._buffers.pop(run_id, None)
        now = int(1_000 * time.time())
        metrics = [Metric(k, v, now, 0) for k, v in (summary or {}).items() if math.isfinite(v)]
        tags = {"attnlab.state": state, "attnlab.reason": reason[:4_000], "mlflow.note.content": note}
        self._client.log_batch(run_id, metrics=metrics, tags=[RunTag(k, v) for k, v in tags.items() if v])
        self._client.set_terminated(run_id, STATUS.get(state, "FINISHED"))
        for key, found in self._active.items():
            if found.info.run_id == run_id:
                self._active[key] = self._client.get_run(run_id)
                break

    def artifact(self, run_id: str, path: Path) -> None:
        """Attach a file to a run."""
        if path.is_file():
            self._client.log_artifact(run_id, str(path))


def _pages(client: MlflowClient, experiment: str, *, order: list[str]) -> list[Record]:
    found, token = [], None
    while True:
        page = client.search_runs([experiment], max_results=5_000, order_by=order, page_token=token)
        found += page
        token = page.token
        if not token:
            return found


def _experiment(client: MlflowClient, study: str) -> Experiment:
    found = client.get_experiment_by_name(study)
    if found is None:
        known = [each.name for each in client.search_experiments() if each.name != "Default"]
        raise UserError(f"no study {study!r}{nearest(study, known)}; there are: {', '.join(known) or 'none'}")
    return found


def load_runs(study: str, root: str | Path | None = None, *, every: bool = False) -> pandas.DataFrame:
    """The runs of a study as a table, one row a run, in the order they were started.

    Columns: ``run_id name cell study state reason seed fingerprint attempt``, each axis, each field of the
    configuration (dotted), each summary metric, ``started`` (UTC) and ``seconds``, ``device versions commit folder``.

    Args:
        every: also the runs that the study's last plan no longer holds (an edited YAML, another ``--set``).

    Raises:
        UserError: no such study, or no runs at all.
    """
    import pandas

    folder = runs_folder(root)
    client = connect(folder)
    found = _pages(client, _experiment(client, study).experiment_id, order=["attributes.start_time ASC"])
    rows = [_row(each, folder) for each in found if every or each.data.tags.get("attnlab.current") != "no"]
    return pandas.DataFrame(rows)


def _row(found: Record, root: Path) -> dict[str, Any]:
    tags, info = found.data.tags, found.info
    tag = {key.removeprefix("attnlab."): value for key, value in tags.items() if key.startswith("attnlab.")}
    ended = (info.end_time or int(1_000 * time.time())) / 1_000
    import pandas

    row = {"run_id": info.run_id, "name": info.run_name, "cell": tag.get("cell"), "study": tag.get("study")}
    row |= {"state": tag.get("state"), "reason": tag.get("reason", ""), "seed": int(tag["seed"])}
    row |= {"fingerprint": tag["fingerprint"], "attempt": int(tag.get("attempt", 1))}
    row |= {**record.flat(json.loads(tag["config"])), **json.loads(tag["axes"])}
    row |= {name: value for name, value in found.data.metrics.items() if "/" not in name}
    row |= {"started": pandas.to_datetime(info.start_time, unit="ms", utc=True)}
    row |= {"seconds": ended - info.start_time / 1_000, "folder": str(root / tag.get("folder", ""))}
    row |= {key: tag.get(key, "") for key in ("device", "versions", "commit")}
    return row


def load_curves(study: str, root: str | Path | None = None) -> pandas.DataFrame:
    """Every point of every curve of a study's current runs: ``run_id name metric step value``."""
    import pandas

    folder = runs_folder(root)
    client = connect(folder)
    found = _pages(client, _experiment(client, study).experiment_id, order=["attributes.start_time ASC"])
    points = [
        {"run_id": each.info.run_id, "name": each.info.run_name, "metric": key, "step": p.step, "value": p.value}
        for each in found
        if each.data.tags.get("attnlab.current") != "no"
        for key in sorted(each.data.metrics)
        if "/" in key
        for p in client.get_metric_history(each.info.run_id, key)
    ]
    return pandas.DataFrame(points, columns=["run_id", "name", "metric", "step", "value"])


def ui(root: str | Path | None = None, *, port: int = 5000, host: str = "127.0.0.1", study: str | None = None) -> None:
    """Serve the stock MLflow UI until Ctrl-C and print its addresses, one for each study.

    Where ``MLFLOW_TRACKING_URI`` names a server, only its addresses are printed: it has a UI already.
    """
    folder = runs_folder(root)
    uri = tracking_uri(folder)
    if uri.startswith("http"):
        for line in _addresses(folder, record.redact(uri), study):
            print(line)
        return
    lines = _addresses(folder, f"http://{host}:{port}", study)
    server = Server(uri, root=folder, port=port, host=host)
    try:
        server.ready()
        print("\n".join([*lines, "Ctrl-C ends it."]), flush=True)
        server.wait()
    except KeyboardInterrupt:
        print()
    finally:
        server.close()


def _addresses(root: Path, base: str, study: str | None) -> list[str]:
    client = connect(root)
    found = [_experiment(client, study)] if study else [e for e in client.search_experiments() if e.name != "Default"]
    return [f"{each.name}: {ui_url(each.experiment_id, base)}" for each in found] or [ui_url(None, base)]
