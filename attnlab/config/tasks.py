"""Studies of several tasks: the axis that sets the task, and the metric and margin that belong to each of its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnlab.config.axes import Label, labels, pick
from attnlab.config.levels import field_settings, paths_of_axis
from attnlab.config.study import StudyConfig
from attnlab.errors import UserError


@dataclass(frozen=True)
class TaskQuestion:
    """The comparison that a study makes on one task.

    Attributes:
        metric: name of the metric.
        direction: ``min`` where smaller values are better, else ``max``.
        margin: the largest difference that counts as equivalent, as the study states it.
    """

    metric: str
    direction: str
    margin: float | None = None


def task_axis(study: StudyConfig) -> str:
    """Return the axis that sets the task, if its values have tasks of several names; else ""."""
    for axis in study.grid:
        if "task" in paths_of_axis(study, axis) and len(set(_names(study, axis))) > 1:
            return axis
    return ""


def _names(study: StudyConfig, axis: str) -> list[str]:
    """Return the name of the task of each value of an axis; "" for a value that leaves the task of the base."""
    names = []
    for index in range(len(study.axes[axis])):
        values = [setting.value for setting in field_settings(study, axis, index) if setting.path == "task"]
        value = values[-1] if values else study.base.get("task", "")
        names.append(str(value.get("name") if isinstance(value, dict) else value))
    return names


def check_tasks(study: StudyConfig) -> None:
    """Check what a study of several tasks states about each of them, and that cells are compared within their task.

    Raises:
        UserError: the first mistake, with its place.
    """
    axis = task_axis(study)
    _check_further_questions(study, axis)
    for key, value in (("metric", study.metric), ("margin", study.margin)):
        if isinstance(value, dict):
            if not axis:
                message = f"{key}: expected one value, because the study has one task, got a value for each task"
                raise UserError(message, study.where(key))
            by_label(study, key, value)
    if not axis:
        return
    if axis in study.factors:
        message = f"factors.{axis}: expected one task: the effects of a design are differences in one metric"
        raise UserError(message, study.where("factors", axis, key=True))
    places: list[tuple[Any, tuple[str | int, ...]]] = [(study.control, ("control",))]
    if isinstance(study.baseline, list):
        places += [(baseline, ("baseline", i)) for i, baseline in enumerate(study.baseline)]
    else:
        places.append((study.baseline, ("baseline",)))
    for cell, loc in places:
        if cell and axis in cell:
            message = f"{loc[0]}: expected no {axis!r}: cells of several tasks are compared within their task"
            raise UserError(message, study.where(*loc, axis, key=True))


def _check_further_questions(study: StudyConfig, axis: str) -> None:
    """Raise ``UserError`` for further questions in a study that answers one only, or about cells that it does not compare."""
    if not study.questions:
        return
    reasons = {
        "factors": "the effects of a design are differences in one metric",
        "sweep": "a sweep chooses its rate by one metric",
        "search": "a search chooses its values by one metric",
    }
    found = next((part for part in reasons if getattr(study, part)), None)
    reason = reasons[found] if found else f"the values of {axis!r} have tasks with metrics of their own" if axis else ""
    if not reason and not study.baselines:
        reason = "it has no baseline to compare cells with"
    if reason:
        raise UserError(f"questions: expected none in this study: {reason}", study.where("questions", key=True))


def by_label(study: StudyConfig, key: str, values: Mapping[str, Any]) -> dict[Label, Any]:
    """Return a mapping from tasks, which may be named without their options, with the labels of the axis as keys.

    Args:
        study: of several tasks.
        key: of the mapping in the study: ``metric`` or ``margin``.
        values: task -> value.
    """
    axis = task_axis(study)
    names = labels(study.axes[axis], axis=axis)
    matched: dict[Label, Any] = {}
    for task, value in values.items():
        for index in pick(axis, study.axes[axis], task, place=study.where(key, task, key=True)):
            if names[index] in matched:
                message = f"{key}: expected each task once, got {names[index]} again"
                raise UserError(message, study.where(key, task, key=True))
            matched[names[index]] = value
    return matched
