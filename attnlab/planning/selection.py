"""Selection of a plan's cells by the values of their axes (``--only``)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from attnlab.config.axes import pick
from attnlab.config.grid import CellConfig
from attnlab.config.study import StudyConfig, check_axis
from attnlab.config.study_source import assignment
from attnlab.config.yaml import parse
from attnlab.errors import UserError


def selected(study: StudyConfig, cells: Sequence[CellConfig], only: Mapping[str, Any]) -> list[str]:
    """Return the names of the cells that ``only`` selects.

    Raises:
        UserError: there are none.
    """
    names = [cell.name for cell in cells if is_selected(study, cell, only)]
    if not names:
        selection = ", ".join(assignment(axis, value) for axis, value in only.items())
        raise UserError("expected a cell of the grid, got none (skipped, or not in the grid)", f"--only {selection}")
    return names


def is_selected(study: StudyConfig, cell: CellConfig, only: Mapping[str, Any]) -> bool:
    """Return True when every axis of ``only`` has one of its values in the cell; see ``attnlab.plan``."""
    for word, values in only.items():
        place = f"--only {assignment(word, values)}"
        ends = [axis for axis in study.grid if axis.rpartition(".")[2] == word]
        axis = ends[0] if len(ends) == 1 else word
        check_axis(study, axis, place=place)
        if cell.chosen[axis] not in _chosen(study, axis, values, place):
            return False
    return True


def _chosen(study: StudyConfig, axis: str, values: Any, place: str) -> set[int]:
    """Return the indices of one value, even if its label has commas (``dense with sink, gate``), or of several values."""
    with suppress(UserError):
        return set(_picked(study, axis, values, place))
    if isinstance(values, str):
        values = re.split(r",(?![^\[]*\])", values)  # a comma in brackets is a part of a value: [gru, dense],[dense]
    return {i for value in (values if isinstance(values, list) else [values]) for i in _picked(study, axis, value, place)}


def _picked(study: StudyConfig, axis: str, value: Any, place: str) -> list[int]:
    if isinstance(value, str):  # 1e-3,3e-4 was given as one text, but its parts are numbers
        value = parse(value.strip(), name=place)[0]
    return pick(axis, study.axes[axis], value, place=place)
