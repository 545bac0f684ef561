"""The weights of the runs that others start from, as artifacts: machines without a common folder of runs share them."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab._util.files import describe_error
from attnlab.errors import UserError
from attnlab.tracking.client import connect
from attnlab.tracking.tags import owner_id

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as Record

FILES = ("model.safetensors", "config.json", "result.json")  # the last one is written last, as by the run itself
ARTIFACTS = "weights"  # folder of the artifacts
ORIGIN = "fetched_from"  # file in a run's folder: the id of the MLflow run that its weights were fetched from


def log_weights(client: MlflowClient, run_id: str, folder: Path) -> None:
    """Attach the weights, the configuration and the result of a run to its record, if it left weights."""
    for name in FILES if (folder / FILES[0]).is_file() else ():
        client.log_artifact(run_id, str(folder / name), ARTIFACTS)


def fetch_weights(record: Record, folder: Path, *, root: Path) -> None:
    """Copy the weights of a run that was trained from another folder of runs to its folder in this one, unless they are there.

    Args:
        record: of the run, completed.
        folder: of the run, under ``root``.

    Raises:
        UserError: the record has no weights, or they cannot be fetched or written.
    """
    run_id, origin = record.info.run_id, folder / ORIGIN
    if record.data.tags.get("attnlab.owner") == owner_id(root):
        return
    if origin.is_file() and origin.read_text(encoding="utf-8") == run_id:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            client = connect(root)
            fetched = [client.download_artifacts(run_id, f"{ARTIFACTS}/{name}", temporary) for name in FILES]
            origin.unlink(missing_ok=True)
            for path, name in zip(fetched, FILES, strict=True):
                shutil.move(path, folder / name)
        origin.write_text(run_id, encoding="utf-8")
    except Exception as error:  # of MLflow, of its artifact store, or of the disk
        raise UserError(f"the weights of {record.info.run_name} cannot be fetched: {describe_error(error)}") from error
