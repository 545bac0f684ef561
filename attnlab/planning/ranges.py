"""Check margins and thresholds against the range of the metric: a margin as wide as the range finds every cell equivalent.

Ranges of attnlab's tasks are known, and numbers outside of them are refused. Those of a user's metric are assumed by its
name, and give notes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from attnlab._util.metrics import GENERATED_SCORES, is_share
from attnlab.config.estimand import EstimandConfig
from attnlab.config.study import StudyConfig
from attnlab.config.tasks import TaskQuestion, task_axis
from attnlab.errors import UserError
from attnlab.planning.matching import CellPair

WIDE, WIDE_LOSS = 0.1, 0.05  # share of the range from which on a margin is noted, of a loss from the best to a guess
NARROW = 1e-4  # share of the range up to which a margin is noted


@dataclass(frozen=True)
class ScoreRange:
    """The range of a metric.

    Attributes:
        best: the best possible score.
        guess: the score of a guess.
        worst: the worst possible score; None for a loss, which has no limit.
        known: False if the range is assumed by the name of a user's metric.
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
        """Return True if no run can have this score."""
        ends = sorted((self.best, math.inf if self.worst is None else self.worst))
        return self.known and not ends[0] <= score <= ends[1]


def score_range(metric: str, task: Any) -> ScoreRange | None:
    """Return the range of a metric of a task; None if it is not known."""
    known = type(task).__module__.startswith("attnlab.tasks.")
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
    study: StudyConfig, resolved: Sequence[CellPair], questions: Mapping[str, TaskQuestion], estimand: EstimandConfig
) -> list[str]:
    """Return notes on a margin, a threshold or a ``train.stop_at`` that does not fit the range of its metric.

    Args:
        resolved: all cells of the study.
        questions: label of the task's value -> its question; "" in a study of one task.
        estimand: of the study.

    Raises:
        UserError: a number outside of a range that is known.
    """
    axis = task_axis(study)
    notes: dict[str, None] = {}
    for cell, resolution in resolved:
        if resolution.refusal is not None:
            continue
        question = questions[str(cell.axes[axis]) if axis else ""]
        scores = score_range(question.metric, resolution.task)
        estimator = estimand.estimator(question.metric, question.direction)
        notes |= dict.fromkeys(estimator.margin_notes(question.margin))
        if estimator.in_unit and scores is not None and isinstance(question.margin, float):
            if scores.known and scores.worst is not None and question.margin >= scores.size:
                message = (
                    f"margin: expected less than {scores.size:g}, the whole range of {question.metric}, got {question.margin:g}"
                )
                raise UserError(f"{message}: every two cells would be equivalent", study.where("margin"))
            notes |= dict.fromkeys(_on_margin(question.margin, question.metric, scores))
        place = study.where("estimand") if study.estimand else cell.where("task")
        limits = [("the threshold of the solve rate", estimand.threshold, question.metric, question.direction, place)]
        task = resolution.task
        stop_at, place = resolution.config.train.stop_at, cell.where("train", "stop_at")
        limits.append(("train.stop_at", stop_at, task.metric, task.direction, place))
        for name, limit, metric, direction, place in limits:
            if limit is not None:
                notes |= dict.fromkeys(_on_limit(name, limit, metric, direction, task, place=place))
    return list(notes)


def share_notes(metric: str, margin: float | str | None) -> Iterator[str]:
    """Yield a note on the margin of a program's metric that is a share by its name, and may be printed in per cent."""
    if is_share(metric) and isinstance(margin, float) and WIDE <= margin < 10:
        yield (
            f"margin: {margin:g} of {metric} is {_per_cent(margin)} if the program prints it in per cent; if it prints "
            f"numbers from 0 to 1, write {margin / 100:g} for that"
        )


def _on_margin(margin: float, metric: str, scores: ScoreRange) -> Iterator[str]:
    if margin >= (WIDE_LOSS if scores.worst is None else WIDE) * scores.size:
        way = abs(scores.best - scores.guess)
        part = "all" if margin >= way else f"{100 * margin / way:.0f} %"
        points = f"; for {_per_cent(margin)}, write {margin / 100:g}" if scores.size == 1 else ""
        yield (
            f"margin: {margin:g} of {metric} is {part} of the way from a guess ({scores.guess:.3g}) to {scores.best:g}, so "
            f"cells that differ greatly count as equivalent{points}"
        )
    elif scores.size == 100 and margin <= NARROW * scores.size:
        yield f"margin: {margin:g} of {metric}, which goes from 0 to 100, is too small for any two cells to be equivalent"


def _per_cent(margin: float) -> str:
    return "1 percentage point" if margin == 1 else f"{margin:g} percentage points"


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
