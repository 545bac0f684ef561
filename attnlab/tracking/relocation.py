"""Artifact locations of a runs folder that was moved or copied.

MLflow stores the absolute location of each experiment's and run's artifacts. If the folder has another path now, reading
them fails, and new artifacts would be written to a new folder at the old path. ``relocate_artifacts`` replaces the old path
in the database, where the clients, ``mlflow server`` and the UI read it.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlparse

from attnlab.errors import UserError

logger = logging.getLogger(__name__)

COLUMNS = (("experiments", "artifact_location"), ("runs", "artifact_uri"))
DEFAULT_LOCATION = "SELECT artifact_location FROM experiments WHERE experiment_id = 0"
TIMEOUT = 20.0  # seconds to wait for another process that writes, as MLflow does


def relocate_artifacts(root: Path, *, writable: bool) -> None:
    """Let the artifact locations in ``mlflow.db`` follow the folder ``root`` that holds it.

    Locations outside the folder's earlier path are kept. A folder that can be reached by both paths keeps the earlier one.

    Args:
        root: a runs folder with an ``mlflow.db``.
        writable: if the database cannot be changed, raise an error rather than log a warning.

    Raises:
        UserError: the database cannot be changed.
    """
    path, old = root / "mlflow.db", None
    try:
        with closing(sqlite3.connect(path, timeout=TIMEOUT, isolation_level=None)) as database:
            row = database.execute(DEFAULT_LOCATION).fetchone()
            old = _earlier_root(row[0]) if row else None
            if old is None or old == root or _is_same_file(old / "mlflow.db", path):
                return
            _replace_prefix(database, old / "artifacts", root / "artifacts")
    except sqlite3.Error as error:  # read-only, locked, damaged
        message = f"cannot update the artifact locations in {path}{f', which are below {old}' if old else ''}: {error}"
        if writable:
            raise UserError(message) from error
        logger.warning("%s", message)
        return
    _forget_repositories()
    logger.info("the runs folder was moved or copied from %s: its artifacts are now at %s", old, root / "artifacts")


def _earlier_root(location: str) -> Path | None:
    """Return the runs folder that the location of the default experiment implies: ``ROOT/artifacts/0``."""
    path = Path(unquote(urlparse(location).path)) if location.startswith("file:") else Path(location)
    return path.parent.parent if path.is_absolute() and path.parts[-2:] == ("artifacts", "0") else None


def _is_same_file(one: Path, other: Path) -> bool:
    return one.exists() and one.samefile(other)


def _replace_prefix(database: sqlite3.Connection, old: Path, new: Path) -> None:
    """Replace the folder ``old`` by ``new`` in all locations, which are paths or ``file:`` URIs."""
    database.execute("BEGIN IMMEDIATE")
    for table, column in COLUMNS:
        for before, after in ((f"{old}/", f"{new}/"), (f"{old.as_uri()}/", f"{new.as_uri()}/")):
            database.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
                (after, len(before) + 1, len(before), before),
            )
    database.execute("COMMIT")


def _forget_repositories() -> None:
    """Empty MLflow's cache of artifact repositories, which would write to the old path if this process used it before."""
    from mlflow.tracking._tracking_service import utils

    utils._artifact_repos_cache.clear()
