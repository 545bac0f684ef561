"""Plan a study: resolved cells with their cost or the reason of their refusal, and a run for each seed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnlab._util.progress import Progress, no_progress, track
from attnlab.config.axes import task_axis
from attnlab.config.command import metric_of
from attnlab.config.grid import Cell, expand, selected_names
from attnlab.config.reader import read_study
from attnlab.config.study import StudyConfig
from attnlab.planning.command_files import resolve_commands
from attnlab.planning.costs import data_notes, data_sizes, with_costs
from attnlab.planning.factorial import check_factors
from attnlab.planning.matching import match_costs
from attnlab.planning.notes import Draft, notes_of
from attnlab.planning.planned import Plan, Run
from attnlab.planning.resolve import Resolver
from attnlab.planning.search import check_search
from attnlab.planning.stages import resolve_stages
from attnlab.planning.tasks import (
    check_reference_scores,
    resolve_estimand,
    resolve_estimands,
    resolve_further,
    resolve_questions,
)

__all__ = ["Cell", "Plan", "Run", "plan"]


def plan(
    source: str | Path | dict[str, Any],
    *,
    sets: dict[str, Any] | None = None,
    only: dict[str, Any] | None = None,
    progress: Progress = no_progress,
) -> Plan:
    """Read a study, resolve its cells and estimate their cost. Trains nothing and downloads nothing.

    Args:
        source: a YAML file, or its content as a dict.
        sets: dotted path -> value, over the base of the study.
        only: axis -> a value, several with commas between, or a list: the cells to keep.
        progress: called with a label, the number of completed cells and their total.

    Raises:
        UserError: a mistake in the study, with ``file:line:column``.
    """
    study = read_study(source, sets=sets)
    if study.command is not None:
        return _plan_commands(study, only=only or {})
    declared, skipped = expand(study)
    resolver = Resolver(study)
    cells = [resolver(cell) for cell in track(declared, "resolving cells", progress)]
    if study.factors:
        check_factors(cells)
    if any(cell.config.match for cell in cells):
        cells = match_costs(study, cells, resolver, progress=progress)
    if any(cell.config.init for cell in cells):
        cells = resolve_stages(cells, resolver)
    questions = resolve_questions(study, cells)
    first = next(iter(questions.values()))
    estimand = resolve_estimands(study, cells, questions)
    further = resolve_further(study, cells, first)
    check_reference_scores(study, tasks=[cell.task for cell in cells])
    doubles = _doubles(cells)
    wanted = selected_names(study, cells, only or {})
    names = {doubles.get(name, name) for name in wanted}
    kept = [cell for cell in cells if cell.name in names]
    on_data, sizes = data_notes(kept), data_sizes(kept)
    costed = [with_costs(cell, resolver.traces) for cell in track(kept, "tracing models", progress)]
    costed = [replace(c, data_notes=on_data.get(c.name, ()), data_sizes=sizes.get(c.name, "")) for c in costed]
    rest = [cell for cell in cells if cell.name not in names | doubles.keys()]
    goal = (first.metric, first.direction)
    options = {"estimand": estimand, "further": further, "order": tuple(cell.name for cell in cells)}
    planned = Plan(study, costed, skipped, [], *goal, doubles, rest, **options)
    if axis := task_axis(study):
        planned = replace(planned, task_axis=axis, tasks=questions)
    if study.search is not None:
        check_search(study, planned.cells, resolver)
    return replace(planned, notes=notes_of(Draft(planned, cells, wanted)))


def _plan_commands(study: StudyConfig, *, only: Mapping[str, Any]) -> Plan:
    """Plan a study of a program."""
    declared, skipped = expand(study)
    wanted = selected_names(study, declared, only)
    cells = resolve_commands(study, declared)
    kept, rest = ([cell for cell in cells if (cell.name in wanted) is chosen] for chosen in (True, False))
    metric, direction = metric_of(study)
    estimand = resolve_estimand(study, [], metric=metric)
    order = tuple(cell.name for cell in cells)
    planned = Plan(study, kept, skipped, [], metric, direction, unselected=rest, estimand=estimand, order=order)
    return replace(planned, notes=notes_of(Draft(planned, cells)))


def _doubles(cells: Sequence[Cell]) -> dict[str, str]:
    """Return the name of each cell with the configuration of an earlier cell -> the name of that cell."""
    first = {cell.key: cell.name for cell in reversed(cells)}
    return {cell.name: first[cell.key] for cell in cells if first[cell.key] != cell.name}
