"""Optuna's storage: a sqlite file that one parent owns, or a PostgreSQL database that several parents share."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from attnlab._util.database import is_conflict, outage, require_apart, storage_url
from attnlab._util.files import describe_disk_error, describe_error, file_lock
from attnlab._util.patience import Patience
from attnlab._util.redact import redact
from attnlab.errors import UserError

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import RDBStorage

HEARTBEAT_SECONDS = 10  # between two heartbeats of a running trial; ATTNLAB_HEARTBEAT overrides it
HEARTBEAT_RETRY = 1.0  # seconds after a heartbeat that failed
MISSED_HEARTBEATS = 6  # after which a trial counts as stale
SQLITE_TIMEOUT = 60  # seconds to wait for a sqlite file that another process has locked
MAY_DELETE = "; you may delete it: finished runs are recorded in MLflow"
ADVISORY_LOCK = 0x61_74_74_6E  # the number of attnlab's advisory lock in PostgreSQL: "attn"


def shared_storage(address: str | None) -> str | None:
    """Return the address of the database that parents share: ``address``, else ``ATTNLAB_STORAGE``, else None.

    Raises:
        UserError: it is not a PostgreSQL address, or MLFLOW_TRACKING_URI names no store that all parents write to.
    """
    url = address or os.environ.get("ATTNLAB_STORAGE") or None
    if url is None:
        return None
    tracking = os.environ.get("MLFLOW_TRACKING_URI")
    if not tracking:
        raise UserError(
            "expected MLFLOW_TRACKING_URI with it: the MLflow server (or database) that all machines write to", "--storage"
        )
    require_apart(url, tracking)
    return storage_url(url)


class Store:
    """A connection to Optuna's storage.

    Args:
        root: the folder of runs, for the sqlite file.
        url: ``postgresql://...`` of a database that several parents share; None: the sqlite file.

    Attributes:
        root: the folder of runs.
        shared: whether other parents may claim runs from the same queue.
        patience: repeats calls while the database does not respond.
        heartbeat_interval: seconds between two heartbeats of a running trial.
        grace_period: seconds without a heartbeat after which a running trial counts as stale.

    Raises:
        UserError: the database cannot be reached, or the file is not a database.
    """

    def __init__(self, root: Path, url: str | None = None) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.root, self.shared = root, url is not None
        self.heartbeat_interval = max(1, round(float(os.environ.get("ATTNLAB_HEARTBEAT", HEARTBEAT_SECONDS))))
        self.grace_period = MISSED_HEARTBEATS * self.heartbeat_interval
        name = f"the queue at {redact(url)}" if url else f"the queue {root / 'optuna.db'}"
        self.patience = Patience(name, reason=outage, is_conflict=is_conflict, hint="" if url else MAY_DELETE)
        self.rdb = self._connect(root, url)
        self._heartbeats: set[int] = set()
        self._stop = threading.Event()
        if self.shared:
            threading.Thread(target=self._send_heartbeats, daemon=True, name="attnlab-heartbeat").start()

    def _connect(self, root: Path, url: str | None) -> RDBStorage:
        from optuna.storages import RDBStorage

        if url is None:
            return self._open_sqlite(root / "optuna.db")
        for tries_left in (2, 1, 0):  # fails once if another parent creates the tables at the same time
            try:
                with warnings.catch_warnings(action="ignore"):  # Optuna marks heartbeats as experimental
                    return RDBStorage(
                        url,
                        heartbeat_interval=self.heartbeat_interval,
                        grace_period=self.grace_period,
                        engine_kwargs={"pool_pre_ping": True},  # reconnect after a restart of the database
                    )
            except Exception as error:  # any driver's exception, whose text may quote the address
                if not tries_left:
                    reason = redact(str(error), address=url).strip().splitlines()[0]
                    raise UserError(f"cannot use the storage {redact(url)}: {reason}") from None
                time.sleep(0.5)
        raise AssertionError("unreachable")

    def _open_sqlite(self, path: Path) -> RDBStorage:
        from optuna.storages import RDBStorage
        from sqlalchemy.exc import OperationalError

        options = {"connect_args": {"timeout": SQLITE_TIMEOUT}}
        with file_lock(path.with_suffix(".lock"), activity=f"{path} is being created", timeout=2 * SQLITE_TIMEOUT):
            try:
                return RDBStorage(f"sqlite:///{path}", engine_kwargs=options)
            except Exception as error:  # of sqlite, of SQLAlchemy, or of Optuna about another version of its tables
                if describe_disk_error(error) is not None:
                    raise
                damaged = not isinstance(error, OperationalError)  # an OperationalError: locked, or cannot be opened
                hint = MAY_DELETE if damaged else ""
                raise UserError(f"cannot use {path}: {describe_error(error)}{hint}") from error

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other parents out of the block, so that they see its changes as one."""
        if not self.shared:  # the study's lock file keeps them out
            yield
            return
        from sqlalchemy import text

        with self.rdb.engine.connect() as connection:  # PostgreSQL releases the lock when the connection ends
            connection.execute(text("SELECT pg_advisory_lock(:number)"), {"number": ADVISORY_LOCK})
            try:
                yield
                # If the connection was lost meanwhile, and the lock with it, this raises: the call is repeated as a whole.
                connection.execute(text("SELECT pg_advisory_unlock(:number)"), {"number": ADVISORY_LOCK})
            except BaseException:
                connection.invalidate()  # it must not return to the pool with the lock
                raise

    @contextmanager
    def share(self, study: str, text: str) -> Iterator[None]:
        """Run a study in the block, together with parents that run it with the same text.

        Raises:
            UserError: another parent is running the study with another text.
        """
        if not self.shared:  # the study's lock file admits one parent
            yield
            return
        from sqlalchemy import text as sql

        numbers = {"study": crc32(study.encode()) >> 1, "text": crc32(text.encode()) >> 1}
        others = (
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND CAST(classid AS bigint) = :study AND objsubid = 2 "
            "AND CAST(objid AS bigint) <> :text AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        with self.rdb.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            with self.exclusive():
                if connection.execute(sql(others), numbers).scalar():
                    raise UserError(f"another machine is running the study {study!r} with another study file")
                connection.execute(sql("SELECT pg_advisory_lock_shared(CAST(:study AS int), CAST(:text AS int))"), numbers)
            try:
                yield
            finally:
                connection.invalidate()  # which ends the lock

    def start_heartbeat(self, trial_id: int) -> None:
        """Send heartbeats for a trial from now on, in a separate thread."""
        if self.shared:
            self.patience(lambda: self.rdb.record_heartbeat(trial_id))
            self._heartbeats.add(trial_id)

    def stop_heartbeat(self, trial_id: int) -> None:
        """Stop the heartbeats of a trial."""
        self._heartbeats.discard(trial_id)

    def fail_stale(self, study: Study) -> None:
        """Fail the study's trials without a heartbeat, by Optuna's rule."""
        from optuna.storages import fail_stale_trials

        with warnings.catch_warnings(action="ignore"):
            fail_stale_trials(study)

    def close(self) -> None:
        """Close the connection."""
        self._stop.set()
        self.rdb.remove_session()
        self.rdb.engine.dispose()

    def _send_heartbeats(self) -> None:
        pause = float(self.heartbeat_interval)
        while not self._stop.wait(pause):
            pause = float(self.heartbeat_interval)
            for trial_id in tuple(self._heartbeats):
                try:
                    self.rdb.record_heartbeat(trial_id)
                except Exception:  # the database cannot be reached: other parents must hear of these trials soon after it can
                    pause = HEARTBEAT_RETRY
                    break
