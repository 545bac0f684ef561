"""Choose the estimand of a study, and check that its other parts have a meaning for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnlab.config.estimand import EstimandConfig
from attnlab.config.study import StudyConfig
from attnlab.errors import UserError
from attnlab.planning.effects import ineffective_fields
from attnlab.planning.matching import CellPair
from attnlab.tasks import Task


def resolve_estimand(study: StudyConfig, resolved: Sequence[CellPair], *, metric: str) -> EstimandConfig:
    """Return the estimand of the study with its threshold: its own, else that of its tasks.

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


def estimand_notes(study: StudyConfig, estimand: EstimandConfig) -> list[str]:
    """Return a note if the study has levels over which only mean differences have a trend."""
    if estimand.is_mean or not study.over:
        return []
    return [f"{estimand.name}: cells are compared at each level of {study.over_axis}; only means have a tested trend over them"]


def stop_notes(cells: Sequence[CellPair], estimand: EstimandConfig, *, metric: str) -> Iterator[str]:
    """Yield a note on each ``train.stop_at`` that limits the scores by which cells are compared.

    Args:
        cells: of the plan.
        estimand: of the study.
        metric: of the study; of several tasks, that of the first one.
    """
    resolutions = [resolution for _, resolution in cells if resolution.refusal is None]
    stopping = [r for r in resolutions if "train.stop_at" not in ineffective_fields(r.config, r.task)]
    stops = [(r.config.train.stop_at, r.task.metric, r.task.direction) for r in stopping]
    for stop_at, score, direction in dict.fromkeys(stops):
        if stop_at is None:
            continue
        if estimand.name != "solve_rate" and len(resolutions) > 1:
            yield (
                f"train.stop_at ends runs at {score} {stop_at:g}, so cells that reach it hardly differ: compare their steps, "
                "or set 'estimand: solve_rate'"
            )
        elif estimand.name == "solve_rate" and score == metric and not estimand.solves(stop_at, direction):
            yield (
                f"train.stop_at ends runs at {score} {stop_at:g}, before they reach the threshold of the solve rate, "
                f"{estimand.threshold:g}"
            )


def _declared(task: Task) -> EstimandConfig:
    """Return the estimand that a task declares."""
    if task.estimand == "solve_rate" and task.threshold is not None:
        return EstimandConfig(name="solve_rate", threshold=float(task.threshold))
    return EstimandConfig(name=task.estimand)


def _with_threshold(study: StudyConfig, estimand: EstimandConfig, declared: Sequence[EstimandConfig]) -> EstimandConfig:
    """Return the study's estimand, for a solve rate with the threshold that all tasks declare unless it has its own."""
    if estimand.name != "solve_rate" or estimand.threshold is not None:
        return estimand
    thresholds = {other.threshold for other in declared}
    if len(thresholds) != 1 or None in thresholds:
        message = "estimand: expected a threshold, the score that solves the task, such as {name: solve_rate, threshold: 0.9}"
        raise UserError(f"{message}: the study's tasks do not declare one", study.where("estimand"))
    return EstimandConfig(name="solve_rate", threshold=thresholds.pop())


def _check_parts(study: StudyConfig, estimand: EstimandConfig) -> None:
    """Raise ``UserError`` if the study has a part that has a meaning only for other estimands."""
    if estimand.is_mean:
        return
    name = estimand.name
    for part in ("sweep", "factors"):
        if getattr(study, part):
            what = "a fitted optimum" if part == "sweep" else "an effect in a linear model"
            message = f"expected 'estimand: mean' with '{part}', because {what} is a mean, got {name}"
            raise UserError(message, study.where("estimand") if study.estimand else study.where(part, key=True))
    if study.margin is None:
        return
    place = study.where("margin")
    if name == "superiority":
        raise UserError("margin: expected none with superiority, which has no test for equivalence", place)
    if name == "solve_rate":
        if isinstance(study.margin, str):
            raise UserError(f"margin: expected a difference of solve rates, such as 0.3, got {study.margin}", place)
        if isinstance(study.margin, float) and not study.margin < 1:
            raise UserError(f"margin: expected a difference of solve rates below 1, got {study.margin:g}", place)
