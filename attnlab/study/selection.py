"""The choice of records behind a study's table, from everything that the store knows of its configurations."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.run_state import NOT_COMPARED
from attnlab.config.comparability import Subject, subject_of
from attnlab.stats.cells import ComparisonSpec
from attnlab.stats.search import exclude_trials
from attnlab.stats.selection import (
    Pairs,
    Seeds,
    Seen,
    Selection,
    common_seeds,
    compared_pairs,
    earlier_questions,
    find_lost,
    find_not_run,
    relevant_runs,
    seeds_by_cell,
)
from attnlab.tracking.attempts import state_of
from attnlab.tracking.client import connect, is_local, runs_folder, search_runs
from attnlab.tracking.history import (
    Entry,
    Event,
    append_history,
    key_of_record,
    latest_plan,
    planned_entry,
    present_version,
    read_history,
)
from attnlab.tracking.left_out import RESULTS, left_out_runs, withdrawn_records
from attnlab.tracking.runs import decode_questions, is_current, recorded_experiment

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan
    from attnlab.tracking.client import MlflowClient, Record

Cells = Mapping[str, tuple[str, Seeds]]  # key of a configuration -> its cell and seeds


def load_selection(spec: ComparisonSpec, rows: Sequence[Mapping[str, Any]], root: str | Path | None = None) -> Selection:
    """Return the choice of records behind the table of a study; a study without a record has none.

    Args:
        spec: The comparison that the study makes.
        rows: Its runs, trials of a search included, as `attnlab.stats.compare.summarize_cells` takes them.

    Raises:
        UserError: the MLflow store cannot be used or does not respond.
    """
    if (recorded := recorded_experiment(spec.study, root)) is None:
        return Selection()
    client, experiment = recorded
    active, runs = search_runs(client, experiment.experiment_id), exclude_trials(rows)
    cells, history, questions = cells_of(active), read_history(client), decode_questions(experiment)
    pairs, present = compared_pairs(runs, spec), seeds_by_cell(runs, spec)
    seen = seen_before(cells, history)
    elsewhere = [table for table in seen_before(cells, history, [*Event]) if table.study != spec.study]
    wider = _wider_studies(history, spec.study, cells, pairs)
    others = _other_studies(client, elsewhere, present, pairs, swept=bool(spec.sweep), wider=wider)
    withdrawn = withdrawn_records(active, search_runs(client, experiment.experiment_id, deleted=True))
    left_out = left_out_runs(active, runs_folder(root), withdrawn=withdrawn, others=others, wider=wider)
    asked = earlier_questions(seen, questions, study=spec.study, present=present, pairs=pairs) if questions else []
    different = tuple((study, question) for study, question in asked if question != questions[-1])
    relevant = tuple(relevant_runs(left_out, runs, spec, pairs))
    earlier = _earlier_configurations(history, spec.study, cells, subjects_of(active), pairs)
    retried = earlier.counted(smoke=False)
    return Selection(
        relevant,
        tuple(find_lost(seen, [*runs, *left_out], spec, pairs)),
        tuple(find_not_run(_planned(spec.study, history, cells), runs, spec)),
        different,
        different[0][1] if different and asked[0] == different[0] else None,
        questions[-1] if questions else None,
        _renamed(seen, spec.study, present, pairs),
        retried,
        earlier.counted(smoke=True),
        tuple(earlier.elsewhere),
        _known(seen) if relevant or different or retried else (),
    )


def cells_of(records: Iterable[Record], *, every: bool = False) -> dict[str, tuple[str, Seeds]]:
    """Return the configurations of the runs that a study reports and that have a result, with their cells and seeds.

    Args:
        every: Also of the runs that its plan no longer contains.
    """
    cells: dict[str, tuple[str, set[int]]] = {}
    for record in records:
        tags = record.data.tags
        if (every or is_current(record)) and state_of(record) in RESULTS and tags.get("attnlab.phase") not in NOT_COMPARED:
            _, seeds = cells.setdefault(key_of_record(record), (tags["attnlab.cell"], set()))
            seeds.add(int(tags["attnlab.seed"]))
    return {key: (name, tuple(sorted(seeds))) for key, (name, seeds) in cells.items()}


def seen_before(
    cells: Cells, history: Sequence[Entry], events: Collection[Event] = (Event.JUDGED, Event.WITHDRAWN)
) -> list[Seen]:
    """Return the earlier tables of these configurations and the withdrawals of their runs, in the order of time."""
    tables = []
    for entry in history:
        seeds = {cells[key][0]: of_cell for key, (_, of_cell) in entry.cells.items() if key in cells}
        if seeds and entry.event in events:
            tables.append(Seen(entry.study, entry.time, seeds, entry.question))
    return tables


def _other_studies(
    client: MlflowClient,
    seen: Sequence[Seen],
    present: Mapping[str, set[int]],
    pairs: Pairs,
    *,
    swept: bool,
    wider: Collection[str],
) -> dict[str, list[Record]]:
    """Return the records, deleted ones included, of other studies that have further seeds of compared cells.

    Args:
        swept: The study has a sweep: studies with the same seeds may then have other values.
        wider: Names of studies that are included, too.
    """
    further = {*wider}
    for table in seen:
        for pair in pairs:
            known = [{*table.seeds.get(cell, ())} | present.get(cell, set()) for cell in pair]
            if swept or (known[0] & known[1]) - (present.get(pair[0], set()) & present.get(pair[1], set())):
                further.add(table.study)
    records = {}
    for study in sorted(further):
        experiment = client.get_experiment_by_name(study)
        if experiment is not None:
            every = (search_runs(client, experiment.experiment_id, deleted=deleted) for deleted in (False, True))
            records[study] = [record for of_stage in every for record in of_stage]
    return records


def _wider_studies(history: Sequence[Entry], study: str, cells: Cells, pairs: Pairs) -> set[str]:
    """Return other studies that judged these runs together with further cells before this study was judged."""
    judged = [entry for entry in history if entry.event is Event.JUDGED]
    own = min((entry.time for entry in judged if entry.study == study and entry.cells.keys() & cells.keys()), default=math.inf)
    found = set()
    for entry in judged:
        seeds = {cells[key][0]: {*of_cell} & {*cells[key][1]} for key, (_, of_cell) in entry.cells.items() if key in cells}
        together = any(len(seeds.get(cell, set()) & seeds.get(base, set())) > 1 for cell, base in pairs)
        if entry.study != study and entry.time < own and together and entry.cells.keys() - cells.keys():
            found.add(entry.study)
    return found


def _planned(study: str, history: Sequence[Entry], cells: Cells) -> dict[str, Seeds]:
    """Return name -> seeds of the cells in the latest plan of a study."""
    planned = latest_plan(study, history).items()
    return {cells[key][0] if key in cells else name: seeds for key, (name, seeds) in planned}


def _renamed(seen: Sequence[Seen], study: str, present: Mapping[str, set[int]], pairs: Pairs) -> tuple[tuple[str, int], ...]:
    """Return (study, common seeds) of earlier tables of the same runs under another name, with fewer seeds than now."""
    tables = [table for table in seen if table.question is not None]
    own = min((table.time for table in tables if table.study == study), default=math.inf)
    whole = max((len(present.get(cell, set()) & present.get(baseline, set())) for cell, baseline in pairs), default=0)
    common = [
        (table.study, common_seeds(table, present, pairs)) for table in tables if table.study != study and table.time < own
    ]
    return tuple(dict.fromkeys((name, seeds) for name, seeds in common if 1 < seeds < whole))


@dataclass
class _Earlier:
    """Earlier tables of the present comparisons with other configurations.

    Attributes:
        judged: Cell and baseline -> keys of the configurations that the study was judged with -> whether these were smoke runs.
        elsewhere: (study, cell, baseline) of other studies with the same subject.
    """

    judged: dict[tuple[str, str], dict[tuple[str, str], bool]] = field(default_factory=dict)
    elsewhere: dict[tuple[str, str, str], None] = field(default_factory=dict)

    def counted(self, *, smoke: bool) -> tuple[tuple[str, str, int], ...]:
        """Return (cell, baseline, number of earlier configurations), of smoke runs or of others."""
        numbers = {pair: sum(short == smoke for short in keys.values()) for pair, keys in self.judged.items()}
        return tuple((*pair, number) for pair, number in numbers.items() if number)


def _earlier_configurations(
    history: Sequence[Entry], study: str, cells: Cells, subjects: Mapping[str, Subject], pairs: Pairs
) -> _Earlier:
    """Return the earlier configurations with which these comparisons were judged.

    An upgrade of attnlab is no other configuration, although it changes all keys. Of other studies, only those count that
    compared cells of the same names with the same subject, before this study was judged.
    """
    version, found = present_version(), _Earlier()
    present: dict[str, set[str]] = {}
    for key, (name, _) in cells.items():
        present.setdefault(name, set()).add(key)
    judged = [entry for entry in history if entry.event is Event.JUDGED]
    first = min(  # also by another version: the keys of programs do not depend on it
        (entry.time for entry in judged if entry.study == study and entry.cells.keys() & cells.keys()), default=math.inf
    )
    for entry in (entry for entry in judged if entry.version in ("", version)):
        for pair, keys in _judged_pairs(entry, pairs):
            if all(key in present.get(name, ()) for key, name in zip(keys, pair, strict=True)):
                continue
            with_subject = [sorted(present.get(name, set()) & subjects.keys()) for name in pair]
            now = [subjects[of_cell[0]] for of_cell in with_subject if of_cell]
            then = [entry.subjects[key] for key in keys if key in entry.subjects]
            known = len(now) == len(then) == len(pair)
            smoke = known and all(one.is_smoke_run_of(other) for one, other in zip(then, now, strict=True))
            if entry.study == study:
                found.judged.setdefault(pair, {})[keys] = smoke
            elif known and not smoke and entry.time < first and all(map(_same_subject, then, now)):
                found.elsewhere[entry.study, *pair] = None
    return found


def _judged_pairs(entry: Entry, pairs: Pairs) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield each compared pair of a table that had several seeds in common, with the keys of its configurations."""
    cells: dict[str, list[tuple[str, Seeds]]] = {}
    for key, (name, seeds) in entry.cells.items():
        cells.setdefault(name, []).append((key, seeds))
    for pair in pairs:
        for (key, seeds), (base, others) in product(*(cells.get(name, []) for name in pair)):
            if len({*seeds} & {*others}) > 1:
                yield pair, (key, base)


