"""The attempts at a run, as tags of their records, and the names of tags that several modules use."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from attnlab._util.run_state import Reset, RunState

if TYPE_CHECKING:
    from mlflow.entities import Run as Record

QUESTIONS_TAG = "attnlab.questions"  # experiment tag: the questions the study has asked, as JSON
DOUBLES_TAG = "attnlab.doubles"  # experiment tag: baselines that are doubles -> the cells that are run for them, as JSON
THREADS_TAG = "attnlab.threads"  # experiment tag: CPU threads of each run whose configuration leaves their number open
MACHINE_TAG = "attnlab.auto_machine"  # experiment tag: type of device -> field that is `auto` -> value and reason, as JSON
CHAIN_TAG = "attnlab.chain"  # of runs that start from a stage: the key of its configuration without seeds (`key_of_stage`)
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
