"""Decisions from the records of earlier calls, as pure functions that the scheduler calls at its start."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from attnlab._util.run_state import WITHOUT_RESULT, Reset
from attnlab.tracking.attempts import failures, reset_pending, starts_from, state_of
from attnlab.tracking.summary import final_metrics

if TYPE_CHECKING:
    from attnlab.tracking.client import Record


def has_result(record: Record, *, retries: int) -> bool:
    """Return whether a run is finished: MLflow says so, or its attempts have failed more than ``retries`` times."""
    return record.info.status == "FINISHED" or failures(record) > retries


def records_to_replace(records: Mapping[str, Record], retry: Collection[str]) -> set[str]:
    """Return MLflow's ids of the records in one of the states that the user wants retried.

    Ids, not keys: once a new attempt has replaced such a record, the new one counts as any other.
    """
    return {record.info.run_id for record in records.values() if state_of(record) in retry}


def outdated_records(records: Mapping[str, Record], renewed: Collection[str]) -> dict[str, Record]:
    """Return, by key, the records of runs that started, directly or indirectly, from one that is trained again.

    Args:
        renewed: keys of the runs that are trained again although they had a result.
    """
    outdated: dict[str, Record] = {}
    sources = {key: source for key, record in records.items() if (source := starts_from(record))}
    while new := {key for key, source in sources.items() if source in (*renewed, *outdated) and key not in outdated}:
        outdated |= {key: records[key] for key in new}
    return outdated


def files_to_remove(
    records: Mapping[str, Record], retry: Collection[str], *, withdrawn: Collection[str] = ()
) -> dict[str, Reset]:
    """Return, by key, the files that should be removed before a run is trained again; keys without any are left out.

    These are the results that the user wants retried, everything of the runs that the user withdrew, and the files that
    an earlier call ended too early to remove. Of states without a result nothing is removed: their checkpoints are what
    the next attempt resumes from.
    """
    pending = {key: reset for key, record in records.items() if (reset := reset_pending(record))}
    retried = [key for key, record in records.items() if state_of(record) in set(retry) - WITHOUT_RESULT]
    return dict.fromkeys(retried, Reset.RESULT) | pending | dict.fromkeys(withdrawn, Reset.FOLDER)


def trials_to_queue(
    keys: Collection[str], *, ended: Collection[str], recorded: Collection[str], finished: Collection[str]
) -> list[str]:
    """Return the trials of one search that need a ticket, in the order of ``keys``.

    Args:
        keys: of the search's trials.
        ended: keys with an outcome on their ticket.
        recorded: keys with a closed record in MLflow.
        finished: keys with a record that counts as a result.

    A trial that ended without a record was an invalid configuration, and would be one again. A trial with a result but
    without a ticket (``optuna.db`` was deleted) gets a ticket: its child finds the result in its folder.
    """
    return [key for key in keys if key not in ended or (key in recorded and key not in finished)]


def metric_of(record: Record, metric: str) -> float:
    """Return a final metric of a record, NaN when it has none."""
    return final_metrics(record).get(metric, math.nan)
