"""The MLflow experiment of a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.errors import UserError
from attnlab.tracking.attempts import STUDY_TAG
from attnlab.tracking.client import connect, runs_folder, tracking_uri
from attnlab.tracking.delivery import TrackingRejected
from attnlab.tracking.runs import find_experiment
from attnlab.tracking.schema import require_study
from attnlab.tracking.tags import split_note, with_answer

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment


def get_or_create_experiment(client: MlflowClient, study: str, root: Path) -> str:
    """Return the ID of the study's experiment.

    Args:
        study: name of the study, and of its experiment.
        root: the runs folder, which has the artifacts unless a server chooses their location.

    Raises:
        UserError: the experiment was deleted in MLflow or its record is damaged.
    """
    experiment = _find_or_create(client, study, root)
    if experiment.lifecycle_stage == "deleted":
        raise UserError(f"the experiment {study!r} was deleted in MLflow: restore it there, or rename the study")
    require_study(experiment)
    if STUDY_TAG not in experiment.tags:
        client.set_experiment_tag(experiment.experiment_id, STUDY_TAG, study)
    return experiment.experiment_id


def log_answer(study: str, answer: str, root: str | Path | None = None) -> None:
    """Write the answer of a study, in Markdown, above the plan on the page of its experiment; an earlier one is replaced."""
    client = connect(runs_folder(root))
    experiment = find_experiment(client, study)
    text = with_answer(answer, split_note(experiment.tags)[1])
    client.set_experiment_tag(experiment.experiment_id, "mlflow.note.content", text)


def _find_or_create(client: MlflowClient, name: str, root: Path) -> Experiment:
    """Return the experiment of a study, deleted or not; a missing one is created."""
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        on_server = tracking_uri(root).startswith("http")
        folder = None if on_server else (root / "artifacts" / name).as_uri()
        try:
            return client.get_experiment(client.create_experiment(name, artifact_location=folder, tags={STUDY_TAG: name}))
        except TrackingRejected:  # it exists: created by another parent, or by a call whose response was lost
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    return experiment
