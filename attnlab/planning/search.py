"""A search, held against Optuna and against every cell; and a cell's configuration with what a trial chose."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from attnlab.config.grid import CellConfig
from attnlab.config.run import RunConfig
from attnlab.config.study import StudyConfig, assignment
from attnlab.errors import UserError
from attnlab.planning.advice import advice, pace
from attnlab.planning.resolve import Resolver
from attnlab.planning.samplers import check

if TYPE_CHECKING:
    from attnlab.planning.cell import Cell


def about_search(study: StudyConfig, cells: Sequence[Cell], *, tasks: list[Any], metric: str, direction: str) -> list[str]:
    """Check a searched study's plan; notes on settings that do not do what they are there for.

    Args:
        tasks: of the cells, in their order.

    Raises:
        UserError: what Optuna does not take, or a cell that cannot take a value of the space.
    """
    search = study.search
    assert search is not None
    check(search, where=lambda *loc, key=False: study.where("search", *loc, key=key))
    _check_space(study, cells)
    planned = [(cell, task) for cell, task in zip(cells, tasks, strict=True) if cell.refusal is None]
    paces = [pace(cell.config, task) for cell, task in planned]
    return advice(search, paces, metric=metric, direction=direction)


def applied(study: StudyConfig, cell: Cell, changes: dict[str, Any]) -> RunConfig:
    """The cell's configuration with dotted paths set: as valid and as resolved as the cell's own.

    Raises:
        UserError: no valid configuration, or one that is refused; it names the cell and what was set.
    """
    try:
        config = cell.config.replace(changes)
    except UserError as error:  # its place is the path of the field
        raise _with_changes(str(error), study, cell, changes) from error
    try:
        found = Resolver(study)(CellConfig(cell.name, cell.axes, config, study, {}))
    except UserError as error:
        raise _with_changes(error.message, study, cell, changes) from error
    if found.refusal is not None:
        raise _with_changes(found.refusal, study, cell, changes)
    return found.config


def digest(study: StudyConfig, cell: Cell, goal: str) -> str:
    """12 hex digits over what decides a search: the cell, the space, who chooses, who stops, and what is sought.

    Not the number of trials: more of them go on with the same search. Nor ``parallel``, which moves the machine's load.
    """
    assert study.search is not None
    settings = study.search.model_dump(mode="json", exclude={"trials", "parallel"})
    evaluate = cell.config.evaluate.model_copy(update={"lengths": ()})  # trials are not tested, at any length
    config = cell.config.model_copy(update={"evaluate": evaluate})
    text = json.dumps([config.fingerprint(), settings, goal], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _with_changes(message: str, study: StudyConfig, cell: Cell, changes: dict[str, Any]) -> UserError:
    said = ", ".join(assignment(path, value) for path, value in changes.items())
    return UserError(f"the cell {cell.name!r} with {said}: {message}", study.where("search", "space"))


def _check_space(study: StudyConfig, cells: Iterable[Cell]) -> None:
    """Try both ends and each choice of every dimension in every cell that is not refused.

    Raises:
        UserError: a cell that lacks the field (an option of another variant), or cannot take the value.
    """
    assert study.search is not None
    for cell in cells:
        if cell.refusal is not None:
            continue
        for path, dimension in study.search.space.items():
            for loc, value in dimension.ends:
                try:
                    applied(study, cell, {path: value})
                except UserError as error:
                    raise UserError(error.message, study.where("search", "space", path, *loc)) from error
