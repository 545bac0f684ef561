"""The choice of records behind a table: what was withdrawn, left out, not run, tried again, or asked differently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attnlab._util.metrics import in_words
from attnlab._util.run_state import RunState
from attnlab.config.types import text as axis_text
from attnlab.stats.cells import ComparisonSpec
from attnlab.stats.compare import cell_of
from attnlab.stats.records import RunRow
from attnlab.stats.search import NOT_CONFIRMED

Seeds = tuple[int, ...]
Named = tuple[tuple[str, Seeds], ...]  # (cell, seeds)
OPEN = (RunState.RUNNING, RunState.INTERRUPTED)


@dataclass(frozen=True)
class Selection:
    """What a reader should know about the choice of a table's records; without a choice, everything is empty.

    Attributes:
        withdrawn: Results that were deleted, redone or retried.
        left_out: Results that the plan no longer contains.
        not_run: Planned runs that have not ended.
        retried: Results of runs that had failed before.
        changed: The fields of the comparison that differ from those stated first, as text.
    """

    withdrawn: Named = ()
    left_out: Named = ()
    not_run: Named = ()
    retried: Named = ()
    changed: str = ""

    def for_task(self, spec: ComparisonSpec, cells: Iterable[str]) -> Selection:
        """Return the part that is about the cells of a table, or about cells of its task that the table does not have."""
        if not spec.task:
            return self
        shown = {*cells}
        fields = {name: tuple(item for item in getattr(self, name) if item[0] in shown) for name in ("withdrawn", "retried")}
        named = {name: getattr(self, name) for name in ("left_out", "not_run")}
        fields |= {name: tuple(item for item in of if item[0] in shown or spec.task in item[0]) for name, of in named.items()}
        return replace(self, **fields)


def by_cell(runs: Iterable[tuple[str, int]]) -> Named:
    """Return each cell with its seeds, given the cell and seed of each run."""
    seeds: dict[str, set[int]] = {}
    for cell, seed in runs:
        seeds.setdefault(cell, set()).add(seed)
    return tuple((cell, tuple(sorted(of_cell))) for cell, of_cell in sorted(seeds.items()))


def find_not_run(planned: Mapping[str, Sequence[int]], records: Sequence[RunRow], spec: ComparisonSpec) -> set[tuple[str, int]]:
    """Return the cell and seed of the planned runs that have not ended.

    Args:
        planned: Name of a cell -> its planned seeds.
        records: The runs of the table.
        spec: The comparison that the study makes.
    """
    refused = {cell_of(run, spec) for run in records if run["state"] in (RunState.REFUSED, NOT_CONFIRMED)}
    ended = {(cell_of(run, spec), int(run["seed"])) for run in records if run["state"] not in OPEN}
    return {(name, seed) for name, seeds in planned.items() if name not in refused for seed in seeds} - ended


def describe_change(first: ComparisonSpec, now: ComparisonSpec) -> str:
    """Return what two comparisons ask differently, as in "margin 0.01 (now 0.02)"; "" if they ask the same."""
    before, after = asked(first), asked(now)
    names = [name for name in {**after, **before} if before.get(name) != after.get(name)]
    return ", ".join(f"{name} {_field_text(before.get(name))} (now {_field_text(after.get(name))})" for name in names)


def asked(spec: ComparisonSpec) -> dict[str, Any]:
    """Return what a comparison asks, by the keys of a study file; fields that a study does not have are left out."""
    fields: dict[str, Any] = {"metric": spec.metric, "direction": spec.direction, "baseline": [*spec.baselines] or None}
    fields["margin"] = {task: goal.margin for task, goal in spec.tasks.items()} or spec.margin
    further = [in_words(goal.metric) + ("" if goal.margin is None else f" (margin {goal.margin:g})") for goal in spec.further]
    optional = {"control": spec.control, "over": spec.over, "estimand": spec.estimand.label, "task_axis": spec.task_axis}
    optional |= {"tasks": {task: f"{goal.metric} {goal.direction}" for task, goal in spec.tasks.items()}, "questions": further}
    return fields | {name: value for name, value in optional.items() if value} | {"moderate": spec.moderate}


def _field_text(value: Any) -> str:
    if isinstance(value, list):
        return " and ".join(map(_field_text, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{axis} {axis_text(axis_value)}" for axis, axis_value in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else axis_text(value)
