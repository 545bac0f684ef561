"""``over``: the levels at which the cells of a study are compared, to find out how their differences change.

``over: {train.steps: [500, 1500, 4500]}`` is an axis like any other of the grid, with a role: each cell is
compared with its baseline at every level, and the change of the difference from level to level is tested
(``attnlab.stats.trend``). Reading a study appends the axis to its grid, so that planning and running treat
it like any other.

Levels that need several fields have names: ``over: {width: {"64": {model.dim: 64, train.lr: 4e-3}, "128":
{...}}}``. The names are the numbers that the trend is computed over.
"""

from __future__ import annotations

import math
from typing import Any

from attnlab.config.study import StudyConfig
from attnlab.config.yaml import Loc, Where, kind
from attnlab.errors import UserError


def with_levels(fields: dict[str, Any], *, where: Where) -> tuple[dict[str, Any], str]:
    """Append the axis of ``over`` to the grid of a study.

    Args:
        fields: of the study, not validated yet; an ``over`` that is not a mapping of one axis is left to
        the validation.
        where: the places of the study's values.

    Returns:
        The fields, and the name of the axis; "" without ``over``.

    Raises:
        UserError: the grid has other values of the same axis.
    """
    over, grid = fields.get("over"), fields.get("grid", {})
    if not isinstance(over, dict) or len(over) != 1 or not isinstance(grid, dict):
        return fields, ""
    axis, values = next(iter(over.items()))
    if not isinstance(values, list | dict) or not values:
        return fields, ""
    if axis in grid and grid[axis] != values:
        message = f"over: expected an axis that the grid does not have, got {axis!r}: list its values in one of the two"
        raise UserError(message, where(("over", axis), key=True))
    return {**fields, "grid": {**grid, axis: values}}, axis


def check_over(study: StudyConfig) -> None:
    """Check that the levels of ``over`` are positive numbers, and that each is compared with a baseline of
    its own.

    Raises:
        UserError: the first mistake, with its place.
    """
    if study.over is None:
        return
    axis, place = study.over_axis, study.where("over", study.over_axis, key=True)
    values = study.over[axis]
    if len(values) < 2:
        raise UserError(f"over.{axis}: expected at least two levels, got {len(values)}", place)
    levels: list[float] = []
    for key, value in enumerate(values) if isinstance(values, list) else ((name, name) for name in values):
        levels.append(_level(axis, value, place=study.where("over", axis, key, key=isinstance(key, str))))
        if levels[-1] in levels[:-1]:
            message = f"over.{axis}: expected each level once, got {value} again"
            raise UserError(message, study.where("over", axis, key, key=isinstance(key, str)))
    if not study.baselines:
        raise UserError(
            "over: expected a 'baseline' in the study, got none: the trend describes the differences from it", place
        )
    for i, baseline in enumerate(study.baselines):
        if axis in baseline:
            loc: Loc = ("baseline", i, axis) if isinstance(study.baseline, list) else ("baseline", axis)
            message = (
                f"baseline: expected no {axis!r}: at each level of 'over', cells are compared with the baseline of that level"
            )
            raise UserError(message, study.where(*loc, key=True))


def _level(axis: str, value: Any, *, place: str) -> float:
    """Return a level as a number."""
    try:
        level = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        level = math.nan
    if not 0 < level < math.inf:
        raise UserError(f"over.{axis}: expected levels that are numbers above 0, got {kind(value)}", place)
    return level
