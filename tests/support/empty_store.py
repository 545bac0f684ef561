"""Empty databases of MLflow and Optuna, created once by all processes of a test session and copied by each test."""

import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from attnlab.tracking.client import connect
from attnlab.tracking.relocation import relocate_artifacts

STORE = Path(os.environ["ATTNLAB_TESTS"]) / "store"


def copy_store(folder: Path) -> Path:
    """Copy the empty store to ``folder``, which may exist, and return it: creating a database takes 50 migrations."""
    _read_migrations_once()
    if not (STORE / "mlflow.db").exists():  # it appears complete
        connect(STORE, create=True)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(STORE / "mlflow.db", folder)
    relocate_artifacts(folder, writable=True)
    return folder


def copying(create: Callable[[Path], None]) -> Callable[[Path], None]:
    """Return a stand-in for ``create``, the function that creates a database, which copies all but the first."""

    def copy(path: Path) -> None:
        if path.parent == STORE:
            create(path)
        elif not path.exists():
            copy_store(path.parent)

    return copy


def copying_queues(open_sqlite: Callable[[Any, Path], Any]) -> Callable[[Any, Path], Any]:
    """Return a stand-in for ``open_sqlite``, the method that opens or creates Optuna's database, which copies a missing one."""

    def open_copy(store: Any, path: Path) -> Any:
        _read_migrations_once()
        template = STORE / path.name
        if not template.exists():
            STORE.mkdir(exist_ok=True)
            new = STORE / f"{path.name}.{os.getpid()}"
            open_sqlite(store, new).engine.dispose()
            new.rename(template)
        if not path.exists():
            shutil.copy(template, path)
        return open_sqlite(store, path)

    return open_copy


@cache
def _read_migrations_once() -> None:
    """Read the migrations of MLflow and of Optuna, whose latest one every database that is opened must have, once a process."""
    from mlflow.store.db import utils
    from optuna.storages._rdb.storage import _VersionManager

    utils._get_latest_schema_revision = cache(utils._get_latest_schema_revision)
    head_version, versions = _VersionManager.get_head_version, list[str]()

    def read_once(self: _VersionManager) -> str:
        if not versions:
            versions.append(head_version(self))
        return versions[0]

    _VersionManager.get_head_version = read_once
