"""The question of a study: metric, direction, margin and estimand, of each task where it has several.

The other parts of a study should have a meaning for its estimand. Margins and thresholds are checked against the range of the
metric: a margin as wide as the range finds every cell equivalent. Ranges of attnlab's tasks are known, and numbers outside of
them are refused. For a user's metric they are assumed by its name, and give notes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from attnlab._util.cost_metrics import shown_in
from attnlab._util.metrics import GENERATED_SCORES, at_length, base_metric, is_share
from attnlab.config.axes import by_label, task_axis
from attnlab.config.grid import Cell
from attnlab.config.question import EstimandConfig, TaskQuestion
from attnlab.config.study import StudyConfig
from attnlab.errors import UserError, nearest
from attnlab.registry import ESTIMATORS
from attnlab.tasks import Task

WIDE, WIDE_LOSS = 0.1, 0.05  # share of the range from which on a margin is noted, of a loss from the best to a guess


def resolve_estimand(study: StudyConfig, resolved: Sequence[Cell], *, metric: str) -> EstimandConfig:
    """Return the estimand of the study with its threshold: the stated one, else the tasks'.

    A task declares an estimand of its primary metric; another metric of the study is summarized by the mean.

    Raises:
        UserError: the tasks declare different estimands, a solve rate has no threshold, or the study has a part that the
            estimand does not support.
    """
    declared = {_declared(cell.task): cell for cell in resolved if cell.task.metric == metric}
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
    means = {"sweep": "the score at the best value tried", "factors": "an effect in a linear model"}
    means |= {"questions": "the value of a cell in each metric"}
    for part, what in means.items() if estimand != EstimandConfig() else ():
        if getattr(study, part):
            message = f"expected 'estimand: mean' with '{part}', because {what} is a mean, got {estimand.name}"
            raise UserError(message, study.where("estimand") if study.estimand else study.where(part, key=True))
    if study.margin is not None and (problem := estimand.estimator("", "").margin_problem(study.margin)):
        raise UserError(f"margin: {problem}", study.where("margin"))


def resolve_questions(study: StudyConfig, resolved: Sequence[Cell]) -> dict[str, TaskQuestion]:
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
    for label in dict.fromkeys(cell.axes[axis] for cell in resolved):
        cells = [cell for cell in resolved if cell.axes[axis] == label]
        place = _key_of(study, axis, label)
        metric = metrics.get(label) if isinstance(study.metric, dict) else study.metric
        margin = margins.get(label) if isinstance(study.margin, dict) else study.margin
        questions[str(label)] = _question(study, cells, metric, place=place, margin=margin)
    units = {question.metric for question in questions.values()}
    if isinstance(study.margin, int | float) and len(units) > 1:
        message = f"margin: expected a margin for each task, because they have different metrics ({', '.join(sorted(units))})"
        example = f"margin: {{{', '.join(f'{label}: ...' for label in questions)}}}"
        raise UserError(f"{message}: {example}", study.where("margin"))
    return questions


def resolve_further(study: StudyConfig, resolved: Sequence[Cell], first: TaskQuestion) -> list[TaskQuestion]:
    """Return the further questions of a study.

    Raises:
        UserError: an unknown metric, or one that is asked about twice.
    """
    found: list[TaskQuestion] = []
    for i, asked in enumerate(study.questions):
        place = ("questions", i, "metric")
        question = _question(study, resolved, asked.metric, place=place, margin=asked.margin)
        if question.metric in {first.metric, *(other.metric for other in found)}:
            raise UserError(f"questions: expected each metric once, got {asked.metric!r} again", study.where(*place))
        found.append(question)
    return found


def resolve_estimands(study: StudyConfig, resolved: Sequence[Cell], questions: Mapping[str, TaskQuestion]) -> EstimandConfig:
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
        cells = [cell for cell in resolved if str(cell.axes[axis]) == label]
        estimand = resolve_estimand(study, cells, metric=question.metric)
        if estimand != EstimandConfig():
            message = f"estimand: expected the mean in a study of several tasks, got {estimand.label} of {label}"
            raise UserError(message, cells[0].where("task") if study.estimand is None else study.where("estimand"))
    return EstimandConfig()


def _key_of(study: StudyConfig, axis: str, label: Any) -> tuple[str, ...]:
    """Return the location of the metric that the study states for a task."""
    if not isinstance(study.metric, dict):
        return ("metric",)
    return next((("metric", key) for key in study.metric if label in by_label(study, "metric", {key: ""})), ("metric",))


def _question(
    study: StudyConfig, resolved: Sequence[Cell], metric: Any, *, place: tuple[str | int, ...], margin: Any
) -> TaskQuestion:
    """Return the question of cells that must all have one metric."""
    first = resolved[0].task
    for cell in resolved:
        if cell.task.metric != first.metric:
            message = f"task: expected tasks with one metric, got {first.metric} and {cell.task.metric}"
            raise UserError(message, cell.where("task"))
    if metric in (None, first.metric):
        return TaskQuestion(first.metric, first.direction, margin)
    others = {"loss": "min"} if first.kind == "classifier" else first.other_metrics
    if metric in others:
        return TaskQuestion(metric, others[metric], margin)
    scores = {first.metric: first.direction, **others}
    recorded = _recorded(study, resolved, scores)
    if metric in recorded:
        return TaskQuestion(*recorded[metric], margin)
    known = [*scores, *recorded]
    message = f"unknown metric {metric!r}{nearest(metric, known)}: expected {' or '.join(scores)}"
    if recorded:
        message += f", or a number that every run records, such as {next(iter(recorded))}"
    raise UserError(message, study.where(*place))


def _recorded(study: StudyConfig, resolved: Sequence[Cell], scores: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return name in a study -> name in a record and direction of what all runs record beside the scores of their test.

    The rate of a sweep and the values of a search are chosen by a score of the task: their studies have none.
    """
    if study.search is not None or study.sweep is not None:
        return {}
    first, *others = [cell.config.evaluate.lengths for cell in resolved]
    lengths = [length for length in first if all(length in other for other in others)]
    at_lengths = {f"{name} at {length}": (at_length(name, length), way) for length in lengths for name, way in scores.items()}
    on_valid = {f"valid_{name}": (f"valid_{name}", way) for name, way in scores.items()}
    costs = {cost.name: (cost.name, "max" if cost.better == "higher" else "min") for cost in shown_in("cost table")}
    return {**at_lengths, **on_valid, **costs}


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


