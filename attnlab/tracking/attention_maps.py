"""Attention maps among a study's records: an artifact of a run, and a tag that says whether it has one."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab.tracking import client as track

FILE = "attention.npz"
TAG = "attnlab.maps"  # "" where there are maps, else why there are none


@dataclass(frozen=True)
class Map:
    """The softmax weights of one input in one trained model, or why there are none.

    `weights` is an array (layers, heads, t, t) of float16; `words` are its t tokens. `run` and `cell` say whose they are.
    """

    weights: Any = None
    words: tuple[str, ...] = ()
    reason: str = ""
    run: str = ""
    cell: str = ""


def keep(run_id: str, found: Map, *, root: str | Path | None = None) -> None:
    """Attach a run's maps to its record, in place of earlier ones."""
    import numpy

    client = track.connect(track.runs_folder(root))
    if not found.reason:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / FILE
            numpy.savez_compressed(path, weights=found.weights, words=numpy.array(found.words, dtype=str))
            client.log_artifact(run_id, str(path))
    client.set_tag(run_id, TAG, found.reason)


def load(study: str, root: str | Path | None = None) -> list[Map]:
    """The maps that a study's current runs have, and the reasons of those that can have none."""
    import numpy

    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    client = track.connect(track.runs_folder(root))
    experiment = client.get_experiment_by_name(study)
    found = []
    for each in track.search_runs(client, experiment.experiment_id) if experiment else ():
        tags = each.data.tags
        if TAG not in tags or tags.get("attnlab.current") == "no":
            continue
        run, cell = str(each.info.run_name), tags["attnlab.cell"]
        if tags[TAG]:
            found.append(Map(reason=tags[TAG], run=run, cell=cell))
            continue
        with tempfile.TemporaryDirectory() as folder:
            kept = numpy.load(client.download_artifacts(each.info.run_id, FILE, folder))
            found.append(Map(kept["weights"], tuple(kept["words"].tolist()), run=run, cell=cell))
    return found
