"""Where Optuna keeps its record: a sqlite file that one parent owns, or a PostgreSQL database that many share."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab._util.database import require_apart, storage_url
from attnlab._util.files import describe_disk_error, describe_error
from attnlab._util.lock import file_lock
from attnlab._util.redact import redact
from attnlab.errors import UserError

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import RDBStorage

HEARTBEAT = 10  # seconds between two signs of life of a running trial; ATTNLAB_HEARTBEAT sets another number
MISSED = 6  # signs of life that may be missing before a trial counts as dead
PATIENCE = 60  # seconds that a sqlite file may be locked by somebody else
ALONE = 0x61_74_74_6E  # the number of attnlab's advisory lock in PostgreSQL: "attn"


def shared_storage(given: str | None) -> str | None:
    """The address of the database that parents share: as given, else ``ATTNLAB_STORAGE``; None: there is none.

    Raises:
        UserError: no PostgreSQL address, or no record of runs that all parents write to.
    """
    url = given or os.environ.get("ATTNLAB_STORAGE") or None
    if url is None:
        return None
    tracking = os.environ.get("MLFLOW_TRACKING_URI")
    if not tracking:
        raise UserError(
            "expected MLFLOW_TRACKING_URI beside it: the MLflow server (or database) that all machines write to", "--storage"
        )
    require_apart(url, tracking)
    return storage_url(url)


class Store:
    """A connection to Optuna's storage.

    Args:
        root: the folder of runs, for the sqlite file.
        url: ``postgresql://...`` of a database that several parents share; None: the sqlite file.

    Attributes:
        shared: whether other parents may take runs from the same queue.
        grace: seconds without a sign of life after which a running trial counts as dead.

    Raises:
        UserError: the database cannot be reached, or the file is none.
    """

    def __init__(self, root: Path, url: str | None = None) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.shared = url is not None
        self.every = max(1, round(float(os.environ.get("ATTNLAB_HEARTBEAT", HEARTBEAT))))
        self.grace = MISSED * self.every
        self.rdb = self._connect(root, url)
        self._alive: set[int] = set()
        self._stop = threading.Event()
        if self.shared:
            threading.Thread(target=self._beat, daemon=True, name="attnlab-heartbeat").start()

    def _connect(self, root: Path, url: str | None) -> RDBStorage:
        from optuna.storages import RDBStorage

        if url is None:
            return self._own(root / "optuna.db")
        for tries_left in (2, 1, 0):  # two parents that create the tables at once are in each other's way, once
            try:
                with warnings.catch_warnings(action="ignore"):  # heartbeats count as experimental since 2021
                    checked = {"pool_pre_ping": True}  # the database may have been restarted meanwhile
                    return RDBStorage(url, heartbeat_interval=self.every, grace_period=self.grace, engine_kwargs=checked)
            except Exception as error:  # whatever the driver raises; its text may quote the address
                if not tries_left:
                    reason = redact(str(error), address=url).strip().splitlines()[0]
                    raise UserError(f"cannot use the storage {redact(url)}: {reason}") from None
                time.sleep(0.5)
        raise AssertionError("unreachable")

    def _own(self, path: Path) -> RDBStorage:
        from optuna.storages import RDBStorage
        from sqlalchemy.exc import OperationalError

        waiting = {"connect_args": {"timeout": PATIENCE}}
        with file_lock(path.with_suffix(".lock"), activity=f"{path} is being created", timeout=2 * PATIENCE):
            try:
                return RDBStorage(f"sqlite:///{path}", engine_kwargs=waiting)
            except Exception as error:  # sqlite's, SQLAlchemy's, or Optuna's own about another version of it
                if describe_disk_error(error) is not None:
                    raise
                damaged = not isinstance(error, OperationalError)  # which says that it is locked, or cannot be opened
                hint = "; it may be deleted: what is finished stands in MLflow" if damaged else ""
                raise UserError(f"cannot use {path}: {describe_error(error)}{hint}") from error

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Inside, no other parent is inside: for what must be seen and changed in one go."""
        if not self.shared:  # the study's lock file has seen to that
            yield
            return
        from sqlalchemy import text

        with self.rdb.engine.connect() as connection:  # PostgreSQL gives the lock back when the connection ends
            connection.execute(text("SELECT pg_advisory_lock(:number)"), {"number": ALONE})
            try:
                yield
            finally:
                connection.execute(text("SELECT pg_advisory_unlock(:number)"), {"number": ALONE})

    def begin(self, trial_id: int) -> None:
        """Give signs of life for a trial from now on, whatever the caller is busy with."""
        if self.shared:
            self.rdb.record_heartbeat(trial_id)
            self._alive.add(trial_id)

    def end(self, trial_id: int) -> None:
        """No more signs of life for a trial."""
        self._alive.discard(trial_id)

    def fail_silent(self, study: Study) -> None:
        """Fail the study's trials that gave no sign of life for too long: Optuna's own rule."""
        from optuna.storages import fail_stale_trials

        with warnings.catch_warnings(action="ignore"):
            fail_stale_trials(study)

    def close(self) -> None:
        """Let go of the database."""
        self._stop.set()
        self.rdb.remove_session()
        self.rdb.engine.dispose()

    def _beat(self) -> None:
        while not self._stop.wait(self.every):
            for trial_id in tuple(self._alive):
                try:
                    self.rdb.record_heartbeat(trial_id)
                except Exception:  # the database is away: others see our silence, and we see theirs when it is back
                    break
