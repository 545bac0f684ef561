"""The attempts at a run, as tags of their records, their final metrics, and what follows when a study is run again.

The names of tags that several modules use are here, too.

MLflow's databases have no infinity: they hold the largest float in its place, which `restored` reads as infinity again, like
every value too large for statistics.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from attnlab._util.metrics import is_curve
from attnlab._util.run_state import WITHOUT_RESULT, Reset, RunState

if TYPE_CHECKING:
    from mlflow.entities import Run as Record


QUESTIONS_TAG = "attnlab.questions"  # experiment tag: the questions the study has asked, as JSON
DOUBLES_TAG = "attnlab.doubles"  # experiment tag: baselines that are doubles -> the cells that are run for them, as JSON
THREADS_TAG = "attnlab.threads"  # experiment tag: CPU threads of each run whose configuration leaves their number open
PLANNED_TAG = "attnlab.planned"  # experiment tag: the cells and seeds of the study's latest plan, packed
STUDY_TAG = "attnlab.study"  # of experiments and runs: the study's name
STATUS = {  # MLflow's; FINISHED for all other states
    RunState.FAILED: "FAILED",
    RunState.TIMED_OUT: "FAILED",
    RunState.INTERRUPTED: "KILLED",
    RunState.REFUSED: "KILLED",
}
RESET_TAG = "attnlab.reset"  # tag of an attempt that removes files of an earlier one first: the value of ``Reset``
REPLACED_TAG = "attnlab.replaced"  # tag of a record that attnlab deleted, as opposed to the user: "yes", or `RETRIED`
RETRIED = "retried"  # value of ``REPLACED_TAG``: the record had a result, and the user wanted another attempt
REDONE_TAG = "attnlab.redone"  # tag of a record that the user withdrew with `attnlab redo`: the key it had
DEVICE_TAG = "attnlab.device"  # tag that an attempt gets when its process starts to train
LARGEST = 1e70  # moments of larger values overflow; MLflow writes 1.7976931348623157e308 for infinity


def failures(record: Record) -> int:
    """Return how many attempts of a run have failed up to this record, not counting those that lost their parent."""
    return int(record.data.tags.get("attnlab.failures", 0))


def state_of(record: Record) -> str:
    """Return the state that a record was closed with, or ``running``."""
    return record.data.tags.get("attnlab.state", "")


def starts_from(record: Record) -> str:
    """Return the key of the run that a run started from, or ""."""
    init = json.loads(record.data.tags.get("attnlab.config", "{}")).get("init")
    return init["fingerprint"] if init else ""


def reset_pending(record: Record) -> Reset:
    """Return the files that an attempt with ``reset`` should have removed, if it ended before its process did so."""
    return Reset(record.data.tags.get(RESET_TAG, "") if DEVICE_TAG not in record.data.tags else "")


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


def restored(value: float) -> float:
    """Return a metric as statistics read it: infinite from `LARGEST` on, where the run counts as diverged."""
    return value if not abs(value) >= LARGEST else math.copysign(math.inf, value)


def final_metrics(record: Record) -> dict[str, float]:
    """Return the final metrics of a record."""
    return {name: restored(value) for name, value in record.data.metrics.items() if not is_curve(name)}
