"""Records that a user withdraws: deleted, or kept without counting any longer. Their runs are trained again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnlab.errors import UserError, nearest
from attnlab.tracking.attempts import REDONE_TAG
from attnlab.tracking.client import log_batch, search_runs, search_studies

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as Record


def select_records(client: MlflowClient, experiment_id: str, targets: Sequence[str]) -> list[Record]:
    """Return the records of a study that ``targets`` name, each once, in the order in which they started.

    A target is a run's name, a cell's name (all of its runs), or the beginning of a run's ID. A name selects current
    records only; an ID also selects records that the study's plan no longer contains.

    Raises:
        UserError: a target names nothing, or is the beginning of several IDs; ``where`` is the target.
    """
    records = search_runs(client, experiment_id)
    current = [record for record in records if record.data.tags.get("attnlab.current") != "no"]
    selected: set[str] = set()
    for target in targets:
        matches = [record for record in current if target in (record.info.run_name, record.data.tags["attnlab.cell"])]
        matches = matches or [record for record in records if target and record.info.run_id.startswith(target)]
        if not matches:
            names = {str(record.info.run_name) for record in current} | {record.data.tags["attnlab.cell"] for record in current}
            raise UserError(f"no run and no cell of the study has this name or ID{nearest(target, names)}", target)
        if len(matches) > 1 and target not in (matches[0].info.run_name, matches[0].data.tags["attnlab.cell"]):
            raise UserError(f"the IDs of {len(matches)} runs begin like this: give more of one", target)
        selected |= {record.info.run_id for record in matches}
    return [record for record in records if record.info.run_id in selected]


def studies_sharing(client: MlflowClient, record: Record) -> list[str]:
    """Return the names of the other studies that have a record of the same run, and so use the same folder."""
    key = record.data.tags["attnlab.fingerprint"]
    names = {study.experiment_id: study.name for study in search_studies(client)}
    others = [experiment_id for experiment_id in names if experiment_id != record.info.experiment_id]
    sharing = [search_runs(client, experiment_id, f"tags.`attnlab.fingerprint` = '{key}'") for experiment_id in others]
    return [names[experiment_id] for experiment_id, records in zip(others, sharing, strict=True) if records]


def delete_record(client: MlflowClient, record: Record) -> None:
    """Delete a record as MLflow's UI does: MLflow keeps it among its deleted runs until ``mlflow gc``."""
    if record.info.status == "RUNNING":  # its parent is dead
        client.set_terminated(record.info.run_id, "KILLED")
    client.delete_run(record.info.run_id)


def withdraw_record(client: MlflowClient, record: Record, *, folder: str) -> None:
    """Keep a record, but let it no longer count as the result of its run.

    Args:
        folder: where the files of the recorded attempt will be, relative to the runs folder.
    """
    if record.info.status == "RUNNING":  # its parent is dead
        client.set_terminated(record.info.run_id, "KILLED")
    tags = {
        REDONE_TAG: record.data.tags["attnlab.fingerprint"],
        "attnlab.fingerprint": f"redone-{record.info.run_id}",  # no longer the key of any run
        "attnlab.current": "no",
        "attnlab.reason": "withdrawn by attnlab redo",
        "attnlab.folder": folder,
    }
    log_batch(client, record.info.run_id, tags=tags)
