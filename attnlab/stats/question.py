"""The question of a study: what is compared, by which metric, baseline and margin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from attnlab._util.metrics import is_share
from attnlab.config.question import EstimandConfig
from attnlab.stats.cells import CellSummary, ComparisonSpec, Goal

WIDE_SHARE = 0.5  # of an accuracy: from a guess between two classes to no error


def is_wide(margin: float | None, scores: Iterable[float], *, metric: str) -> bool:
    """Return True for a margin that is as large as every score, or half of the range of a share.

    A share by its name, such as ``accuracy``, is taken to be between 0 and 1 if all scores are. With such a margin nearly every
    cell would be equivalent, whatever it does.

    Args:
        margin: Largest difference that counts as equivalent, in the metric's unit.
        scores: Of the runs of a table.
        metric: Its name.
    """
    sizes = [abs(score) for score in scores]
    if margin is None or not sizes:
        return False
    largest = max(sizes)
    return margin >= (min(largest, WIDE_SHARE) if is_share(metric) and largest <= 1 else largest)


def has_wide_margin(cells: Iterable[CellSummary], spec: ComparisonSpec) -> bool:
    """Return ``is_wide`` for the margin and the scores of the cells of one task; False for a margin of solve rates."""
    scores = [score for cell in cells for score in cell.values.values()]
    return spec.estimator.in_unit and is_wide(spec.margin, scores, metric=spec.metric)


def question_of(spec: ComparisonSpec, question: Mapping[str, Any]) -> ComparisonSpec:
    """Return a comparison with the question that a study recorded, without its margin (see `ComparisonSpec.with_margin`)."""
    baselines, asked = question["baseline"] or [], question.get("questions") or ()
    return replace(
        spec,
        metric=question["metric"],
        direction=question["direction"],
        margin=None,
        baselines=tuple(baselines if isinstance(baselines, list) else [baselines]),
        control=question.get("control"),
        over=question.get("over") or "",
        moderate=question.get("moderate", True),
        estimand=EstimandConfig.model_validate(question.get("estimand") or {}),
        task_axis=question.get("task_axis") or "",
        tasks={task: Goal(*of_task) for task, of_task in (question.get("tasks") or {}).items()},
        further=tuple(Goal(*goal) for goal in asked),
    )
