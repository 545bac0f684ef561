"""Records of a study that do not count: withdrawn by the user, of seeds that the plan no longer contains, or to be replaced.

A user may withdraw records: they are deleted, or kept without counting any longer. Their runs are trained again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnlab._util.run_state import WITHOUT_RESULT, Reset
from attnlab.config.comparability import comparable_fields
from attnlab.errors import UserError, nearest
from attnlab.tracking.client import log_batch, search_runs, search_studies
from attnlab.tracking.record import RETRIED, RunRecord, to_tags, with_tag

if TYPE_CHECKING:
    from mlflow import MlflowClient

Place = tuple[str, int]  # cell and seed


def withdrawn_records(active: Iterable[RunRecord], deleted: Iterable[RunRecord]) -> list[RunRecord]:
    """Return the records with results that a user withdrew: deleted, redone, or retried.

    Records that attnlab itself replaced, because an attempt failed, was interrupted or lacked memory, are not withdrawn.
    """
    by_user = [record for record in deleted if record.replaced in (None, RETRIED)]
    return [record for record in (*by_user, *(r for r in active if r.redone)) if record.is_result]


def left_out_records(active: Iterable[RunRecord]) -> list[RunRecord]:
    """Return the records with results that the plan of their study no longer contains."""
    return [record for record in active if record.is_result and not record.is_current and not record.redone]


def places(records: Sequence[RunRecord], shown: Sequence[RunRecord]) -> set[Place]:
    """Return the cell and seed of records that a study does not report; those of another training or configuration have none.

    The plan may no longer contain the cell of a record, which then counts if it was trained as long and tested like the
    others.

    Args:
        shown: The records that the study reports.
    """
    if not records:
        return set()
    found: set[Place] = set()
    cells, trainings = {_configuration(record): record.cell for record in shown}, {_training(record) for record in shown}
    for record in records:
        is_alike = record.cell not in cells.values() and _training(record) in trainings
        if cell := cells.get(_configuration(record), record.cell if is_alike else ""):
            found.add((cell, record.seed))
    return found


def _configuration(record: RunRecord) -> str:
    """Return a text that is equal for runs of one cell, whatever their seed and the values that a sweep or a search set."""
    fields = comparable_fields(record.config, "" if "command" in record.config else record.version)
    return json.dumps({name: fields[name] for name in fields.keys() - record.params.keys()}, sort_keys=True)


def _training(record: RunRecord) -> tuple[Any, ...]:
    """Return what runs of one study's cells have in common: their test and the length of training, or their program."""
    train = record.config.get("train", {})
    return record.test, train.get("steps"), train.get("epochs"), record.config.get("command")


def outdated_records(records: Mapping[str, RunRecord], renewed: Collection[str]) -> dict[str, RunRecord]:
    """Return, by key, the records of runs that started, directly or indirectly, from one that is trained again.

    Args:
        renewed: keys of the runs that are trained again although they had a result.
    """
    outdated: dict[str, RunRecord] = {}
    sources = {key: record.starts_from for key, record in records.items() if record.starts_from}
    while new := {key for key, source in sources.items() if source in (*renewed, *outdated) and key not in outdated}:
        outdated |= {key: records[key] for key in new}
    return outdated


def files_to_remove(
    records: Mapping[str, RunRecord], retry: Collection[str], *, withdrawn: Collection[str] = ()
) -> dict[str, Reset]:
    """Return, by key, the files that should be removed before a run is trained again; keys without any are left out.

    These are the results that the user wants retried, everything of the runs that the user withdrew, and the files that
    an earlier call ended too early to remove. Of states without a result nothing is removed: their checkpoints are what
    the next attempt resumes from.
    """
    pending = {key: record.pending_reset for key, record in records.items() if record.pending_reset}
    retried = [key for key, record in records.items() if record.state in set(retry) - WITHOUT_RESULT]
    return dict.fromkeys(retried, Reset.RESULT) | pending | dict.fromkeys(withdrawn, Reset.FOLDER)


def select_records(client: MlflowClient, experiment_id: str, targets: Sequence[str]) -> list[RunRecord]:
    """Return the records of a study that ``targets`` name, each once, in the order in which they started.

    A target is a run's name, a cell's name (all of its runs), or the beginning of a run's ID. A name selects current
    records only; an ID also selects records that the study's plan no longer contains.

    Raises:
        UserError: a target names nothing, or is the beginning of several IDs; ``where`` is the target.
    """
    records = search_runs(client, experiment_id)
    current = [record for record in records if record.is_current]
    selected: set[str] = set()
    for target in targets:
        matches = [record for record in current if target in (record.name, record.cell)]
        matches = matches or [record for record in records if target and record.run_id.startswith(target)]
        if not matches:
            names = {name for record in current for name in (record.name, record.cell)}
            raise UserError(f"no run and no cell of the study has this name or ID{nearest(target, names)}", target)
        if len(matches) > 1 and target not in (matches[0].name, matches[0].cell):
            raise UserError(f"the IDs of {len(matches)} runs begin like this: give more of one", target)
        selected |= {record.run_id for record in matches}
    return [record for record in records if record.run_id in selected]


def studies_sharing(client: MlflowClient, record: RunRecord) -> list[str]:
    """Return the names of the other studies that have a record of the same run, and so use the same folder."""
    others = [study for study in search_studies(client) if study.experiment_id != record.experiment_id]
    return [study.name for study in others if search_runs(client, study.experiment_id, with_tag("key", record.key))]


def delete_record(client: MlflowClient, record: RunRecord) -> None:
    """Delete a record as MLflow's UI does: MLflow keeps it among its deleted runs until ``mlflow gc``."""
    if record.status == "RUNNING":  # its parent is dead
        client.set_terminated(record.run_id, "KILLED")
    client.delete_run(record.run_id)


def withdraw_record(client: MlflowClient, record: RunRecord, *, folder: str) -> None:
    """Keep a record, but let it no longer count as the result of its run.

    Args:
        folder: where the files of the recorded attempt will be, relative to the runs folder.
    """
    if record.status == "RUNNING":  # its parent is dead
        client.set_terminated(record.run_id, "KILLED")
    withdrawn = {"redone": record.key, "key": f"redone-{record.run_id}"}  # no longer the key of any run
    withdrawn |= {"current": "no", "reason": "withdrawn by attnlab redo", "folder": folder}
    log_batch(client, record.run_id, tags=to_tags(**withdrawn))
