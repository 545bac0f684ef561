"""MLflow: the connection, what is read back from it, and its UI. The only module that imports mlflow.

What a study writes is in ``tracker``.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab._util.database import is_postgresql, one_at_a_time, storage_url
from attnlab._util.files import describe_disk_error
from attnlab._util.lock import file_lock
from attnlab._util.redact import redact
from attnlab.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as Record

BATCH = 1_000  # metrics in one call
QUESTIONS = "attnlab.questions"  # likewise
REPORT = "report"  # the phase of the run that holds a study's report (tracking.page): no run of the study
Point = tuple[str, float, int, int]  # name, value, milliseconds since the epoch, step
WRITING = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}  # MLflow: 7, 120 s
NO_ANSWER = {408, 429, 500, 502, 503, 504}  # HTTP: what MLflow itself takes for temporary


def runs_folder(root: str | Path | None = None) -> Path:
    """Where runs are kept: ``root``, else ``ATTNLAB_RUNS``, else ``runs`` in the working directory.

    Raises:
        UserError: a path that would be another one in the addresses of sqlite's databases.
    """
    folder = Path(root or os.environ.get("ATTNLAB_RUNS") or "runs").resolve()
    if found := {"?", "%"} & set(str(folder)):
        raise UserError(f"expected a folder of runs without {min(found)!r} in its path, got {folder}")
    return folder


def tracking_uri(root: Path) -> str:
    """``MLFLOW_TRACKING_URI`` where it is set, else the sqlite file under ``root``. May hold a password."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root / 'mlflow.db'}"
    return storage_url(uri, where="MLFLOW_TRACKING_URI") if is_postgresql(uri) else uri


def connect(root: Path, *, create: bool = False) -> MlflowClient:
    """A client of its own: the caller's choice of store, experiment and run in MLflow stays as it is.

    Args:
        create: for a study, which writes: make the database where there is none, and leave it to ``delivery`` to try
            again (``WRITING``).

    Raises:
        UserError: nothing has been run here (and ``create`` is off), or the server cannot be reached.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when mlflow is imported
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # a run's address may hold a password
    uri, database = tracking_uri(root), root / "mlflow.db"
    missing = uri == f"sqlite:///{database}" and not database.exists()
    if missing and not create:
        raise UserError(f"no runs in {root} yet: expected its mlflow.db (ATTNLAB_RUNS names another folder)")
    from mlflow import MlflowClient

    logging.getLogger("alembic").setLevel(logging.WARNING)  # a new database tells of each of its 50 migrations
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it prints a traceback for a locked database
    for name, value in WRITING.items() if create else ():
        os.environ.setdefault(name, value)  # not set and restored around a call: calls are made by another thread
    root.mkdir(parents=True, exist_ok=True)
    try:
        if missing:
            _new_database(database)
        with one_at_a_time(uri):  # PostgreSQL: the first to connect creates the tables
            client = MlflowClient(tracking_uri=uri)
            client.search_experiments(max_results=1)
    except UserError:
        raise
    except Exception as error:  # whatever the store's driver raises; its text may quote the address
        raise UserError(f"cannot use the MLflow store {redact(uri)}: {one_line(error, address=uri)}") from None
    return client


def _new_database(path: Path) -> None:
    """Make an MLflow database, whole or not at all: beside its place, by one process, and moved there when it is ready.

    Several processes that make one at the same time corrupt it, and a process that is killed while it does leaves a half.
    WAL: readers (the UI) and the writer do not wait for each other.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    with file_lock(path.with_suffix(".lock"), activity=f"{path} is being created", timeout=120):
        if path.exists():
            return
        folder = path.with_suffix(".new")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        SqlAlchemyStore(f"sqlite:///{folder / path.name}", str(path.parent / "artifacts")).engine.dispose()
        with closing(sqlite3.connect(folder / path.name)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
        (folder / path.name).rename(path)
        folder.rmdir()


def absence(error: Exception) -> str | None:
    """Why a call got no answer (the store is away, hangs, is locked or overloaded); None: it was refused."""
    from mlflow.exceptions import MlflowException
    from requests import HTTPError, RequestException

    if describe_disk_error(error) is not None:  # MLflow takes a full disk for a temporary error
        absent = False
    elif isinstance(error, MlflowException):  # also what went wrong on the way to a server, as a 500
        lost = getattr(error.__cause__, "connection_invalidated", False)  # SQLAlchemy's word for it
        absent = lost or error.get_http_status_code() in NO_ANSWER
    elif isinstance(error, HTTPError):  # artifacts
        absent = error.response is None or error.response.status_code in NO_ANSWER
    else:
        absent = isinstance(error, RequestException)
    return one_line(error) if absent else None


def one_line(error: Exception, *, address: str = "") -> str:
    """What a store's error comes to, without the addresses, statements and hints around it; ``address`` as of ``redact``."""
    text = str(error)
    core = re.search(r"\[Errno -?\d+\] [\w ,.-]+|Read timed out|too many \d+ error responses|\([\w.]+Error\) [^\n]+", text)
    return redact(core[0] if core else text.strip().partition("\n")[0], address=address)[:300]


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


def search_runs(client: MlflowClient, experiment: str, where: str = "") -> list[Record]:
    """Every active run of a study's experiment (that fits MLflow's filter ``where``), in the order they were started.

    Its report (``tracking.page``) is no run of the study.
    """
    found, token = [], None
    order = ["attributes.start_time ASC"]
    while True:
        page = client.search_runs([experiment], where, max_results=5_000, order_by=order, page_token=token)
        found += [each for each in page if each.data.tags.get("attnlab.phase") != REPORT]
        token = page.token
        if not token:
            return found
