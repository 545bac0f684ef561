"""What is read back from MLflow: runs, curves, and what a study asked."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.cost_metrics import describe_in
from attnlab._util.metrics import is_curve
from attnlab.config.yaml import read
from attnlab.errors import UserError, nearest
from attnlab.tracking import tags as record

if TYPE_CHECKING:
    import pandas
    from mlflow import MlflowClient
    from mlflow.entities import Experiment
    from mlflow.entities import Run as Record
from attnlab.tracking.client import QUESTIONS, connect, runs_folder, search_runs

LOOKS = "attnlab.looks"  # tag of an experiment


def _experiment(client: MlflowClient, study: str) -> Experiment:
    found = client.get_experiment_by_name(study)
    if found is None:
        known = [each.name for each in client.search_experiments() if each.name != "Default"]
        meant = _name_in(Path(study)) or nearest(study, known)
        raise UserError(f"no study {study!r}{meant}; there are: {', '.join(known) or 'none'}")
    return found


def _name_in(path: Path) -> str:
    """What the study of a file is called, where a file was given for a name; else ``""``."""
    if path.suffix not in (".yaml", ".yml"):
        return ""
    try:
        name = read(path, what="a study")[0].get("study")
    except UserError:
        return ""
    return f": expected a study's name, and the study of {path} is {name!r}"


@describe_in("COST METRICS")
def load_runs(study: str, root: str | Path | None = None, *, every: bool = False) -> pandas.DataFrame:
    """The runs of a study as a table, one row a run, in the order they were started.

    Columns, text unless it says otherwise; what a run has not is NaN, None or "":

    ============================  ===================================================================================
    ``run_id``                    MLflow's id of it
    ``name``, ``cell``            ``no_wo learned s0`` (of a trial ``no_wo learned t07``), and without the seed
    ``study``                     the study's name
    ``state``                     ``running completed pruned diverged out_of_memory refused failed timed_out interrupted``
    ``reason``                    one line, where it is not completed
    ``seed``, ``attempt``         whole numbers; the second counts from 1
    ``fingerprint``               of the configuration, 16 hex digits; of a trial and of a refused cell a key like one
    ``phase``                     ``grid``, or ``search`` and ``confirm`` of a searched study
    ``trial``                     number of a trial within the search of its cell
    ``params``                    a dict: dotted path -> value that the search chose
    ``task variant position``     as one text: ``strided_sparse stride=16``
    ``backend``, ``data``         what ``auto`` became; the identity of the task's data
    ``model.dim``, ``train.lr``   each other field of the configuration, dotted, of its own type
    ``length``                    of the task's sequences, in tokens
    each axis of the grid         its label: text, number or boolean
    ``accuracy``, ``loss``        scores on the test split: shares of 1, nats
    ``bits_per_byte``             the same, bits
    ``valid_...``                 each of these on the validation split
    ``..._at/512``                each of these on the test split at another length (``evaluate.lengths``)
    COST METRICS
    ``..._seconds``               s: of the last evaluation on each split (``valid_``, ``test_``, ``lengths_seconds``), and
                                  ``startup_``, ``evaluation_``, ``logging_`` and ``checkpoint_seconds`` of the whole run
    ``length.512``                why there is no score at that length
    ``started``                   a time, UTC
    ``seconds``                   s from there to the end, or to now
    ``folder``                    of its checkpoints and of ``model.pt``
    ``device versions commit``    the processor; packages; git's, ``+dirty`` where files differ from it
    ``matched``                   how the cell was made to cost as much as its baseline
    ============================  ===================================================================================

    Args:
        every: also the runs that the study's last plan no longer holds (an edited YAML, another ``--set``).

    Raises:
        UserError: no such study, or no runs at all.
    """
    import pandas

    folder = runs_folder(root)
    client = connect(folder)
    found = search_runs(client, _experiment(client, study).experiment_id)
    rows = [_row(each, folder) for each in found if every or each.data.tags.get("attnlab.current") != "no"]
    return pandas.DataFrame(rows)


def _row(found: Record, root: Path) -> dict[str, Any]:
    tags, info = found.data.tags, found.info
    tag = {key.removeprefix("attnlab."): value for key, value in tags.items() if key.startswith("attnlab.")}
    ended = (info.end_time or int(1_000 * time.time())) / 1_000
    import pandas

    row = {"run_id": info.run_id, "name": info.run_name, "cell": tag.get("cell"), "study": tag.get("study")}
    row |= {"state": tag.get("state"), "reason": tag.get("reason", ""), "seed": int(tag["seed"])}
    row |= {"fingerprint": tag["fingerprint"], "attempt": int(tag.get("attempt", 1))}
    row |= {"phase": tag.get("phase", "grid"), "trial": int(tag["trial"]) if "trial" in tag else None}
    row |= {"params": json.loads(tag.get("params", "{}"))}
    row |= {**record.flat(json.loads(tag["config"])), **json.loads(tag["axes"])}
    row |= {name: value for name, value in found.data.metrics.items() if not is_curve(name)}
    row |= {key: value for key, value in tag.items() if key.startswith("length.")}
    row |= {"length": int(text) if (text := found.data.params.get("length", "")).isdigit() else None}
    row |= {"started": pandas.to_datetime(info.start_time, unit="ms", utc=True)}
    seconds = ended - info.start_time / 1_000  # below 0 where the clock was set back meanwhile: then nobody knows
    row |= {"seconds": seconds if seconds >= 0 else math.nan, "folder": str(root / tag.get("folder", ""))}
    row |= {key: tag.get(key, "") for key in ("device", "versions", "commit", "matched")}
    return row


def load_curves(study: str, root: str | Path | None = None) -> pandas.DataFrame:
    """Every point of every curve of a study's current runs: ``run_id name metric step value``."""
    import pandas

    folder = runs_folder(root)
    client = connect(folder)
    found = search_runs(client, _experiment(client, study).experiment_id)
    points = [
        {
            "run_id": each.info.run_id,
            "name": each.info.run_name,
            "metric": key,
            "step": p.step,
            "value": p.value,
        }
        for each in found
        if each.data.tags.get("attnlab.current") != "no"
        for key in sorted(each.data.metrics)
        if is_curve(key)
        for p in client.get_metric_history(each.info.run_id, key)
    ]
    return pandas.DataFrame(points, columns=["run_id", "name", "metric", "step", "value"])


def questions(study: str, root: str | Path | None = None) -> list[dict[str, Any]]:
    """What the study asks, last, and what it asked before, since it had results: ``metric direction baseline margin``.

    Not what its YAML says: that is as it was when a run was made, and the command line may have said something else over it.
    """
    return json.loads(_experiment(connect(runs_folder(root)), study).tags.get(QUESTIONS, "[]"))


def looks(study: str, root: str | Path | None = None) -> tuple[int, int] | None:
    """The first and the last number of seeds at which the verdicts of a study may be looked at; None: once, at the end."""
    client = connect(runs_folder(root))
    text = _experiment(client, study).tags.get(LOOKS)
    return tuple(json.loads(text)) if text else None


def record_looks(study: str, first: int, last: int, root: str | Path | None = None) -> tuple[int, int]:
    """Write down that there are to be looks from ``first`` to ``last`` seeds, before the first of them is taken.

    What has been written down stays: a later plan can only widen it. Returns what holds then.
    """
    before = looks(study, root) or (first, last)
    found = min(first, before[0]), max(last, before[1])
    client = connect(runs_folder(root))
    client.set_experiment_tag(_experiment(client, study).experiment_id, LOOKS, json.dumps(found))
    return found
