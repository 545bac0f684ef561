"""The looks at a study: those that its verdicts are corrected for, and the record of a new one."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.errors import UserError
from attnlab.stats.compare import CellSummary, ComparisonSpec
from attnlab.stats.look_history import LookHistory
from attnlab.stats.paired import LEVEL
from attnlab.stats.predict import Futility
from attnlab.stats.sequential import level_at
from attnlab.study.plan import finished_records
from attnlab.tracking.client import snapshot
from attnlab.tracking.looks import RecordedLooks, add_looks, earliest_start, read_looks, start_of

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan

logger = logging.getLogger(__name__)


def look_history(study: str, root: str | Path | None = None) -> LookHistory:
    """Return the looks at the runs that a study reports.

    Raises:
        UserError: the MLflow store cannot be used or does not respond.
    """
    return _history(study, root).since(earliest_start(study, root))


def announce_looks(study: str, first: int, last: int, root: str | Path | None = None) -> LookHistory:
    """Record that a study will be judged at each number of seeds from `first` to `last`, unless it has been judged.

    Raises:
        UserError: the MLflow store cannot be used or does not respond.
    """
    before = look_history(study, root)
    history = before.announce(first, last, time=_now())
    if history != before:
        _record(study, history, root)
    return history


def record_look(spec: ComparisonSpec, cells: Sequence[CellSummary], root: str | Path | None = None) -> LookHistory:
    """Return the looks at a study with that at this table of verdicts, and record it.

    If the store cannot be read, or does not accept the record, a warning states so: the table itself is not lost.

    Args:
        spec: The comparison that the study makes.
        cells: Summaries of the table, before any correction for looks.
    """
    study, now = spec.study, _now()
    try:
        with snapshot():
            before = look_history(study, root)
    except UserError as error:
        logger.warning("the earlier looks at %s are not known, so its verdicts are not corrected for them: %s", study, error)
        return LookHistory()
    history = before.add(cells, time=now, effects=bool(spec.factorial))
    if history != before:
        try:
            _record(study, history, root)
        except UserError as error:
            logger.warning("this look at %s is not recorded, so later verdicts are not corrected for it: %s", study, error)
    return history


def record_futility(study: str, futile: Mapping[str, Futility], root: str | Path | None = None) -> None:
    """Record the comparisons that receive no more seeds because they are futile.

    If the store does not accept the record, a warning states so.
    """
    try:
        history = look_history(study, root)
        if (stopped := history.stop(futile, time=_now())) != history:
            _record(study, stopped, root)
    except UserError as error:
        logger.warning("the report of %s does not say which cells received no more seeds: %s", study, error)


def further_look_notes(plan: Plan, root: str | Path | None = None) -> list[str]:
    """Return a note when the next run of a plan makes a further look at its runs, with the level of its tests."""
    try:
        recorded = _history(plan.study.study, root)
        finished = finished_records(plan, root) if recorded.study or recorded.announced else {}
    except UserError as error:  # a plan needs no record
        return [f"the looks at this study are not known: {error.message}"]
    looks, seeds = recorded.since(start_of(finished.values())).looks, len(plan.seeds)
    if looks is None or seeds <= looks.latest or len(finished) >= plan.total:
        return []
    level, earlier = (2 * level_at(LEVEL / 2, looks, n) for n in (seeds, looks.latest))
    return [
        f"the study was judged at {looks.latest} seeds, so its table with {seeds} seeds is a further look: a test at the "
        f"level {level:.2%} instead of {earlier:.2%}. Adding seeds costs less when the first run of a study has "
        "--until-conclusive, which announces its looks"
    ]


def _history(study: str, root: str | Path | None) -> LookHistory:
    recorded = read_looks(study, root)
    futile = {name: (Futility(pairs, seeds, p), time) for name, (pairs, seeds, p, time) in recorded.futile.items()}
    return LookHistory(recorded.announced, recorded.study, recorded.own, futile)


def _record(study: str, history: LookHistory, root: str | Path | None) -> None:
    futile = {name: (*astuple(futility), time) for name, (futility, time) in history.futile.items()}
    add_looks(study, RecordedLooks(history.announced, history.study, history.own, futile), root)


def _now() -> int:
    return int(1_000 * time.time())