@dataclass(frozen=True)
class ScoreRange:
    """The range of a metric.

    Attributes:
        best: the best possible score.
        guess: the score of a guess.
        worst: the worst possible score; None for a loss, which has no limit.
        known: False when the range is assumed by the name of a user's metric.
    """

    best: float
    guess: float
    worst: float | None
    known: bool

    @property
    def size(self) -> float:
        """The distance from the worst score, or from a guess where the worst has no limit, to the best."""
        return abs(self.best - (self.guess if self.worst is None else self.worst))

    def excludes(self, score: float) -> bool:
        """Return True when no run can have this score."""
        ends = sorted((self.best, math.inf if self.worst is None else self.worst))
        return self.known and not ends[0] <= score <= ends[1]


def score_range(metric: str, task: Any) -> ScoreRange | None:
    """Return the range of a metric of a task; None when it is not known."""
    known, metric = type(task).__module__.startswith("attnlab.tasks."), base_metric(metric).removeprefix("valid_")
    if is_share(metric):
        guess = 1 / task.classes if task.classes else 0.0
        if known and metric == "accuracy" and hasattr(task, "chance"):
            with suppress(Exception):  # options that the task refuses elsewhere
                guess = float(task.chance())
        return ScoreRange(1.0, guess, 0.0, known)
    if metric in GENERATED_SCORES:
        return ScoreRange(100.0, 0.0, 0.0, known)
    if known and metric in ("bits_per_byte", "bits_per_token"):
        bits = math.log2(task.vocabulary)
        return ScoreRange(0.0, min(bits, 8.0) if metric == "bits_per_byte" else bits, None, known)
    if known and metric == "loss":
        return ScoreRange(0.0, math.log(task.classes or task.vocabulary), None, known)
    return None


