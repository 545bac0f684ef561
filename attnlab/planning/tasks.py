"""The question of a study: metric, direction and margin, of each task where it has several."""

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.config.estimand import EstimandConfig
from attnlab.config.study import StudyConfig
from attnlab.config.tasks import TaskQuestion, by_label, task_axis
from attnlab.errors import UserError, nearest
from attnlab.planning.estimand import resolve_estimand
from attnlab.planning.matching import CellPair


def resolve_questions(study: StudyConfig, resolved: Sequence[CellPair]) -> dict[str, TaskQuestion]:
    """Return the question of each task, by the label of its value; of a study of one task with the key "".

    Raises:
        UserError: an unknown metric, tasks with several metrics that are not values of one axis, or a margin without a unit.
    """
    axis = task_axis(study)
    if not axis:
        return {"": _question(study, resolved, study.metric, place=("metric",), margin=study.margin)}
    metrics = by_label(study, "metric", study.metric) if isinstance(study.metric, dict) else {}
    margins = by_label(study, "margin", study.margin) if isinstance(study.margin, dict) else {}
    questions: dict[str, TaskQuestion] = {}
    for label in dict.fromkeys(cell.axes[axis] for cell, _ in resolved):
        cells = [(cell, resolution) for cell, resolution in resolved if cell.axes[axis] == label]
        place = _key_of(study, axis, label)
        metric = metrics.get(label) if isinstance(study.metric, dict) else study.metric
        margin = margins.get(label) if isinstance(study.margin, dict) else study.margin
        questions[str(label)] = _question(study, cells, metric, place=place, margin=margin)
    units = {question.metric for question in questions.values()}
    if isinstance(study.margin, int | float) and len(units) > 1:
        message = f"margin: expected a margin for each task, because they have different metrics ({', '.join(sorted(units))})"
        example = f"margin: {{{', '.join(f'{label}: ...' for label in questions)}}} or 2 % of steps"
        raise UserError(f"{message}: {example}", study.where("margin"))
    return questions


def resolve_estimands(
    study: StudyConfig, resolved: Sequence[CellPair], questions: Mapping[str, TaskQuestion]
) -> EstimandConfig:
    """Return the estimand of a study.

    Args:
        questions: as ``resolve_questions`` returns them.

    Raises:
        UserError: a task of several is not summarized by the mean; and as ``resolve_estimand``.
    """
    axis = task_axis(study)
    if not axis:
        return resolve_estimand(study, resolved, metric=questions[""].metric)
    for label, question in questions.items():
        cells = [(cell, resolution) for cell, resolution in resolved if str(cell.axes[axis]) == label]
        estimand = resolve_estimand(study, cells, metric=question.metric)
        if estimand != EstimandConfig():
            message = f"estimand: expected the mean in a study of several tasks, got {estimand.label} of {label}"
            raise UserError(message, cells[0][0].where("task") if study.estimand is None else study.where("estimand"))
    return EstimandConfig()


def _key_of(study: StudyConfig, axis: str, label: Any) -> tuple[str, ...]:
    """Return the location of the metric that the study states for a task."""
    if not isinstance(study.metric, dict):
        return ("metric",)
    return next((("metric", key) for key in study.metric if label in by_label(study, "metric", {key: ""})), ("metric",))


def _question(
    study: StudyConfig, resolved: Sequence[CellPair], metric: Any, *, place: tuple[str, ...], margin: Any
) -> TaskQuestion:
    """Return the question of cells that must all have one metric."""
    first = resolved[0][1].task
    for cell, resolution in resolved:
        if resolution.task.metric != first.metric:
            message = f"task: expected tasks with one metric, got {first.metric} and {resolution.task.metric}"
            raise UserError(message, cell.where("task"))
    if metric in (None, first.metric):
        return TaskQuestion(first.metric, first.direction, margin)
    others = {"loss": "min"} if first.kind == "classifier" else first.other_metrics
    if metric in others:
        return TaskQuestion(metric, others[metric], margin)
    known = [first.metric, *others]
    message = f"unknown metric {metric!r}{nearest(metric, known)}: expected {' or '.join(known)}"
    raise UserError(message, study.where(*place))


def check_reference_scores(study: StudyConfig, *, tasks: list[Any]) -> None:
    """Raise if the study names reference scores that none of its tasks has."""
    if isinstance(study.reference_scores, bool):
        return
    known = list(dict.fromkeys(name for task in tasks for name in task.reference_scores()))
    for i, name in enumerate(study.reference_scores):
        if name not in known:
            message = (
                f"unknown reference score {name!r}{nearest(name, known)}: the study's tasks have {', '.join(known) or 'none'}"
            )
            raise UserError(message, study.where("reference_scores", i))
