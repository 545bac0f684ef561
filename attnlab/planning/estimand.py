"""Choose the estimand of a study, and check that its other parts have a meaning for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnlab.config.question import EstimandConfig
from attnlab.config.study import StudyConfig
from attnlab.errors import UserError
from attnlab.planning.effects import ineffective_fields
from attnlab.planning.matching import CellPair
from attnlab.registry import ESTIMATORS
from attnlab.tasks import Task


def resolve_estimand(study: StudyConfig, resolved: Sequence[CellPair], *, metric: str) -> EstimandConfig:
    """Return the estimand of the study with its threshold: the stated one, else the tasks'.

    A task declares an estimand of its primary metric; another metric of the study is summarized by the mean.

    Raises:
        UserError: the tasks declare different estimands, a solve rate has no threshold, or the study has a part that the
            estimand does not support.
    """
    declared = {_declared(resolution.task): cell for cell, resolution in resolved if resolution.task.metric == metric}
    if study.estimand is None:
        if len(declared) > 1:
            names = " and ".join(estimand.label for estimand in declared)
            message = f"task: expected tasks with one estimand, or 'estimand' in the study, got {names}"
            raise UserError(message, list(declared.values())[1].where("task"))
        estimand = next(iter(declared), EstimandConfig())
    else:
        estimand = _with_threshold(study, study.estimand, list(declared))
    _check_parts(study, estimand)
    return estimand


def stop_notes(cells: Sequence[CellPair], estimator: Any) -> list[str]:
    """Return a note on each ``train.stop_at`` that limits the scores by which cells are compared.

    Args:
        cells: of the plan.
        estimator: of the study; with several tasks, of the first one.
    """
    resolutions = [resolution for _, resolution in cells if resolution.refusal is None]
    stopping = [r for r in resolutions if "train.stop_at" not in ineffective_fields(r.config, r.task)]
    stops = [(r.config.train.stop_at, r.task.metric) for r in stopping]
    limits = [(score, stop_at) for stop_at, score in dict.fromkeys(stops) if stop_at is not None]
    return [note for limit in limits if (note := estimator.stop_note(*limit, compared=len(resolutions) > 1))]


def _declared(task: Task) -> EstimandConfig:
    """Return the estimand that a task declares."""
    threshold = task.threshold if ESTIMATORS.get(task.estimand).takes_threshold else None
    return EstimandConfig(name=task.estimand, threshold=None if threshold is None else float(threshold))


def _with_threshold(study: StudyConfig, estimand: EstimandConfig, declared: Sequence[EstimandConfig]) -> EstimandConfig:
    """Return the study's estimand, with the threshold that all tasks declare if it takes one and has none."""
    if estimand.threshold is not None or not ESTIMATORS.get(estimand.name).takes_threshold:
        return estimand
    thresholds = {other.threshold for other in declared}
    if len(thresholds) != 1 or None in thresholds:
        message = "estimand: expected a threshold, the score that solves the task, such as {name: solve_rate, threshold: 0.9}"
        raise UserError(f"{message}: the study's tasks do not declare one", study.where("estimand"))
    return EstimandConfig(name=estimand.name, threshold=thresholds.pop())


def _check_parts(study: StudyConfig, estimand: EstimandConfig) -> None:
    """Raise ``UserError`` when the study has a part that has a meaning only for other estimands."""
    means = {"sweep": "a fitted optimum", "factors": "an effect in a linear model"}
    for part, what in means.items() if estimand != EstimandConfig() else ():
        if getattr(study, part):
            message = f"expected 'estimand: mean' with '{part}', because {what} is a mean, got {estimand.name}"
            raise UserError(message, study.where("estimand") if study.estimand else study.where(part, key=True))
    if study.margin is not None and (problem := estimand.estimator("", "").margin_problem(study.margin)):
        raise UserError(f"margin: {problem}", study.where("margin"))
