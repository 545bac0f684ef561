"""Scores of the single items of ``test``, as artifacts of the runs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab._util.arrays import read_arrays
from attnlab._util.metrics import ITEMS_FILE
from attnlab.errors import UserError
from attnlab.tracking.artifacts import ITEMS_TAG
from attnlab.tracking.client import connect, is_local, runs_folder, search_runs
from attnlab.tracking.relocation import require_inside, require_of_run
from attnlab.tracking.runs import find_experiment

if TYPE_CHECKING:
    import pandas
    from mlflow.entities import Run as Record


def load_items(study: str, root: str | Path | None = None) -> pandas.DataFrame:
    """Return the score of each item of ``test`` of each completed run of a study.

    An item is a document, or a segment of a text (of long texts up to 1,024 runs of consecutive segments). Two runs that are
    tested in the same way have the same items in the same order, so they can be compared item by item.

    Args:
        study: the study's name.
        root: the runs folder; default ``ATTNLAB_RUNS``, else ``./runs``.

    Returns:
        A data frame with one row for each run and item: ``run_id``, ``name``, ``cell``, ``seed``, ``item`` (from 0),
        ``metric``, ``score`` (the mean over the item) and ``count`` (the number of bytes, tokens or documents that it is a
        mean of).

    Raises:
        UserError: the study does not exist, or an artifact cannot be read.
    """
    import pandas

    folder = runs_folder(root)
    client = connect(folder)
    experiment = find_experiment(client, study)
    frames = []
    for record in search_runs(client, experiment.experiment_id):
        tags = record.data.tags
        if ITEMS_TAG not in tags or tags.get("attnlab.current") == "no":
            continue
        path, name = _local_path(record, folder), str(record.info.run_name)
        if path is not None:
            arrays = read_items(path, name)
        else:
            with tempfile.TemporaryDirectory() as copy:
                arrays = read_items(Path(client.download_artifacts(record.info.run_id, ITEMS_FILE, copy)), name)
        of_run = {"run_id": record.info.run_id, "name": record.info.run_name, "cell": tags["attnlab.cell"]}
        frames.append(pandas.DataFrame({**of_run, "seed": int(tags["attnlab.seed"]), **arrays}))
    columns = ["run_id", "name", "cell", "seed", "item", "metric", "score", "count"]
    if not frames:
        return pandas.DataFrame(columns=columns)
    items = pandas.concat(frames, ignore_index=True)
    return items.reindex(columns=columns)


def _local_path(record: Record, root: Path) -> Path | None:
    """Return the file of a run's items if it is on this machine: MLflow would query its database for each file."""
    location, run_id = str(record.info.artifact_uri), record.info.run_id
    folder = require_inside(location, root) if is_local(root) else require_of_run(location, run_id)
    return folder / ITEMS_FILE if folder and (folder / ITEMS_FILE).is_file() else None


def read_items(source: Path | bytes, name: str, where: str = ITEMS_FILE) -> dict[str, object]:
    """Return the scores of the items of one run by column.

    Args:
        source: the artifact, or its content.
        name, where: of the run and its file, for the message.

    Raises:
        UserError: the artifact is damaged, or was not written by attnlab.
    """
    import numpy

    try:
        arrays = read_arrays(source, {"score": ("f", 1), "count": ("iuf", 1), "metric": ("U", 0)})
        if len(arrays["score"]) != len(arrays["count"]):
            raise ValueError(f"expected a count for each of {len(arrays['score'])} scores, got {len(arrays['count'])}")
        if not ((arrays["count"] > 0) & (arrays["count"] < 2**31)).all():
            raise ValueError(f"expected counts from 1 to 2^31, got {arrays['count'].min()} to {arrays['count'].max()}")
        metric, score = str(arrays["metric"]), arrays["score"].astype(float)
    except ValueError as error:
        raise UserError(f"cannot read the items of {name}: {error}", where) from error
    return {"item": numpy.arange(len(score)), "metric": metric, "score": score, "count": arrays["count"]}