def _same_subject(one: Subject, other: Subject) -> bool:
    longer = one.is_smoke_run_of(other) or other.is_smoke_run_of(one)
    return (one.program, one.data) == (other.program, other.data) and not longer


def subjects_of(records: Iterable[Record]) -> dict[str, Subject]:
    """Return key of a configuration -> its subject, of the runs of a study."""
    return {
        key_of_record(record): subject_of(json.loads(tags["attnlab.config"]), test)
        for record in records
        if (test := (tags := record.data.tags).get("attnlab.test")) and tags.get("attnlab.phase") not in NOT_COMPARED
    }


def left_out_studies(studies: Collection[str], root: str | Path | None = None) -> list[str]:
    """Return the names of further studies that judged a comparison of these studies, with the same program.

    The number of seeds and the data may differ, and the studies may be deleted. Raises as `load_selection`.
    """
    judged = [entry for entry in read_history(connect(runs_folder(root))) if entry.event is Event.JUDGED]
    compared = {pair for entry in judged if entry.study in studies for pair in _programs(entry)}
    others = [entry.study for entry in judged if entry.study not in studies and not compared.isdisjoint(_programs(entry))]
    return list(dict.fromkeys(others))


def _programs(entry: Entry) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the program and the names of each pair of cells that a table compares."""
    known = [(entry.subjects[key].program, name) for key, (name, seeds) in entry.cells.items() if key in entry.subjects]
    for (program, name), (other, base) in combinations(known, 2):
        if program == other and name != base:
            yield program, frozenset((name, base))


def _known(seen: Sequence[Seen]) -> tuple[dict[str, Seeds], ...]:
    """Return the seeds of each cell that tables had shown, at the time of each table, given these in the order of time."""
    known: dict[str, set[int]] = {}
    at: list[dict[str, Seeds]] = []
    for table in seen:
        if table.question is not None:
            for cell, seeds in table.seeds.items():
                known.setdefault(cell, set()).update(seeds)
            at.append({cell: tuple(sorted(seeds)) for cell, seeds in known.items()})
    return tuple(table for i, table in enumerate(at) if i == 0 or table != at[i - 1])


def earlier_tables(study: str, root: str | Path | None = None) -> list[Seen]:
    """Return the earlier tables of the runs that a study reports, in whatever study; raises as `load_selection`."""
    if (recorded := recorded_experiment(study, root)) is None:
        return []
    client, experiment = recorded
    if not (history := read_history(client)):
        return []
    return seen_before(cells_of(search_runs(client, experiment.experiment_id)), history, [Event.JUDGED])


def looks_at_plan(plan: Plan, root: str | Path | None = None) -> list[tuple[str, int]]:
    """Return (study, number of seeds) of each earlier table of the configurations and seeds of a plan, in whatever study.

    Raises:
        UserError: the MLflow store cannot be used or does not respond.
    """
    folder = runs_folder(root)
    if is_local(folder) and not (folder / "mlflow.db").exists():
        return []
    history = read_history(connect(folder))
    if all(entry.event is not Event.JUDGED for entry in history):
        return []
    tables = seen_before(planned_entry(plan, time=0).cells, history, [Event.JUDGED])
    present = {cell.name: {*plan.seeds} for cell in plan.cells}
    numbers = [(table.study, common_seeds(table, present, _planned_pairs(plan))) for table in tables]
    return [(study, n) for study, n in numbers if n > 1]


def _planned_pairs(plan: Plan) -> list[tuple[str, str]]:
    """Return (cell, baseline) of each comparison of a plan, and of a study without a baseline each pair of cells."""
    if not plan.study.baselines:
        return list(combinations([cell.name for cell in plan.cells], 2))
    found = ((cell, plan.baseline_of(cell, number)) for cell in plan.cells for number in range(len(plan.study.baselines)))
    return [(cell.name, baseline.name) for cell, baseline in found if baseline is not None and baseline is not cell]


def record_table(study: str, *, time: int, root: str | Path | None = None) -> None:
    """Add the present table of a study to the history of its configurations; raises as `load_selection`.

    Args:
        time: In milliseconds since the epoch.
    """
    if (recorded := recorded_experiment(study, root)) is None:
        return
    client, experiment = recorded
    if questions := decode_questions(experiment):
        records = search_runs(client, experiment.experiment_id)
        cells, subjects = cells_of(records), subjects_of(records)
        own = {key: subjects[key] for key in cells if key in subjects}
        entry = Entry(Event.JUDGED, study, time, cells, questions[-1], present_version(), own)
        append_history(client, [entry], runs_folder(root))
