"""Check a search against Optuna and against every cell; apply the values that a trial chose to a cell."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from attnlab.config.grid import CellConfig
from attnlab.config.run import RunConfig
from attnlab.config.study import StudyConfig
from attnlab.config.study_source import assignment
from attnlab.errors import UserError
from attnlab.planning.advice import advice
from attnlab.planning.evaluations import evaluation_schedule
from attnlab.planning.matching import check_fixed_costs
from attnlab.planning.resolve import Resolver
from attnlab.planning.samplers import check

if TYPE_CHECKING:
    from attnlab.planning.cell import Cell


def search_notes(
    study: StudyConfig,
    cells: Sequence[Cell],
    *,
    resolver: Resolver,
    tasks: list[Any],
    goal_of: Callable[[Cell], tuple[str, str]],
) -> list[str]:
    """Check the search of a planned study, and return notes on settings that have no effect.

    Args:
        resolver: of the study.
        tasks: of the cells, in their order.
        goal_of: returns the metric of a cell and its direction.

    Raises:
        UserError: an argument that Optuna does not accept, or a value of the space that a cell does not accept.
    """
    search = study.search
    assert search is not None
    check(search, where=lambda *loc, key=False: study.where("search", *loc, key=key))
    _check_space(study, cells, resolver)
    planned = [(cell, task) for cell, task in zip(cells, tasks, strict=True) if cell.refusal is None]
    notes: dict[str, None] = {}
    for metric, direction in dict.fromkeys(goal_of(cell) for cell, _ in planned):
        alike = [pair for pair in planned if goal_of(pair[0]) == (metric, direction)]
        schedules = [evaluation_schedule(cell.config, task) for cell, task in alike]
        notes |= dict.fromkeys(advice(search, schedules, metric=metric, direction=direction))
    return list(notes)


def apply_changes(study: StudyConfig, cell: Cell, changes: dict[str, Any], *, resolver: Resolver | None = None) -> RunConfig:
    """Return the configuration of a cell with dotted paths set, validated and resolved.

    Args:
        resolver: of the study; default a new one, which reads the user's files again.

    Raises:
        UserError: an invalid configuration, one that cannot run, or one that is no longer matched to its baseline; it names
            the cell and the changes.
    """
    try:
        config = cell.config.replace(changes)
    except UserError as error:  # its place is the path of the field
        raise _with_changes(str(error), study, cell, changes) from error
    try:
        resolver = resolver or Resolver(study)
        resolved = resolver(CellConfig(cell.name, cell.axes, config, study, {}))
        if resolved.refusal is None:
            check_fixed_costs(cell, resolved, resolver.traces)
    except UserError as error:
        raise _with_changes(error.message, study, cell, changes) from error
    if resolved.refusal is not None:
        raise _with_changes(resolved.refusal, study, cell, changes)
    return resolved.config


def search_digest(study: StudyConfig, cell: Cell, goal: str) -> str:
    """Return 12 hex digits over everything that determines a search: cell, space, sampler, pruner and ``goal``.

    The number of trials is left out, so that a search can be extended, and so is ``parallel``, which only affects the load.
    """
    assert study.search is not None
    settings = study.search.model_dump(mode="json", exclude={"trials", "parallel"})
    evaluate = cell.config.evaluate.model_copy(update={"lengths": ()})  # trials are not evaluated on the test split
    config = cell.config.model_copy(update={"evaluate": evaluate})
    text = json.dumps([config.fingerprint(), settings, goal], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _with_changes(message: str, study: StudyConfig, cell: Cell, changes: dict[str, Any]) -> UserError:
    assignments = ", ".join(assignment(path, value) for path, value in changes.items())
    return UserError(f"the cell {cell.name!r} with {assignments}: {message}", study.where("search", "space"))


def _check_space(study: StudyConfig, cells: Iterable[Cell], resolver: Resolver) -> None:
    """Apply both ends or all choices of every dimension to every cell that is not refused.

    Raises:
        UserError: a cell that lacks the field (an option of another variant), or does not accept the value.
    """
    assert study.search is not None
    for cell in cells:
        if cell.refusal is not None:
            continue
        for path, dimension in study.search.space.items():
            for loc, value in dimension.ends:
                try:
                    apply_changes(study, cell, {path: value}, resolver=resolver)
                except UserError as error:
                    raise UserError(error.message, study.where("search", "space", path, *loc)) from error
