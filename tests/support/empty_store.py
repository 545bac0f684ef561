"""A folder of runs with an empty MLflow database, created once by all processes of a test session and copied by each test."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from attnlab.tracking.client import connect
from attnlab.tracking.relocation import relocate_artifacts

STORE = Path(os.environ["ATTNLAB_TESTS"]) / "store"


def copy_store(folder: Path) -> Path:
    """Copy the empty store to ``folder``, which may exist, and return it: creating a database takes 50 migrations."""
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
