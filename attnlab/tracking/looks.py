"""The looks at a study, as tags of its experiment."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from zlib import crc32

from attnlab._util.run_state import RunState
from attnlab.tracking.client import connect, runs_folder, search_runs
from attnlab.tracking.record import FUTILE, OWN_LOOKS, RunRecord, StudyRecord, entries, tag, to_tags
from attnlab.tracking.runs import find_experiment, recorded_experiment

LOOK_PREFIXES = (tag("looks", StudyRecord), tag("judged", StudyRecord), FUTILE)  # of all tags that record looks
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
    record = StudyRecord.of_tags(tags)
    return RecordedLooks(
        tuple(record.looks) if record.looks else None,  # type: ignore[arg-type]
        _pairs(record.judged),
        {name: _pairs(looks) for name, looks in entries(tags, OWN_LOOKS).values()},
        {name: tuple(numbers) for name, numbers in entries(tags, FUTILE).values()},
    )


def look_tags(looks: RecordedLooks) -> dict[str, str]:
    """Return the tags that record looks; without any, a tag with none."""
    tags = to_tags(StudyRecord, judged=looks.study, **({"looks": looks.announced} if looks.announced else {}))
    for name, own in looks.own.items():
        tags[f"{OWN_LOOKS}{crc32(name.encode()):08x}"] = json.dumps([name, own])
    for name, numbers in looks.futile.items():
        tags[f"{FUTILE}{crc32(name.encode()):08x}"] = json.dumps([name, numbers])
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
    reported = {record.key for record in active if record.is_current}
    return start_of(record for record in (*active, *deleted) if (record.redone or record.key) in reported)


def start_of(records: Iterable[RunRecord]) -> int | None:
    """Return the start of the earliest completed run of a cell among these records; None without one."""
    completed = (record for record in records if record.is_compared and record.state == RunState.COMPLETED)
    return min((record.start for record in completed), default=None)


def _merged(earlier: Looks, new: Looks) -> Looks:
    """Return both in the order of time: the latest ones, as many as a tag can hold."""
    return tuple(sorted({*earlier, *new}, key=lambda look: look[1])[-MAX_LOOKS:])


def _pairs(looks: list[list[int]]) -> Looks:
    return tuple((seeds, time) for seeds, time in looks)
