"""The choice of records behind a table: results that it leaves out, and what was known and asked before.

Known before are an earlier table of the same runs, and runs that were withdrawn. `attnlab.stats.corrections` computes the
verdicts without that choice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from attnlab._util.run_state import RunState
from attnlab.stats.cells import ComparisonSpec, comparisons
from attnlab.stats.compare import cell_of, summarize_cells
from attnlab.stats.records import RunRecord, finite
from attnlab.stats.search import NOT_CONFIRMED

Seeds = tuple[int, ...]

Pairs = Sequence[tuple[str, str]]  # a cell and its baseline
NOISE = 1e-6  # relative difference of results that are equal to rounding


@dataclass(frozen=True)
class Seen:
    """A table of these configurations that was judged earlier, or runs of them that were withdrawn.

    Attributes:
        study: The study's name at the time.
        time: In milliseconds since the epoch.
        seeds: Name of the cell as the present study has it -> seeds.
        question: The comparison that was made, as `question_of` reads it; None for runs that were withdrawn.
    """

    study: str
    time: int
    seeds: Mapping[str, Seeds]
    question: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Selection:
    """The choice of records behind a table; without a choice, everything is empty.

    Attributes:
        left_out: Runs with a result that the table leaves out, as `attnlab.tracking.left_out.left_out_runs` returns them.
        lost: (cell, seeds, study) that were judged in a table of a study, or withdrawn, without results at hand.
        not_run: (cell, seeds) that the study plans and that have not ended.
        questions: (study, question) of earlier tables of the same runs, which asked something else.
        first_question: The question that was asked first; None when it is the present one.
        question: The present one; None when it is not recorded.
        renamed: (study, seeds) of earlier tables of the same runs under another name, with the number of common seeds.
        retried: (cell, baseline, number) of comparisons that the study judged before with so many other configurations of the
            two cells.
        smoke: (cell, baseline, number) of comparisons that the study judged before after at most a tenth of the training.
        elsewhere: (study, cell, baseline) of comparisons of the same program, data and size that another study judged before
            with another configuration.
        known: Name of a cell -> the seeds that tables had shown, at the time of each table; empty without a choice of
            runs, question or configuration.
    """

    left_out: tuple[RunRecord, ...] = ()
    lost: tuple[tuple[str, Seeds, str], ...] = ()
    not_run: tuple[tuple[str, Seeds], ...] = ()
    questions: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    first_question: Mapping[str, Any] | None = None
    question: Mapping[str, Any] | None = None
    renamed: tuple[tuple[str, int], ...] = ()
    retried: tuple[tuple[str, str, int], ...] = ()
    smoke: tuple[tuple[str, str, int], ...] = ()
    elsewhere: tuple[tuple[str, str, str], ...] = ()
    known: tuple[Mapping[str, Seeds], ...] = ()


def compared_pairs(records: Sequence[RunRecord], spec: ComparisonSpec) -> Pairs:
    """Return (cell, baseline) of each comparison of a table, and each pair of cells of a factorial study."""
    cells = summarize_cells(records, spec)
    compared = [(cell.name, cell.baseline) for cell in comparisons(cells) if cell.baseline]
    design = combinations([cell.name for cell in cells], 2) if spec.factorial else ()
    return list(dict.fromkeys([*compared, *design]))


def seeds_by_cell(records: Iterable[RunRecord], spec: ComparisonSpec) -> dict[str, set[int]]:
    """Return name -> seeds of each cell."""
    seeds: dict[str, set[int]] = {}
    for run in records:
        seeds.setdefault(cell_of(run, spec), set()).add(int(run["seed"]))
    return seeds


def relevant_runs(
    left_out: Sequence[RunRecord], records: Sequence[RunRecord], spec: ComparisonSpec, pairs: Pairs
) -> list[RunRecord]:
    """Return the runs that a table leaves out and that may matter to it.

    A run of another study matters if it makes a pair with its baseline, or another cell with it. A withdrawn run that was
    trained again with an equal result does not matter.
    """
    shown, cells = {_place(run, spec): run for run in records}, seeds_by_cell(records, spec)
    known = seeds_by_cell([run for run in (*records, *left_out) if run["state"] == RunState.COMPLETED], spec)

    def matters(run: RunRecord) -> bool:
        name, seed = cell_of(run, spec), int(run["seed"])
        if run.get("other_study") and run["left_out"] != "cell":
            return any(name in pair and all(seed in known.get(cell, ()) for cell in pair) for pair in pairs)
        if run.get("withdrawn") and (again := shown.get(_place(run, spec))) is not None:
            return not _are_equal(run, again, spec)
        return run["left_out"] == "cell" or name in cells

    return [run for run in left_out if matters(run)]


def everything(records: Sequence[RunRecord], left_out: Sequence[RunRecord], spec: ComparisonSpec) -> list[RunRecord]:
    """Return the runs of a table with those that it leaves out; a withdrawn run counts instead of the one that replaced it."""
    withdrawn = {_place(run, spec) for run in left_out if run.get("withdrawn")}
    return [*(run for run in records if _place(run, spec) not in withdrawn), *left_out]


def find_lost(
    seen: Iterable[Seen], runs: Iterable[RunRecord], spec: ComparisonSpec, pairs: Pairs
) -> list[tuple[str, Seeds, str]]:
    """Return (cell, seeds, study) of results that were known and are not among ``runs``: the table's and those left out."""
    known = seeds_by_cell(runs, spec)
    lost: dict[tuple[str, str], set[int]] = {}
    for table in seen:
        if table.question is None:
            seeds = {cell: {*of_cell} for cell, of_cell in table.seeds.items()}
        else:
            seeds = {}
            for pair in pairs:
                for cell in pair:
                    seeds[cell] = seeds.get(cell, set()) | _common(table.seeds, pair)
        for cell, of_cell in seeds.items():
            if cell in known and (missing := of_cell - known[cell]):
                lost.setdefault((cell, table.study), set()).update(missing)
                known[cell] |= missing
    return [(cell, tuple(sorted(seeds)), study) for (cell, study), seeds in lost.items()]


