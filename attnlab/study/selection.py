"""The choice of records behind a study's table, from everything that the store knows of its configurations."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.run_state import NOT_COMPARED
from attnlab.stats.cells import ComparisonSpec
from attnlab.stats.search import exclude_trials
from attnlab.stats.seen import Seeds, Seen
from attnlab.stats.selection import (
    Pairs,
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
    others = _other_studies(client, elsewhere, present, pairs, swept=bool(spec.sweep))
    withdrawn = withdrawn_records(active, search_runs(client, experiment.experiment_id, deleted=True))
    left_out = left_out_runs(active, runs_folder(root), withdrawn=withdrawn, others=others)
    asked = earlier_questions(seen, questions, study=spec.study, present=present, pairs=pairs) if questions else []
    different = tuple((study, question) for study, question in asked if question != questions[-1])
    relevant = tuple(relevant_runs(left_out, runs, spec, pairs))
    retried = _retried(history, spec.study, cells, pairs)
    return Selection(
        relevant,
        tuple(find_lost(seen, [*runs, *left_out], spec, pairs)),
        tuple(find_not_run(_planned(spec.study, history, cells), runs, spec)),
        different,
        different[0][1] if different and asked[0] == different[0] else None,
        questions[-1] if questions else None,
        _renamed(seen, spec.study, present, pairs),
        retried,
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
    client: MlflowClient, seen: Sequence[Seen], present: Mapping[str, set[int]], pairs: Pairs, *, swept: bool
) -> dict[str, list[Record]]:
    """Return the records, deleted ones included, of other studies that have further seeds of compared cells.

    Args:
        swept: The study has a sweep: studies with the same seeds may then have other values.
    """
    further = set()
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


def _retried(history: Sequence[Entry], study: str, cells: Cells, pairs: Pairs) -> tuple[tuple[str, str, int], ...]:
    """Return (cell, baseline, number of earlier configurations) of pairs that a study judged with other configurations.

    An upgrade of attnlab is no other configuration, although it changes all keys.
    """
    version = present_version()
    present: dict[str, set[str]] = {}
    for key, (name, _) in cells.items():
        present.setdefault(name, set()).add(key)
    earlier: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for entry in history:
        if entry.study != study or entry.event is not Event.JUDGED or entry.version not in ("", version):
            continue
        judged: dict[str, list[tuple[str, Seeds]]] = {}
        for key, (name, seeds) in entry.cells.items():
            judged.setdefault(name, []).append((key, seeds))
        for pair in pairs:
            for (key, seeds), (base, others) in product(*(judged.get(name, []) for name in pair)):
                is_other = key not in present.get(pair[0], ()) or base not in present.get(pair[1], ())
                if is_other and len({*seeds} & {*others}) > 1:
                    earlier.setdefault(pair, set()).add((key, base))
    return tuple((*pair, len(keys)) for pair, keys in earlier.items())


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
        cells = cells_of(search_runs(client, experiment.experiment_id))
        append_history(client, [Entry(Event.JUDGED, study, time, cells, questions[-1], present_version())], runs_folder(root))
