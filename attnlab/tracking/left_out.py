"""Runs with a result that a study does not report: withdrawn, left out by its plan, or recorded under another study."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.run_state import NOT_COMPARED, RunState
from attnlab.tracking.attempts import REDONE_TAG, REPLACED_TAG, RETRIED, state_of
from attnlab.tracking.history import key_of_record, version_of
from attnlab.tracking.runs import is_current, row_of
from attnlab.tracking.tags import flatten_config

if TYPE_CHECKING:
    from mlflow.entities import Run as Record

Place = tuple[str, str, str]
RESULTS = (RunState.COMPLETED, RunState.DIVERGED)  # a run that failed or had too little memory may be tried again


def withdrawn_records(active: Iterable[Record], deleted: Iterable[Record]) -> list[tuple[Record, str]]:
    """Return the records with results that a user withdrew, each with the way in which: deleted, redone, or retried.

    Records that attnlab itself replaced, because an attempt failed, was interrupted or lacked memory, are not withdrawn.
    """
    ways = [(record, "redone") for record in active if REDONE_TAG in record.data.tags]
    for record in deleted:
        replaced = record.data.tags.get(REPLACED_TAG)
        if replaced in (None, RETRIED):
            ways.append((record, "retried" if replaced else "redone" if REDONE_TAG in record.data.tags else "deleted"))
    return [(record, way) for record, way in ways if _is_compared(record) and state_of(record) in RESULTS]


def left_out_runs(
    records: Sequence[Record],
    root: Path,
    *,
    withdrawn: Sequence[tuple[Record, str]] = (),
    others: Mapping[str, Sequence[Record]] | None = None,
    wider: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return the runs with a result that a study does not report although it has their configuration.

    A run of a present cell counts if only its seed is left out. A run of a cell that the plan no longer contains counts if it
    was trained and tested like the present cells, on the axes that both have in common. Trials of a search and runs of stages
    do not count. A run of another study counts if its result was known before this study had results of the cell.

    Args:
        records: all MLflow runs of the study.
        root: the runs folder.
        withdrawn: as `withdrawn_records` returns them.
        others: name of another study -> its records.
        wider: the other studies that count with cells that this study does not have, too.

    Returns:
        Rows as in ``load_runs``, with the field ``left_out``: ``seed`` or ``cell``; ``withdrawn``: ``deleted``,
        ``redone``, ``retried`` or ""; and ``other_study``: its name or "". Of several runs with one seed, only the first.
    """
    finished = [r for r in records if _is_compared(r) and REDONE_TAG not in r.data.tags]
    current = [record for record in finished if is_current(record)]
    present = _Present(current)
    candidates = [(r, "", "") for r in finished if not is_current(r) and present.place(r) not in present.places]
    candidates += [(record, way, "") for record, way in withdrawn]
    for study, of_other in (others or {}).items():
        candidates += [(record, "", study) for record in of_other if present.knew(record, other_cells=study in wider)]
    rows: dict[Place, dict[str, Any]] = {}
    for record, way, study in sorted(candidates, key=lambda candidate: candidate[0].info.start_time):
        fields = present.fields_of(record)
        if fields is not None:
            added = {"withdrawn": way, "other_study": study}
            rows.setdefault(present.place(record), {**row_of(record, root), **fields, **added})
    return list(rows.values())


class _Present:
    """The runs that a study reports, for comparison with others. ``places`` has the cell and seed of each."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._keys = {key_of_record(record): record for record in records}
        self._protocols = {_protocol(record) for record in records}
        self._cells = {record.data.tags["attnlab.cell"] for record in records}
        self.places = {self.place(record) for record in records}
        self._latest: dict[str, int] = {}  # cell -> start of its latest run
        for record in records:
            cell = record.data.tags["attnlab.cell"]
            self._latest[cell] = max(self._latest.get(cell, 0), record.info.start_time)

    def place(self, record: Record) -> Place:
        """Return the cell of a run as the study names it now, its seed, and the values that a sweep set."""
        tags = record.data.tags
        named = self._keys.get(key_of_record(record), record)
        swept = tags.get("attnlab.params", "{}") if tags.get("attnlab.phase") == "sweep" else ""
        return named.data.tags["attnlab.cell"], tags["attnlab.seed"], swept

    def fields_of(self, record: Record) -> dict[str, Any] | None:
        """Return the fields of a run that the study leaves out; None for one that is not of its kind."""
        if (same := self._keys.get(key_of_record(record))) is not None:
            axes = json.loads(same.data.tags["attnlab.axes"])
            return {"left_out": "seed", "cell": same.data.tags["attnlab.cell"], **axes}
        is_other_cell = record.data.tags["attnlab.cell"] not in self._cells and _protocol(record) in self._protocols
        return {"left_out": "cell"} if is_other_cell else None

    def knew(self, record: Record, *, other_cells: bool) -> bool:
        """Return whether a run of another study had a result when this study started its latest run of the same cell.

        Args:
            other_cells: a run of a cell that this study does not have counts if this study started a run later.
        """
        if not _is_compared(record) or state_of(record) not in RESULTS:
            return False
        if key_of_record(record) not in self._keys:
            return other_cells and (record.info.end_time or 0) <= max(self._latest.values(), default=0)
        place = self.place(record)
        return place not in self.places and (record.info.end_time or 0) <= self._latest[place[0]]


def _is_compared(record: Record) -> bool:
    return record.info.status == "FINISHED" and record.data.tags.get("attnlab.phase") not in NOT_COMPARED


def _protocol(record: Record) -> str:
    """Return a text that is equal for runs of one version of attnlab with equal training and tests, except for their axes."""
    tags = record.data.tags
    config = json.loads(tags["attnlab.config"])
    varied = [*json.loads(tags["attnlab.axes"]), *json.loads(tags.get("attnlab.params", "{}"))]
    if "command" in config:
        values = {name: value for name, value in config["values"].items() if name not in varied}
        return json.dumps([config["command"], values, config["env"], config["files"]], sort_keys=True)
    sections = {"task": ["task", "data"], "train": ["train"], "evaluate": ["evaluate"]}
    compared = {part: config[part] for section in sections if section not in varied for part in sections[section]}
    flat = flatten_config(compared)
    fields = {
        name: value for name, value in flat.items() if not any(path == name or path.startswith(f"{name}.") for path in varied)
    }
    return json.dumps([version_of(tags), fields], sort_keys=True)
