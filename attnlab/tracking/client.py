"""Connection to MLflow: the store's address, its client, error classification, batched writes, studies and their records.

A store may hold experiments and runs of other programs. The ones that attnlab made have tags: `is_study` and `search_runs`.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from ssl import SSLCertVerificationError
from typing import TYPE_CHECKING, Any, cast

from attnlab._util.database import is_postgresql, one_at_a_time, outage, storage_url
from attnlab._util.files import causes, describe_disk_error, file_lock, real_path
from attnlab._util.redact import redact
from attnlab.errors import UserError
from attnlab.tracking.record import DamagedRecord, RunRecord, StudyRecord, tag
from attnlab.tracking.relocation import relocate_artifacts

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

logger = logging.getLogger(__name__)

MAX_METRICS_PER_BATCH = 1_000  # MLflow's limit for one log_batch call
NOTICE_SECONDS = 2.0  # between two lines on the progress of reading
RUNS_PER_PAGE = 250  # of a search: a busy server prepares a page well within a reader's timeout
Point = tuple[str, float, int, int]  # name, value, milliseconds since the epoch, step
# MLflow's defaults are 7 retries and 120 s. Writers leave retries to ``delivery``, which is patient; readers have none.
HTTP_ENVIRONMENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
_snapshot: ContextVar[dict[tuple[tuple[str, ...], str, bool], list[RunRecord]] | None] = ContextVar("snapshot", default=None)
_responsive: set[str] = set()  # stores that have responded to this process; a reader's own calls find out if one no longer does
TRANSIENT_STATUS = {408, 429, 500, 502, 503, 504}  # HTTP status codes that MLflow itself retries


def runs_folder(root: str | Path | None = None) -> Path:
    """Return the runs folder: ``root``, else ``ATTNLAB_RUNS``, else ``runs`` in the working directory.

    Raises:
        UserError: it is a file, or the path contains a character that has a special meaning in an SQLite URI.
    """
    folder = real_path(root or os.environ.get("ATTNLAB_RUNS") or "runs")
    if special := {"?", "%"} & set(str(folder)):
        raise UserError(f"expected a runs folder without {min(special)!r} in its path, got {folder}")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"expected a runs folder, got a file: {folder} (ATTNLAB_RUNS names another folder)")
    return folder


def run_folder(root: Path, key: str) -> Path:
    """Return the folder of a run's checkpoints, result and log."""
    return root / "work" / key


def log_path(root: Path, key: str) -> Path:
    """Return the file that the process of a run writes its output to."""
    return run_folder(root, key) / "log.txt"


def tracking_uri(root: Path) -> str:
    """Return ``MLFLOW_TRACKING_URI`` if set, else the URI of the SQLite file under ``root``. May contain a password."""
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        return f"sqlite:///{root / 'mlflow.db'}"
    return storage_url(uri, where="MLFLOW_TRACKING_URI") if is_postgresql(uri) else uri


def is_local(root: Path) -> bool:
    """Return whether the store is the SQLite file under ``root``."""
    return tracking_uri(root) == f"sqlite:///{root / 'mlflow.db'}"


def connect(root: Path, *, create: bool = False) -> MlflowClient:
    """Return a separate MLflow client; the global tracking URI, experiment and active run are left alone.

    Args:
        root: the runs folder.
        create: set by writers: create a missing database, and leave the errors of calls to ``delivery``, which retries.
            Without it, a call that fails raises a ``UserError``.

    Raises:
        UserError: the runs folder has no database (and ``create`` is false), or the store cannot be reached.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when mlflow is imported
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # a run's URL may contain a password
    uri, database = tracking_uri(root), root / "mlflow.db"
    local = is_local(root)
    missing = local and not database.exists()
    if missing and not create:
        raise UserError(f"no runs in {root} yet: expected its mlflow.db (ATTNLAB_RUNS names another folder)")
    from mlflow import MlflowClient

    logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs each of the 50 migrations of a new database
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it logs a traceback for a locked database
    for name, value in HTTP_ENVIRONMENT.items():  # of the whole process: another thread makes a writer's calls
        os.environ.setdefault(name, value)
    root.mkdir(parents=True, exist_ok=True)
    try:
        if missing:
            _create_database(database)
        elif local:
            relocate_artifacts(root, writable=create)
        if create or uri not in _responsive:
            with one_at_a_time(uri):  # PostgreSQL: the first client to connect creates the tables
                MlflowClient(tracking_uri=uri).search_experiments(max_results=1)
            _responsive.add(uri)
        client = MlflowClient(tracking_uri=uri)
    except UserError:
        raise
    except Exception as error:  # any exception of the store's driver; its text may quote the address
        raise UserError(f"cannot use the MLflow store {redact(uri)}: {summarize_error(error, address=uri)}") from None
    return client if create else cast("MlflowClient", _ReadingClient(client, uri))


class _ReadingClient:
    """An ``MlflowClient`` that raises a ``UserError`` if the store does not respond or rejects the call."""

    def __init__(self, client: MlflowClient, uri: str) -> None:
        self._client, self._uri = client, uri

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            with readable_errors(self._uri):
                return method(*args, **kwargs)

        return call


@contextmanager
def readable_errors(uri: str) -> Iterator[None]:
    """Turn errors of a store that is read into a ``UserError`` of one line."""
    from mlflow.exceptions import MlflowException
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, RequestException, SQLAlchemyError) as error:
        ending = "did not respond" if unavailable_reason(error) else "rejected the request"
        raise UserError(f"MLflow at {redact(uri)} {ending}: {summarize_error(error, address=uri)}") from error


@contextmanager
def snapshot() -> Iterator[None]:
    """Search for the records of each study only once while the block runs, and return the same ones each time."""
    if _snapshot.get() is not None:  # within another block
        yield
        return
    token = _snapshot.set({})
    try:
        yield
    finally:
        _snapshot.reset(token)


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
    """Return why the store did not respond (unreachable, hanging, locked, overloaded), or None when it rejected the call."""
    from mlflow.exceptions import MlflowException
    from requests import HTTPError, RequestException
    from sqlalchemy.exc import SQLAlchemyError

    if describe_disk_error(error) is not None or _is_permanent(error):  # MLflow reports both as temporary
        transient = False
    elif isinstance(error, MlflowException):  # also connection errors, which MLflow reports as status 500
        lost = getattr(error.__cause__, "connection_invalidated", False)  # set by SQLAlchemy
        transient = lost or error.get_http_status_code() in TRANSIENT_STATUS
    elif isinstance(error, SQLAlchemyError):  # of the rollback of a call that lost its connection
        transient = outage(error) is not None
    elif isinstance(error, HTTPError):  # artifact uploads
        transient = error.response is None or error.response.status_code in TRANSIENT_STATUS
    else:
        transient = isinstance(error, RequestException)
    return summarize_error(error) if transient else None


def _is_permanent(error: Exception) -> bool:
    """Return whether an error that MLflow reports as temporary comes from the call itself, and a retry cannot help.

    MLflow gives the status 500 to every exception that it does not know, and 503 to every ``OperationalError``.
    """
    from mlflow.exceptions import MlflowException
    from requests.exceptions import InvalidSchema, InvalidURL, MissingSchema
    from sqlalchemy.exc import SQLAlchemyError

    call = (UnicodeError, TypeError, SSLCertVerificationError, InvalidURL, InvalidSchema, MissingSchema)
    if isinstance(error, MlflowException) and not isinstance(error.__cause__, (OSError, SQLAlchemyError, type(None))):
        return True  # of MLflow's code, such as about a value that it cannot read: neither the network nor the database failed
    return any(
        isinstance(cause, call) or getattr(cause, "sqlite_errorname", "") == "SQLITE_ERROR"  # no such table, for example
        for cause in causes(error)
    )


def summarize_error(error: Exception, *, address: str = "") -> str:
    """Return the core of a store's error message: no addresses, SQL statements or hints. ``address`` as in ``redact``."""
    text = str(error)
    core = re.search(r"\[Errno -?\d+\] [\w ,.-]+|Read timed out|too many \d+ error responses|\([\w.]+Error\) [^\n]+", text)
    return redact(core[0] if core else text.strip().partition("\n")[0], address=address)[:300]