def find_not_run(planned: Mapping[str, Seeds], records: Sequence[RunRecord], spec: ComparisonSpec) -> list[tuple[str, Seeds]]:
    """Return (cell, seeds) of planned runs that have not ended.

    Args:
        planned: Name of a cell -> its planned seeds.
    """
    ended: dict[str, set[int]] = {}
    refused: set[str] = set()
    for run in records:
        name = cell_of(run, spec)
        if run["state"] in (RunState.REFUSED, NOT_CONFIRMED):
            refused.add(name)
        elif run["state"] not in (RunState.RUNNING, RunState.INTERRUPTED):
            ended.setdefault(name, set()).add(int(run["seed"]))
    missing = {
        name: tuple(seed for seed in seeds if seed not in ended.get(name, ()))
        for name, seeds in planned.items()
        if name not in refused
    }
    return [(name, seeds) for name, seeds in missing.items() if seeds]


def earlier_questions(
    seen: Iterable[Seen], recorded: Sequence[Mapping[str, Any]], *, study: str, present: Mapping[str, set[int]], pairs: Pairs
) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (study, question) of earlier comparisons of the present runs, each question once, the first one first.

    The first one may be the present one.

    Args:
        recorded: The questions that the study has asked since it had results, the first one first and the present one last.
        study: The study's name.
        present: Name -> seeds of its cells.
    """
    now, tables = recorded[-1], [table for table in seen if table.question is not None]
    own = min((table.time for table in tables if table.study == study and table.question == now), default=math.inf)
    tables = [table for table in tables if table.time < own and (table.study != study or table.question not in recorded)]
    asked = [(table.study, table.question) for table in tables if common_seeds(table, present, pairs) > 1]
    asked += [(study, question) for question in recorded]
    unique: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for name, question in asked:
        if question is not None:
            unique.setdefault(json.dumps(question, sort_keys=True), (name, question))
    return list(unique.values())


def common_seeds(table: Seen, present: Mapping[str, set[int]], pairs: Pairs) -> int:
    """Return the largest number of seeds that an earlier table and the present one have in a pair of compared cells."""
    return max((len(_common(table.seeds, pair) & _common(present, pair)) for pair in pairs), default=0)


def _common(seeds: Mapping[str, Iterable[int]], pair: tuple[str, str]) -> set[int]:
    """Return the seeds that both cells of a pair have."""
    return {*seeds.get(pair[0], ())} & {*seeds.get(pair[1], ())}


def _place(run: RunRecord, spec: ComparisonSpec) -> tuple[str, int, str]:
    """Return the cell and the seed of a run, and the value that a sweep set."""
    params = run.get("params") if spec.sweep else None
    return cell_of(run, spec), int(run["seed"]), json.dumps(params, sort_keys=True, default=str)


def _are_equal(run: RunRecord, again: RunRecord, spec: ComparisonSpec) -> bool:
    """Return whether two runs have the same state and, up to rounding, the same values of the metrics that are compared."""
    if str(run["state"]) != str(again["state"]):
        return False
    values = [(finite(run.get(part.metric)), finite(again.get(part.metric))) for part in spec.parts]
    return all(a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=NOISE)) for a, b in values)
