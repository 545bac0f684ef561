"""Writing what a run is made of to its record: params, data sets, and the configuration as files."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.config.run import RunConfig
from attnlab.tracking.client import log_batch
from attnlab.tracking.tags import run_params, to_yaml

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput

    from attnlab.planning.plan import Run

SPLITS = ("train", "valid", "test")
DIGEST_LIMIT = 36  # characters of a data set's digest in MLflow


def log_run_inputs(client: MlflowClient, run_id: str, run: Run, study_text: str) -> None:
    """Log the params, data sets and configuration of a run, and its study as YAML. A repeated call changes nothing."""
    log_batch(client, run_id, params=run_params(run))
    if isinstance(run.settings, RunConfig):  # the data of a program are not known
        client.log_inputs(run_id, run_datasets(run))
    with tempfile.TemporaryDirectory() as folder:
        text = run.settings.to_json()
        (Path(folder) / "config.json").write_text(text, encoding="utf-8")
        (Path(folder) / "config.yaml").write_text(to_yaml(json.loads(text)), encoding="utf-8")
        (Path(folder) / "study.yaml").write_text(study_text, encoding="utf-8")
        client.log_artifacts(run_id, folder)


def run_datasets(run: Run) -> list[DatasetInput]:
    """Return the splits of a run's task as MLflow's data sets; their digest is that of the identity of the task's data.

    The split is a part of the name, because MLflow keeps one data set of a run for each name and digest.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    task, identity = run.config.task, str(run.config.data)
    source = json.dumps({"task": task.label, "data": identity})
    digest = hashlib.sha256(identity.encode()).hexdigest()[:DIGEST_LIMIT]
    datasets = {split: Dataset(f"{task.name}/{split}", digest, "attnlab", source) for split in SPLITS}
    return [DatasetInput(dataset, [InputTag("mlflow.data.context", split)]) for split, dataset in datasets.items()]