def storable(text: str) -> str:
    """Return a text that every store accepts: the bytes of a file name that are not UTF-8, and NUL, are escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", r"\x00")


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
    all_params = [Param(name, storable(value)) for name, value in (params or {}).items()]
    all_tags = [RunTag(name, storable(value)) for name, value in (tags or {}).items()]
    if metrics or all_params or all_tags:
        client.log_batch(run_id, metrics=metrics, params=all_params, tags=all_tags)


def is_study(experiment: Experiment) -> bool:
    """Return whether an experiment belongs to attnlab."""
    return isinstance(experiment.name, str) and tag("study", StudyRecord) in experiment.tags


def search_studies(client: MlflowClient) -> list[Experiment]:
    """Return the experiments of all studies, sorted by name; deleted ones and other programs' are left out."""
    experiments, token = [], None
    while True:
        page = client.search_experiments(page_token=token)
        experiments += [experiment for experiment in page if is_study(experiment)]
        token = page.token
        if not token:
            return sorted(experiments, key=lambda experiment: experiment.name)


def search_runs(
    client: MlflowClient, experiments: str | Sequence[str], filter_string: str = "", *, deleted: bool = False
) -> list[RunRecord]:
    """Return the records of an experiment, or of several, that match ``filter_string``, in the order in which they started.

    Active records are returned, or only the deleted ones if ``deleted``. Runs of other programs are left out. A record with
    damaged tags is left out with a warning.
    """
    ids = (experiments,) if isinstance(experiments, str) else tuple(experiments)
    searches, key = _snapshot.get(), (ids, filter_string, deleted)
    if searches is None:
        return _search_runs(client, *key)
    if key not in searches:
        searches[key] = _search_runs(client, *key)
    return list(searches[key])


def _search_runs(client: MlflowClient, ids: tuple[str, ...], filter_string: str, deleted: bool) -> list[RunRecord]:
    from mlflow.entities import ViewType

    view = ViewType.DELETED_ONLY if deleted else ViewType.ACTIVE_ONLY
    options: dict[str, Any] = {"run_view_type": view, "order_by": ["attributes.start_time ASC"], "max_results": RUNS_PER_PAGE}
    records, token = [], None
    last_notice = time.monotonic()
    while True:
        page = client.search_runs([*ids], filter_string, page_token=token, **options)
        records += [record for run in page if (record := _record_in(run))]
        token = page.token
        if not token:
            return records
        if time.monotonic() - last_notice > NOTICE_SECONDS:
            last_notice = time.monotonic()
            logger.info("reading the records of a study: %s runs so far", f"{len(records):,}")


def _record_in(run: Run) -> RunRecord | None:
    """Return the record in a run of MLflow; None for a run of another program, and, with a warning, for a damaged record."""
    if tag("key") not in run.data.tags:
        return None
    try:
        return RunRecord.of(run)
    except DamagedRecord as damage:
        _warn_of_damage(run.info.run_id, str(damage))
        return None


@cache
def _warn_of_damage(run_id: str, damage: str) -> None:
    """Warn once per process, because a report reads the records several times."""
    logger.warning("ignoring MLflow run %s: %s", run_id, damage)
