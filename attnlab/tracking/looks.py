"""The looks at a study, as tags of its experiment."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from attnlab._util.run_state import NOT_COMPARED
from attnlab.tracking.attempts import REDONE_TAG
from attnlab.tracking.client import connect, runs_folder, search_runs
from attnlab.tracking.runs import find_experiment, is_current, recorded_experiment

if TYPE_CHECKING:
    from mlflow.entities import Run as Record

ANNOUNCED_TAG = "attnlab.looks"  # first and last number of seeds, and the time of the announcement, as JSON
JUDGED_TAG = "attnlab.judged"  # number of seeds and time of each look, as JSON
OWN_PREFIX = f"{JUDGED_TAG}."  # of a tag per comparison with looks of its own: its name and its looks, as JSON
FUTILE_PREFIX = "attnlab.futile."  # of a tag per comparison that received no more seeds, as JSON
LOOK_PREFIXES = (ANNOUNCED_TAG, JUDGED_TAG, FUTILE_PREFIX)  # of all tags that record looks
MAX_LOOKS = 200  # MLflow rejects an experiment's tag longer than 5,000 characters

Looks = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class RecordedLooks:
    """The record of the looks at a study, in the order of time.

    The fields are as in `attnlab.stats.look_history.LookHistory`, but the record also has looks at runs of earlier
    configurations, so that numbers of seeds need not increase.
    """

    announced: tuple[int, int, int] | None = None
    study: Looks = ()
    own: Mapping[str, Looks] = field(default_factory=dict)
    futile: Mapping[str, tuple[int, int, float, int]] = field(default_factory=dict)  # pairs, seeds, probability, time


def read_looks(study: str, root: str | Path | None = None) -> RecordedLooks:
    """Read the looks at a study; a study without a record has none.

    Raises:
        UserError: the MLflow store cannot be used or does not respond.
    """
    recorded = recorded_experiment(study, root)
    return RecordedLooks() if recorded is None else looks_in(recorded[1].tags)


def looks_in(tags: Mapping[str, str]) -> RecordedLooks:
    """Return the looks that the tags of a study's experiment record; `look_tags` returns the tags."""
    own = dict(json.loads(value) for key, value in tags.items() if key.startswith(OWN_PREFIX))
    futile = [json.loads(value) for key, value in tags.items() if key.startswith(FUTILE_PREFIX)]
    announced = json.loads(tags[ANNOUNCED_TAG]) if ANNOUNCED_TAG in tags else None
    return RecordedLooks(
        tuple(announced) if announced else None,
        _pairs(json.loads(tags.get(JUDGED_TAG, "[]"))),
        {name: _pairs(looks) for name, looks in own.items()},
        {name: tuple(numbers) for name, numbers in futile},  # type: ignore[misc]
    )


def look_tags(looks: RecordedLooks) -> dict[str, str]:
    """Return the tags that record looks; without any, a tag with none."""
    tags = {JUDGED_TAG: json.dumps(looks.study)}
    if looks.announced:
        tags[ANNOUNCED_TAG] = json.dumps(looks.announced)
    for name, own in looks.own.items():
        tags[f"{OWN_PREFIX}{crc32(name.encode()):08x}"] = json.dumps([name, own])
    for name, numbers in looks.futile.items():
        tags[f"{FUTILE_PREFIX}{crc32(name.encode()):08x}"] = json.dumps([name, numbers])
    return tags


def add_looks(study: str, looks: RecordedLooks, root: str | Path | None = None) -> None:
    """Add looks at a study to its record; those that it has already are not added again.

    Raises:
        UserError: the study does not exist, or the MLflow store does not accept the record.
    """
    client = connect(runs_folder(root))
    experiment = find_experiment(client, study)
    earlier = looks_in(experiment.tags)
    announced = earlier.announced
    if looks.announced and looks.announced[:2] != (announced or ())[:2]:
        announced = looks.announced
    new = look_tags(replace(joined_looks(earlier, looks), announced=announced))
    for key, value in new.items():
        if experiment.tags.get(key) != value:
            client.set_experiment_tag(experiment.experiment_id, key, value)


def joined_looks(first: RecordedLooks, second: RecordedLooks) -> RecordedLooks:
    """Return the looks of both; if both announced looks, those at any number of seeds from the smallest to the largest."""
    ranges = [looks.announced for looks in (first, second) if looks.announced]
    announced = (min(r[0] for r in ranges), max(r[1] for r in ranges), max(r[2] for r in ranges)) if ranges else None
    own = {name: _merged(first.own.get(name, ()), second.own.get(name, ())) for name in (*first.own, *second.own)}
    return RecordedLooks(announced, _merged(first.study, second.study), own, {**first.futile, **second.futile})


def earliest_start(study: str, root: str | Path | None = None) -> int | None:
    """Return the start of the earliest completed run that the study reports, in ms since the epoch; None when it has none.

    A run that was withdrawn and trained again had its result, which is the same, from the start.
    """
    recorded = recorded_experiment(study, root)
    if recorded is None:
        return None
    active, deleted = (search_runs(recorded[0], recorded[1].experiment_id, deleted=stage) for stage in (False, True))
    reported = {record.data.tags["attnlab.fingerprint"] for record in active if is_current(record)}
    return start_of(
        r for r in (*active, *deleted) if r.data.tags.get(REDONE_TAG, r.data.tags["attnlab.fingerprint"]) in reported
    )


def start_of(records: Iterable[Record]) -> int | None:
    """Return the start of the earliest completed run of a cell among these records; None without one."""
    starts = [
        record.info.start_time
        for record in records
        if record.data.tags.get("attnlab.state") == "completed" and record.data.tags.get("attnlab.phase") not in NOT_COMPARED
    ]
    return min(starts, default=None)


def _merged(earlier: Looks, new: Looks) -> Looks:
    """Return both in the order of time: the latest ones, as many as a tag can hold."""
    return tuple(sorted({*earlier, *new}, key=lambda look: look[1])[-MAX_LOOKS:])


def _pairs(looks: list[list[int]]) -> Looks:
    return tuple((seeds, time) for seeds, time in looks)
