"""Records of a study that do not count: withdrawn by the user, or of seeds that the plan no longer contains.

A user may withdraw records: they are deleted, or kept without counting any longer. Their runs are trained again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnlab._util.run_state import NOT_COMPARED, RunState
from attnlab.errors import UserError, nearest
from attnlab.tracking.artifacts import FILES, WEIGHTS_TAG, logged_models
from attnlab.tracking.attempts import REDONE_TAG, REPLACED_TAG, RETRIED, state_of
from attnlab.tracking.client import log_batch, search_runs, search_studies
from attnlab.tracking.runs import is_current
from attnlab.tracking.tags import flatten_config

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as Record

RESULTS = (RunState.COMPLETED, RunState.DIVERGED)  # a run that failed or had too little memory may be tried again


def withdrawn_records(active: Iterable[Record], deleted: Iterable[Record]) -> list[Record]:
    """Return the records with results that a user withdrew: deleted, redone, or retried.

    Records that attnlab itself replaced, because an attempt failed, was interrupted or lacked memory, are not withdrawn.
    """
    by_user = [record for record in deleted if record.data.tags.get(REPLACED_TAG) in (None, RETRIED)]
    return [*filter(_has_result, by_user), *filter(_has_result, (r for r in active if REDONE_TAG in r.data.tags))]


def shown_records(active: Iterable[Record]) -> list[Record]:
    """Return the records that a study reports."""
    return [record for record in active if is_current(record) and _is_compared(record)]


def place_of(record: Record) -> tuple[str, int]:
    """Return the cell and the seed of a record."""
    return record.data.tags["attnlab.cell"], int(record.data.tags["attnlab.seed"])


def places(records: Sequence[Record], shown: Sequence[Record]) -> set[tuple[str, int]]:
    """Return the cell and seed of records that a study does not report; those of another training or configuration have none.

    The plan may no longer contain the cell of a record, which then counts if it was trained as long and tested like the
    others.
    """
    found: set[tuple[str, int]] = set()
    cells = {_configuration(record): record.data.tags["attnlab.cell"] for record in shown} if records else {}
    trainings = {_training(record) for record in shown} if records else set()
    for record in records:
        own, seed = place_of(record)
        is_alike = own not in cells.values() and _training(record) in trainings
        if cell := cells.get(_configuration(record), own if is_alike else ""):
            found.add((cell, seed))
    return found


def left_out_records(active: Iterable[Record]) -> list[Record]:
    """Return the records with results that the plan of their study no longer contains."""
    return [r for r in active if not is_current(r) and REDONE_TAG not in r.data.tags and _has_result(r)]


def _is_compared(record: Record) -> bool:
    return record.data.tags.get("attnlab.phase") not in NOT_COMPARED


def _has_result(record: Record) -> bool:
    return record.info.status == "FINISHED" and _is_compared(record) and state_of(record) in RESULTS


def _configuration(record: Record) -> str:
    """Return a text that is equal for runs of one cell, whatever their seed and the values that a sweep or a search set."""
    tags = record.data.tags
    config = json.loads(tags["attnlab.config"])
    fields = comparable_fields(config, "" if "command" in config else version_of(tags))
    return json.dumps(
        {name: fields[name] for name in fields.keys() - json.loads(tags.get("attnlab.params", "{}")).keys()}, sort_keys=True
    )


def _training(record: Record) -> tuple[Any, ...]:
    """Return what runs of one study's cells have in common: their test and the length of training, or their program."""
    config = json.loads(record.data.tags["attnlab.config"])
    train = config.get("train", {})
    return record.data.tags.get("attnlab.test"), train.get("steps"), train.get("epochs"), config.get("command")


def comparable_fields(config: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return what must be equal in the runs of one cell: all but seeds and folders, and the digests of code, not its files.

    Args:
        config: The configuration, as read from its JSON.
        version: Of attnlab.
    """
    fields = {name: _without_folders(value) for name, value in flatten_config(dict(config)).items()}
    fields |= {"code": ", ".join(sorted(digest[:12] for digest in config.get("sources", {}).values()))}
    return {name: value for name, value in fields.items() if name not in ("seed", "sources", "init.run")} | {"attnlab": version}


def _without_folders(value: Any) -> Any:
    return value.rpartition("/")[2] if isinstance(value, str) else value


def version_of(tags: Mapping[str, str]) -> str:
    """Return the version of attnlab in the tags of a run; "" in a record without one."""
    return tags.get("attnlab.versions", "").partition(",")[0].removeprefix("attnlab ")


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
    for model in logged_models(client, record):
        client.delete_logged_model(model.model_id)


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
    for model in logged_models(client, record):
        client.set_logged_model_tags(model.model_id, {WEIGHTS_TAG: f"{folder}/{FILES[0]}"})
