"""The looks at a study, as tags of its experiment: those that its verdicts are corrected for, and the record of a new one."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from attnlab._util.run_state import RunState
from attnlab.errors import UserError
from attnlab.stats.compare import CellSummary, ComparisonSpec
from attnlab.stats.look_history import LookHistory, TimedLooks
from attnlab.stats.paired import LEVEL
from attnlab.stats.predict import Futility
from attnlab.stats.sequential import level_at
from attnlab.study.plan import finished_records
from attnlab.tracking.client import connect, runs_folder, search_runs
from attnlab.tracking.record import FUTILE, OWN_LOOKS, RunRecord, StudyRecord, entries, tag, to_tags
from attnlab.tracking.runs import find_experiment, recorded_experiment

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan

logger = logging.getLogger(__name__)

LOOK_PREFIXES = (tag("looks", StudyRecord), tag("judged", StudyRecord), FUTILE)  # of all tags that record looks
MAX_LOOKS = 200  # MLflow rejects an experiment's tag longer than 5,000 characters


def looks_in(tags: Mapping[str, str]) -> LookHistory:
    """Return the looks that the tags of a study's experiment record; `look_tags` returns the tags.

    They include looks at runs of earlier configurations, so that numbers of seeds need not increase.
    """
    record = StudyRecord.of_tags(tags)
    futile = {name: (Futility(*numbers), time) for name, (*numbers, time) in entries(tags, FUTILE).values()}
    own = {name: _pairs(looks) for name, looks in entries(tags, OWN_LOOKS).values()}
    return LookHistory(tuple(record.looks) if record.looks else None, _pairs(record.judged), own, futile)  # type: ignore[arg-type]


def look_tags(looks: LookHistory) -> dict[str, str]:
    """Return the tags that record looks; without any, a tag with none."""
    tags = to_tags(StudyRecord, judged=looks.study, **({"looks": looks.announced} if looks.announced else {}))
    for name, own in looks.own.items():
        tags[f"{OWN_LOOKS}{crc32(name.encode()):08x}"] = json.dumps([name, own])
    for name, (futility, at) in looks.futile.items():
        tags[f"{FUTILE}{crc32(name.encode()):08x}"] = json.dumps([name, [*astuple(futility), at]])
    return tags


def joined_looks(first: LookHistory, second: LookHistory) -> LookHistory:
    """Return the looks of both; if both announced looks, those at any number of seeds from the smallest to the largest."""
    ranges = [looks.announced for looks in (first, second) if looks.announced]
    announced = (min(r[0] for r in ranges), max(r[1] for r in ranges), max(r[2] for r in ranges)) if ranges else None
    own = {name: _merged(first.own.get(name, ()), second.own.get(name, ())) for name in (*first.own, *second.own)}
    return LookHistory(announced, _merged(first.study, second.study), own, {**first.futile, **second.futile})


def look_history(record: StudyRecord, active: Sequence[RunRecord], deleted: Sequence[RunRecord]) -> LookHistory:
    """Return the looks at the runs that a study reports; a run that was redone had its result, the same, from the start."""
    reported = {run.key for run in active if run.is_current}
    start = _start_of(run for run in (*active, *deleted) if (run.redone or run.key) in reported)
    return looks_in(record.tags).since(start)


def recorded_looks(study: str, root: str | Path | None = None) -> LookHistory:
    """Read the looks at the runs that a study reports.

    Raises:
        UserError: the study does not exist, or the MLflow store cannot be used or does not respond.
    """
    client = connect(runs_folder(root))
    record = find_experiment(client, study)
    return look_history(record, *(search_runs(client, record.experiment_id, deleted=stage) for stage in (False, True)))


def announce_looks(study: str, first: int, last: int, root: str | Path | None = None) -> None:
    """Record that a study will be judged at each number of seeds from `first` to `last`, unless it has been judged.

    Raises:
        UserError: the MLflow store cannot be used or does not respond.
    """
    before = recorded_looks(study, root)
    _record(study, before, before.announce(first, last, time=_now()), root)


def record_look(
    spec: ComparisonSpec, cells: Sequence[CellSummary], before: LookHistory, root: str | Path | None = None
) -> LookHistory:
    """Return the looks at a study with that at this table of verdicts, and record it.

    If the store does not accept the record, a warning states so: the table itself is not lost.

    Args:
        spec: The comparison that the study makes.
        cells: Summaries of the table, before any correction for looks.
        before: The earlier looks.
    """
    history = before.add(cells, time=_now(), effects=bool(spec.factorial))
    try:
        _record(spec.study, before, history, root)
    except UserError as error:
        logger.warning("this look at %s is not recorded, so later verdicts are not corrected for it: %s", spec.study, error)
    return history


def record_futility(study: str, futile: Mapping[str, Futility], root: str | Path | None = None) -> None:
    """Record the comparisons that receive no more seeds because they are futile.

    If the store does not accept the record, a warning states so.
    """
    try:
        before = recorded_looks(study, root)
        _record(study, before, before.stop(futile, time=_now()), root)
    except UserError as error:
        logger.warning("the report of %s does not say which cells received no more seeds: %s", study, error)


def further_look_notes(plan: Plan, root: str | Path | None = None) -> list[str]:
    """Return a note when the next run of a plan makes a further look at its runs, with the level of its tests."""
    try:
        recorded = recorded_experiment(plan.study.study, root)
        history = looks_in(recorded[1].tags) if recorded else LookHistory()
        finished = finished_records(plan, root) if history.study or history.announced else {}
    except UserError as error:  # a plan needs no record
        return [f"the looks at this study are not known: {error.message}"]
    looks, seeds = history.since(_start_of(finished.values())).looks, len(plan.seeds)
    if looks is None or seeds <= looks.latest or len(finished) >= plan.total:
        return []
    level, earlier = (2 * level_at(LEVEL / 2, looks, n) for n in (seeds, looks.latest))
    return [
        f"the study was judged at {looks.latest} seeds, so its table with {seeds} seeds is a further look: a test at the "
        f"level {level:.2%} instead of {earlier:.2%}. Adding seeds costs less when the first run of a study has "
        "--until-conclusive, which announces its looks"
    ]


def _start_of(records: Iterable[RunRecord]) -> int | None:
    """Return the start of the earliest completed run of a cell among these records, in ms since the epoch; None without one."""
    completed = (record for record in records if record.is_compared and record.state == RunState.COMPLETED)
    return min((record.start for record in completed), default=None)


def _record(study: str, before: LookHistory, history: LookHistory, root: str | Path | None) -> None:
    """Add the looks of a history that differs from the one before; those that the record has already are not added again."""
    if history == before:
        return
    client = connect(runs_folder(root))
    experiment = find_experiment(client, study)
    earlier = looks_in(experiment.tags)
    is_new = history.announced and history.announced[:2] != (earlier.announced or ())[:2]
    announced = history.announced if is_new else earlier.announced
    for key, value in look_tags(replace(joined_looks(earlier, history), announced=announced)).items():
        if experiment.tags.get(key) != value:
            client.set_experiment_tag(experiment.experiment_id, key, value)


def _merged(earlier: TimedLooks, new: TimedLooks) -> TimedLooks:
    """Return both in the order of time: the latest ones, as many as a tag can hold."""
    return tuple(sorted({*earlier, *new}, key=lambda look: look[1])[-MAX_LOOKS:])


def _pairs(looks: Sequence[Sequence[int]]) -> TimedLooks:
    return tuple((seeds, at) for seeds, at in looks)


def _now() -> int:
    return int(1_000 * time.time())
