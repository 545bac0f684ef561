"""The calls that ran a study, each command with its study file, and the looks at it, as tags of the experiment.

A report needs the calls to reproduce itself. The records of runs are not enough: a call that only leaves out seeds starts no
run, and the study file may have changed between two calls.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from attnlab._util.redact import command_line
from attnlab._util.run_state import NOT_COMPARED
from attnlab.config.paths import assignment
from attnlab.tracking.client import connect, runs_folder, search_runs
from attnlab.tracking.runs import find_experiment, recorded_experiment
from attnlab.tracking.tags import command, study_text

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as Record

    from attnlab.planning.plan import Plan

CALL_PREFIX = "attnlab.call."  # of experiment tags, one for each call
FILE_PREFIX = "attnlab.study_file."  # of experiment tags with a study file, compressed, in parts
PART_LENGTH = 4_500  # characters of one part; MLflow rejects an experiment's tag longer than 5,000
LARGEST = 1 << 20  # bytes of a study file
MAX_COMMAND = 4_000  # characters
TRAINING_VERBS = ("run", "train")
ANNOUNCED_TAG = "attnlab.looks"  # first and last number of seeds, and the time of the announcement, as JSON
JUDGED_TAG = "attnlab.judged"  # number of seeds and time of each look, as JSON
OWN_PREFIX = f"{JUDGED_TAG}."  # of a tag per comparison with looks of its own: its name and its looks, as JSON
FUTILE_PREFIX = "attnlab.futile."  # of a tag per comparison that received no more seeds, as JSON
LOOK_PREFIXES = (ANNOUNCED_TAG, JUDGED_TAG, FUTILE_PREFIX)  # of all tags that record looks
MAX_LOOKS = 200  # MLflow rejects an experiment's tag longer than 5,000 characters

Looks = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Call:
    """One call that ran a study.

    Attributes:
        command: the command line, without secrets; of a call in Python, the command that does the same.
        file: name of the study file in the command; the file need not exist if a dictionary was given.
        text: content of the study file, without secrets.
        partial: the call ran a part of the study and left the records of the other cells unchanged.
        time: start of the call, in milliseconds since the epoch.
    """

    command: str
    file: str
    text: str
    partial: bool = False
    time: int = 0


def record_call(client: MlflowClient, experiment_id: str, plan: Plan, *, partial: bool) -> None:
    """Record the present call as the last one, unless the last one was the same."""
    file = plan.study.path.name if plan.study.path else f"{plan.study.study}.yaml"
    call = Call(_command(plan, file), file, study_text(plan), partial, int(1_000 * time.time()))
    tags = client.get_experiment(experiment_id).tags
    earlier = read_calls(tags)
    if earlier and replace(earlier[-1], time=call.time) == call:
        return
    new = call_tags(call, number=len(earlier))
    for key, value in new.items():  # the call last: it refers to the file
        if tags.get(key) != value:
            client.set_experiment_tag(experiment_id, key, value)


def call_tags(call: Call, *, number: int) -> dict[str, str]:
    """Return the tags that record a call; `number` counts the earlier ones. The last tag refers to the others."""
    digest = hashlib.sha256(call.text.encode()).hexdigest()[:12]
    packed = base64.b64encode(zlib.compress(call.text.encode(), 9)).decode()
    parts = {
        f"{FILE_PREFIX}{digest}.{i}": packed[at : at + PART_LENGTH] for i, at in enumerate(range(0, len(packed), PART_LENGTH))
    }
    return {**parts, f"{CALL_PREFIX}{number:04d}": json.dumps({**asdict(call), "text": [digest, len(parts)]})}


def read_calls(tags: Mapping[str, str]) -> list[Call]:
    """Return the calls recorded in the tags of a study's experiment, the last one last."""
    calls = []
    for key in sorted(key for key in tags if key.startswith(CALL_PREFIX)):
        fields = json.loads(tags[key])
        digest, parts = fields["text"]
        packed = "".join(tags[f"{FILE_PREFIX}{digest}.{i}"] for i in range(parts))
        text = zlib.decompressobj().decompress(base64.b64decode(packed), LARGEST).decode()
        calls.append(Call(fields["command"], fields["file"], text, fields.get("partial", False), fields.get("time", 0)))
    return calls


def _command(plan: Plan, file: str) -> str:
    """Return this process's command line if it is one of attnlab's, else the command that does the same."""
    typed = command(most=MAX_COMMAND)
    if typed.startswith("attnlab ") and sys.argv[1:2] and sys.argv[1] in TRAINING_VERBS and len(typed) < MAX_COMMAND:
        return typed
    assignments = plan.study.assignments if plan.study.path else {}  # those over a dictionary are in its YAML
    sets = [f"--set={assignment(path, value)}" for path, value in assignments.items()]
    return command_line(["attnlab", "run", file, *sets])


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
    """Return the start of the earliest completed run that the study reports, in ms since the epoch; None when it has none."""
    recorded = recorded_experiment(study, root)
    if recorded is None:
        return None
    records = search_runs(recorded[0], recorded[1].experiment_id)
    return start_of(record for record in records if record.data.tags.get("attnlab.current") != "no")


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
