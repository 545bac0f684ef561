"""Connection to MLflow: the store's address, its client, error classification, batched writes and run search."""

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

MAX_METRICS_PER_BATCH = 1_000  # MLflow's limit for one log_batch call
QUESTIONS_TAG = "attnlab.questions"  # experiment tag: the questions the study has asked, as JSON
REPORT_PHASE = "report"  # value of attnlab.phase for the MLflow run that holds a study's report (artifacts.log_report)
Point = tuple[str, float, int, int]  # name, value, milliseconds since the epoch, step
# Fail fast and leave retries to ``delivery``. MLflow's defaults are 7 retries and 120 s.
WRITER_ENVIRONMENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
TRANSIENT_STATUS = {408, 429, 500, 502, 503, 504}  # HTTP status codes that MLflow itself retries


def runs_folder(root: str | Path | None = None) -> Path:
    """Return the runs folder: ``root``, else ``ATTNLAB_RUNS``, else ``runs`` in the working directory.

    Raises:
        UserError: the path contains a character that has a special meaning in an SQLite URI.
    """
    folder = Path(root or os.environ.get("ATTNLAB_RUNS") or "runs").resolve()
    if special := {"?", "%"} & set(str(folder)):
        raise UserError(f"expected a runs folder without {min(special)!r} in its path, got {folder}")
    return folder


def tracking_uri(root: Path) -> str:
    """Return ``MLFLOW_TRACKING_URI`` if set, else the URI of the SQLite file under ``root``. May contain a password."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root / 'mlflow.db'}"
    return storage_url(uri, where="MLFLOW_TRACKING_URI") if is_postgresql(uri) else uri


def connect(root: Path, *, create: bool = False) -> MlflowClient:
    """Return a separate MLflow client; the global tracking URI, experiment and active run are left alone.

    Args:
        root: the runs folder.
        create: set by writers: create a missing database, and disable MLflow's own retries because ``delivery``
            retries (``WRITER_ENVIRONMENT``).

    Raises:
        UserError: the runs folder has no database (and ``create`` is false), or the store cannot be reached.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when mlflow is imported
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # a run's URL may contain a password
    uri, database = tracking_uri(root), root / "mlflow.db"
    missing = uri == f"sqlite:///{database}" and not database.exists()
    if missing and not create:
        raise UserError(f"no runs in {root} yet: expected its mlflow.db (ATTNLAB_RUNS names another folder)")
    from mlflow import MlflowClient

    logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs each of the 50 migrations of a new database
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it logs a traceback for a locked database
    for name, value in WRITER_ENVIRONMENT.items() if create else ():
        os.environ.setdefault(name, value)  # for the whole process, since calls are made by another thread
    root.mkdir(parents=True, exist_ok=True)
    try:
        if missing:
            _create_database(database)
        with one_at_a_time(uri):  # PostgreSQL: the first client to connect creates the tables
            client = MlflowClient(tracking_uri=uri)
            client.search_experiments(max_results=1)
    except UserError:
        raise
    except Exception as error:  # any exception of the store's driver; its text may quote the address
        raise UserError(f"cannot use the MLflow store {redact(uri)}: {summarize_error(error, address=uri)}") from None
    return client


def _create_database(path: Path) -> None:
    """Create an MLflow database atomically: one process builds it in a temporary folder and then renames it to ``path``.

    Concurrent creation corrupts the file, and a process killed during creation leaves an incomplete one. The journal
    mode is WAL, so that readers (the UI) and the writer do not block each other.
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


def unavailable_reason(error: Exception) -> str | None:
    """Return why the store did not respond (unreachable, hanging, locked, overloaded), or None if it rejected the call."""
    from mlflow.exceptions import MlflowException
    from requests import HTTPError, RequestException

    if describe_disk_error(error) is not None:  # MLflow reports a full disk as temporary, but retrying cannot help
        transient = False
    elif isinstance(error, MlflowException):  # also connection errors, which MLflow reports as status 500
        lost = getattr(error.__cause__, "connection_invalidated", False)  # set by SQLAlchemy
        transient = lost or error.get_http_status_code() in TRANSIENT_STATUS
    elif isinstance(error, HTTPError):  # artifact uploads
        transient = error.response is None or error.response.status_code in TRANSIENT_STATUS
    else:
        transient = isinstance(error, RequestException)
    return summarize_error(error) if transient else None


def summarize_error(error: Exception, *, address: str = "") -> str:
    """Return the core of a store's error message: no addresses, SQL statements or hints. ``address`` as in ``redact``."""
    text = str(error)
    core = re.search(r"\[Errno -?\d+\] [\w ,.-]+|Read timed out|too many \d+ error responses|\([\w.]+Error\) [^\n]+", text)
    return redact(core[0] if core else text.strip().partition("\n")[0], address=address)[:300]


def log_batch(
    client: MlflowClient,
    run_id: str,
    *,
    points: list[Point] | None = None,
    params: dict[str, str] | None = None,
    tags: dict[str, str] | None = None,
) -> None:
    """Log metrics, params and tags to an MLflow run, in as few calls as MLflow's batch limit allows."""
    from mlflow.entities import Metric, Param, RunTag

    metrics = [Metric(*point) for point in points or []]
    while len(metrics) > MAX_METRICS_PER_BATCH:
        client.log_batch(run_id, metrics=metrics[:MAX_METRICS_PER_BATCH])
        metrics = metrics[MAX_METRICS_PER_BATCH:]
    all_params = [Param(name, value) for name, value in (params or {}).items()]
    all_tags = [RunTag(name, value) for name, value in (tags or {}).items()]
    if metrics or all_params or all_tags:
        client.log_batch(run_id, metrics=metrics, params=all_params, tags=all_tags)


def search_runs(client: MlflowClient, experiment_id: str, filter_string: str = "") -> list[Record]:
    """Return all active MLflow runs of an experiment that match ``filter_string``, in the order in which they started.

    The run that holds the study's report (``artifacts.log_report``) is excluded.
    """
    records, token = [], None
    order = ["attributes.start_time ASC"]
    while True:
        page = client.search_runs([experiment_id], filter_string, max_results=5_000, order_by=order, page_token=token)
        records += [record for record in page if record.data.tags.get("attnlab.phase") != REPORT_PHASE]
        token = page.token
        if not token:
            return records