def range_notes(
    study: StudyConfig,
    resolved: Sequence[Cell],
    questions: Mapping[str, TaskQuestion],
    estimand: EstimandConfig,
    further: Sequence[TaskQuestion] = (),
) -> list[str]:
    """Return notes on a margin, a threshold or a ``train.stop_at`` that does not fit the range of its metric.

    Args:
        resolved: all cells of the study.
        questions: label of the task's value -> its question; "" in a study of one task.
        estimand: of the study.
        further: its further questions.

    Raises:
        UserError: a number outside of a range that is known.
    """
    axis = task_axis(study)
    notes: dict[str, None] = {}
    for cell in resolved:
        if cell.refusal is not None:
            continue
        question = questions[str(cell.axes[axis]) if axis else ""]
        places = [study.where("margin"), *(study.where("questions", i, "margin") for i in range(len(further)))]
        for asked, place in zip((question, *further), places, strict=True):
            notes |= dict.fromkeys(_margin_notes(asked, cell.task, estimand, place=place))
        place = study.where("estimand") if study.estimand else cell.where("task")
        limits = [("the threshold of the solve rate", estimand.threshold, question.metric, question.direction, place)]
        task = cell.task
        stop_at, place = cell.config.train.stop_at, cell.where("train", "stop_at")
        limits.append(("train.stop_at", stop_at, task.metric, task.direction, place))
        for name, limit, metric, direction, place in limits:
            if limit is not None:
                notes |= dict.fromkeys(_on_limit(name, limit, metric, direction, task, place=place))
    return list(notes)


def _margin_notes(question: TaskQuestion, task: Any, estimand: EstimandConfig, *, place: str) -> Iterator[str]:
    """Yield notes on the margin of a question.

    Raises:
        UserError: it is as large as the range of the metric.
    """
    scores = score_range(question.metric, task)
    estimator = estimand.estimator(question.metric, question.direction)
    yield from estimator.margin_notes(question.margin)
    if estimator.in_unit and scores is not None and isinstance(question.margin, float):
        if scores.known and scores.worst is not None and question.margin >= scores.size:
            message = (
                f"margin: expected less than {scores.size:g}, the whole range of {question.metric}, got {question.margin:g}"
            )
            raise UserError(f"{message}: every two cells would be equivalent", place)
        yield from _on_margin(question.margin, question.metric, scores)


def share_notes(metric: str, margin: float | None) -> Iterator[str]:
    """Yield a note on the margin of a program's metric that is a share by its name, and may be printed in per cent."""
    if is_share(metric) and isinstance(margin, float) and WIDE <= margin < 10:
        yield (
            f"margin: {margin:g} of {metric} is {margin:g} percentage points if the program prints it in per cent; if it "
            f"prints numbers from 0 to 1, write {margin / 100:g} for that"
        )


def _on_margin(margin: float, metric: str, scores: ScoreRange) -> Iterator[str]:
    if margin >= (WIDE_LOSS if scores.worst is None else WIDE) * scores.size:
        way = abs(scores.best - scores.guess)
        part = "all" if margin >= way else f"{100 * margin / way:.0f} %"
        yield (
            f"margin: {margin:g} of {metric} is {part} of the way from a guess ({scores.guess:.3g}) to {scores.best:g}, so "
            "cells that differ greatly count as equivalent"
        )


def _on_limit(name: str, limit: float, metric: str, direction: str, task: Any, *, place: str) -> Iterator[str]:
    """Yield a note on a threshold that a guess reaches.

    Raises:
        UserError: no score can equal it.
    """
    scores = score_range(metric, task)
    if scores is None:
        return
    if scores.excludes(limit):
        allowed = "a number of at least 0" if scores.worst is None else f"a number from 0 to {scores.best:g}"
        raise UserError(f"{name}: expected {allowed}, as {metric} is, got {limit:g}", place)
    if scores.known and (limit >= scores.guess if direction == "min" else limit <= scores.guess):
        yield f"{name}: {limit:g} is reached by a guess, which scores {scores.guess:.3g} in {metric}"
