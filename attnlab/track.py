"""MLflow: the connection, what is read back from it, and its UI. The only module that imports mlflow.

What a study writes is in ``tracker``.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.errors import UserError, nearest
from attnlab.redact import redact, without_login
from attnlab.signals import as_interrupts
from attnlab.tracking import record
from attnlab.tracking.view import Server, ui_url
from attnlab.trials.storage import is_postgresql, one_at_a_time, storage_url

if TYPE_CHECKING:
    import pandas
    from mlflow import MlflowClient
    from mlflow.entities import Experiment
    from mlflow.entities import Run as Record

BATCH = 1_000  # metrics in one call
LOOKS = "attnlab.looks"  # tag of an experiment
Point = tuple[str, float, int, int]  # name, value, milliseconds since the epoch, step


def runs_folder(root: str | Path | None = None) -> Path:
    """Where runs are kept: ``root``, else ``ATTNLAB_RUNS``, else ``runs`` in the working directory."""
    return Path(root or os.environ.get("ATTNLAB_RUNS") or "runs").resolve()


def tracking_uri(root: Path) -> str:
    """``MLFLOW_TRACKING_URI`` where it is set, else the sqlite file under ``root``. May hold a password."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root / 'mlflow.db'}"
    return storage_url(uri, where="MLFLOW_TRACKING_URI") if is_postgresql(uri) else uri


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
        with one_at_a_time(uri):  # the first to connect creates the tables
            client = MlflowClient(tracking_uri=uri)
            client.search_experiments(max_results=1)
    except Exception as error:  # whatever the store's driver raises; its text may quote the address
        why = redact(str(error), address=uri)
        raise UserError(f"cannot use the MLflow store {redact(uri)}: {why}") from None
    if local:
        with sqlite3.connect(database) as connection:
            connection.execute("PRAGMA journal_mode=WAL")  # readers (the UI) and the writer do not wait for each other
    return client


def write(
    client: MlflowClient,
    run_id: str,
    *,
    points: list[Point] | None = None,
    params: dict[str, str] | None = None,
    tags: dict[str, str] | None = None,
) -> None:
    """Add to a run, in as few calls as MLflow allows."""
    from mlflow.entities import Metric, Param, RunTag

    metrics = [Metric(*point) for point in points or []]
    while len(metrics) > BATCH:
        client.log_batch(run_id, metrics=metrics[:BATCH])
        metrics = metrics[BATCH:]
    all_params = [Param(name, value) for name, value in (params or {}).items()]
    all_tags = [RunTag(name, value) for name, value in (tags or {}).items()]
    if metrics or all_params or all_tags:
        client.log_batch(run_id, metrics=metrics, params=all_params, tags=all_tags)


def terminate(client: MlflowClient, run_id: str, status: str) -> None:
    """Set a run's final status. MLflow would print the run's address, with the password that may stand in it."""
    name = "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"
    before = os.environ.get(name)
    os.environ[name] = "true"
    try:
        client.set_terminated(run_id, status)
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def search(client: MlflowClient, experiment: str) -> list[Record]:
    """Every active run of an experiment, in the order they were started."""
    found, token = [], None
    order = ["attributes.start_time ASC"]
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

    Columns: ``run_id name cell study state reason seed fingerprint attempt``; ``phase`` (``grid``, or ``search`` and
    ``confirm`` of a searched study), ``trial`` (None outside a search) and ``params`` (what the search chose: dotted
    path -> value); each axis, each field of the configuration (dotted), each summary metric, ``started`` (UTC),
    ``seconds device versions commit folder``.

    Args:
        every: also the runs that the study's last plan no longer holds (an edited YAML, another ``--set``).

    Raises:
        UserError: no such study, or no runs at all.
    """
    import pandas

    folder = runs_folder(root)
    client = connect(folder)
    found = search(client, _experiment(client, study).experiment_id)
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
    row |= {"phase": tag.get("phase", "grid"), "trial": int(tag["trial"]) if "trial" in tag else None}
    row |= {"params": json.loads(tag.get("params", "{}"))}
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
    found = search(client, _experiment(client, study).experiment_id)
    points = [
        {
            "run_id": each.info.run_id,
            "name": each.info.run_name,
            "metric": key,
            "step": p.step,
            "value": p.value,
        }
        for each in found
        if each.data.tags.get("attnlab.current") != "no"
        for key in sorted(each.data.metrics)
        if "/" in key
        for p in client.get_metric_history(each.info.run_id, key)
    ]
    return pandas.DataFrame(points, columns=["run_id", "name", "metric", "step", "value"])


def looks(study: str, root: str | Path | None = None) -> tuple[int, int] | None:
    """The first and the last number of seeds at which the verdicts of a study may be looked at; None: once, at the end."""
    client = connect(runs_folder(root))
    text = _experiment(client, study).tags.get(LOOKS)
    return tuple(json.loads(text)) if text else None


def record_looks(study: str, first: int, last: int, root: str | Path | None = None) -> tuple[int, int]:
    """Write down that there are to be looks from ``first`` to ``last`` seeds, before the first of them is taken.

    What has been written down stays: a later plan can only widen it. Returns what holds then.
    """
    before = looks(study, root) or (first, last)
    found = min(first, before[0]), max(last, before[1])
    client = connect(runs_folder(root))
    client.set_experiment_tag(_experiment(client, study).experiment_id, LOOKS, json.dumps(found))
    return found


def ui(root: str | Path | None = None, *, port: int = 5000, host: str = "127.0.0.1", study: str | None = None) -> None:
    """Serve the stock MLflow UI until Ctrl-C and print its addresses, one for each study.

    Where ``MLFLOW_TRACKING_URI`` names a server, only its addresses are printed: it has a UI already.
    """
    folder = runs_folder(root)
    uri = tracking_uri(folder)
    if uri.startswith("http"):
        for line in _addresses(folder, without_login(uri).rstrip("/"), study):
            print(line)
        return
    lines = _addresses(folder, f"http://{host}:{port}", study)
    server = Server(uri, root=folder, port=port, host=host)
    try:
        with as_interrupts():
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
