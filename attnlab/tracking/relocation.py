"""Artifact locations of a runs folder that was moved or copied.

MLflow stores the absolute location of each experiment's and run's artifacts. If the folder has another path now, reading
them fails, and new artifacts would be written to a new folder at the old path. ``relocate_artifacts`` replaces the old path
in the database, where the clients, ``mlflow server`` and the UI read it.
"""

from __future__ import annotations

import logging
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlparse

from attnlab._util.files import real_path
from attnlab.errors import UserError

logger = logging.getLogger(__name__)

COLUMNS = (("experiments", "artifact_location"), ("runs", "artifact_uri"), ("logged_models", "artifact_location"))
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


def require_inside(location: str | None, root: Path) -> Path | None:
    """Return the folder of a location of artifacts, a path or a ``file:`` URI; None when a server keeps them.

    Raises:
        UserError: the folder, or the target of a link in it, is outside the runs folder: a record that somebody else wrote
            must not decide which files are read or written.
    """
    address = urlparse(str(location or ""))  # a damaged database has bytes
    if address.scheme == "mlflow-artifacts":
        return None
    if address.scheme not in ("", "file"):
        raise UserError(
            f"expected artifacts in the runs folder, got artifacts at {address.scheme}://{address.netloc}", "mlflow.db"
        )
    folder = Path(unquote(address.path))
    _require_below(real_path(root) / "artifacts", folder, where="mlflow.db")
    return folder


def require_of_run(location: str | None, run_id: str) -> Path | None:
    """Return the folder of a run's artifacts if a server names one on this machine, as on a shared disk; None: it keeps them.

    Raises:
        UserError: the folder is not one that MLflow makes for this run, or a link in it leads elsewhere: a server must not
            decide which files of this machine are read or written.
    """
    address = urlparse(str(location or ""))
    if address.scheme not in ("", "file"):
        return None
    folder = Path(unquote(address.path))
    if not re.fullmatch("[0-9a-f]{32}", run_id) or folder.parts[-2:] != (run_id, "artifacts"):
        raise UserError(f"expected the artifacts of the run {run_id} in .../{run_id}/artifacts, got {folder}", "MLflow")
    _require_below(real_path(folder), folder, where="MLflow")
    return folder


def _require_below(top: Path, folder: Path, *, where: str) -> None:
    """Raise a `UserError` if a folder, or the target of a link in it, is not below ``top``."""
    for path in [folder, *folder.rglob("*")]:
        if (path == folder or path.is_symlink()) and not real_path(path).is_relative_to(top):
            raise UserError(f"expected artifacts in {top}, got {path}, which leads to {real_path(path)}", where)


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
