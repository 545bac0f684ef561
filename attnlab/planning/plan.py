"""Plan a study: resolved cells with their cost or the reason of their refusal, and a run for each seed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnlab._util.progress import Progress, no_progress, track
from attnlab.config.axes import task_axis
from attnlab.config.command import metric_of
from attnlab.config.grid import Cell, CellPair, expand, selected_names
from attnlab.config.reader import read_study
from attnlab.config.study import StudyConfig
from attnlab.planning.command_files import resolve_commands
from attnlab.planning.costs import data_notes, data_sizes, planned_cell, with_costs
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
    cells, skipped = expand(study)
    resolver = Resolver(study)
    resolved = [(cell, resolver(cell)) for cell in track(cells, "resolving cells", progress)]
    if study.factors:
        check_factors(resolved)
    if any(resolution.config.match for _, resolution in resolved):
        resolved = match_costs(study, resolved, resolver, progress=progress)
    if any(cell.config.init for cell, _ in resolved):
        resolved = resolve_stages(resolved, resolver)
    questions = resolve_questions(study, resolved)
    first = next(iter(questions.values()))
    estimand = resolve_estimands(study, resolved, questions)
    further = resolve_further(study, resolved, first)
    check_reference_scores(study, tasks=[resolution.task for _, resolution in resolved])
    doubles = _doubles(resolved)
    wanted = selected_names(study, [cell for cell, _ in resolved], only or {})
    names = {doubles.get(name, name) for name in wanted}
    kept = [(cell, resolution) for cell, resolution in resolved if cell.name in names]
    on_data, sizes = data_notes(kept), data_sizes(kept)
    costed = [with_costs(cell, resolution, resolver.traces) for cell, resolution in track(kept, "tracing models", progress)]
    costed = [replace(c, data_notes=on_data.get(c.name, ()), data_sizes=sizes.get(c.name, "")) for c in costed]
    rest = [planned_cell(cell, resolution) for cell, resolution in resolved if cell.name not in names | doubles.keys()]
    goal = (first.metric, first.direction)
    options = {"estimand": estimand, "further": further, "order": tuple(cell.name for cell in cells)}
    planned = Plan(study, costed, skipped, [], *goal, doubles, rest, **options)
    if axis := task_axis(study):
        planned = replace(planned, task_axis=axis, tasks=questions)
    if study.search is not None:
        check_search(study, planned.cells, resolver)
    return replace(planned, notes=notes_of(Draft(planned, [cell for cell, _ in resolved], wanted, resolved)))


def _plan_commands(study: StudyConfig, *, only: Mapping[str, Any]) -> Plan:
    """Plan a study of a program."""
    configs, skipped = expand(study)
    wanted = selected_names(study, configs, only)
    cells = resolve_commands(study, configs)
    kept, rest = ([cell for cell in cells if (cell.name in wanted) is chosen] for chosen in (True, False))
    metric, direction = metric_of(study)
    estimand = resolve_estimand(study, [], metric=metric)
    order = tuple(cell.name for cell in configs)
    planned = Plan(study, kept, skipped, [], metric, direction, unselected=rest, estimand=estimand, order=order)
    return replace(planned, notes=notes_of(Draft(planned, configs)))


def _doubles(resolved: Sequence[CellPair]) -> dict[str, str]:
    """Return the name of each cell with the configuration of an earlier cell -> the name of that cell."""
    first: dict[str, str] = {}
    doubles: dict[str, str] = {}
    for cell, resolution in resolved:
        name = first.setdefault(resolution.key, cell.name)
        if name != cell.name:
            doubles[cell.name] = name
    return doubles
