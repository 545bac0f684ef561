"""Check a search against Optuna and against every cell; apply the values that a trial chose to a cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnlab.config.run import RunConfig
from attnlab.config.study import StudyConfig
from attnlab.config.yaml import assignment
from attnlab.errors import UserError
from attnlab.planning.resolve import Resolver
from attnlab.planning.samplers import check

if TYPE_CHECKING:
    from attnlab.config.grid import Cell


def check_search(study: StudyConfig, cells: Sequence[Cell], resolver: Resolver) -> None:
    """Try the search of a study with Optuna, and apply both ends or all choices of every dimension to every cell.

    Raises:
        UserError: an argument that Optuna does not accept; a cell that lacks a field (an option of another variant), or does
            not accept a value.
    """
    assert study.search is not None
    check(study.search, where=lambda *loc: study.where("search", *loc))
    ends = [(path, loc, value) for path, dimension in study.search.space.items() for loc, value in dimension.ends]
    for cell in cells:
        for path, loc, value in ends if cell.refusal is None else ():
            try:
                apply_changes(study, cell, {path: value}, resolver=resolver)
            except UserError as error:
                raise UserError(error.message, study.where("search", "space", path, *loc)) from error


def apply_changes(study: StudyConfig, cell: Cell, changes: dict[str, Any], *, resolver: Resolver | None = None) -> RunConfig:
    """Return the configuration of a cell with dotted paths set, validated and resolved.

    Args:
        resolver: of the study; default a new one, which reads the user's files again.

    Raises:
        UserError: an invalid configuration, or one that cannot run; it names the cell and the changes.
    """
    try:
        config = cell.config.replace(changes)
    except UserError as error:  # its place is the path of the field
        raise _with_changes(str(error), study, cell, changes) from error
    try:
        resolver = resolver or Resolver(study)
        resolved = resolver(replace(cell, settings=config))
    except UserError as error:
        raise _with_changes(error.message, study, cell, changes) from error
    if resolved.refusal is not None:
        raise _with_changes(resolved.refusal, study, cell, changes)
    return resolved.config


def _with_changes(message: str, study: StudyConfig, cell: Cell, changes: dict[str, Any]) -> UserError:
    assignments = ", ".join(assignment(path, value) for path, value in changes.items())
    return UserError(f"the cell {cell.name!r} with {assignments}: {message}", study.where("search", "space"))
