"""The report of a study in its own MLflow experiment: one small run that holds the page's files.

MLflow has no artifacts of an experiment. The run is named `report`, is replaced at each report, and is left out
wherever a study's runs are read back (`track.search`).
"""

from __future__ import annotations

import os
from pathlib import Path

from attnlab.tracking import client as track


def keep(study: str, folder: Path, *, root: str | Path | None = None, note: str = "") -> str:
    """Put the files of a report into the study's experiment, in place of the report before; return the run's id.

    Args:
        study: the experiment's name.
        folder: the report; its files are taken, its subfolders are not.
        root: the folder of runs.
        note: Markdown for the run's page.
    """
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    client = track.connect(track.runs_folder(root))
    experiment = client.get_experiment_by_name(study)
    if experiment is None:
        raise LookupError(study)
    earlier = client.search_runs([experiment.experiment_id], f"tags.`attnlab.phase` = '{track.REPORT}'")
    tags = {"attnlab.phase": track.REPORT, "attnlab.study": study}
    tags["mlflow.note.content"] = f"{note}\n\nThe page is the artifact `index.html`."
    made = client.create_run(experiment.experiment_id, run_name="report", tags=tags)
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        client.log_artifact(made.info.run_id, str(file))
    client.set_terminated(made.info.run_id, "FINISHED")
    for each in earlier:
        client.delete_run(each.info.run_id)
    return made.info.run_id
