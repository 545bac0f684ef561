"""The question of a study: what is compared, by which metric, baseline and margin.

A margin in per cent of training steps is the difference in the metric that so many more steps of the baseline would make. A run
records the slope of its validation metric over the logarithm of the steps in the second half of training. The margin is the
mean slope of the baseline over its seeds times log(1 + share), estimated from `valid` alone when the study is judged. Its error
counts in the tests for equivalence (`attnlab.stats.paired.with_estimated_margin`): as a constant, a margin with a coefficient
of variation of 30 or 60 % makes 10 or 18 % of verdicts false with three seeds, where the true difference is the margin.

The slope within a run is not that between trainings of different lengths. In a byte model it was 0.08 at the end of 300 steps
with a cosine schedule, and 0.2 with a constant learning rate, where the scores after 150 and 600 steps differ by 0.17 and 0.38
for each unit of log(steps). The margin is then too narrow, which errs on the side of "inconclusive".
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from attnlab._util.metrics import is_share, slope_name
from attnlab._util.run_state import RunState
from attnlab.config.axes import label_text
from attnlab.config.question import EstimandConfig, share_of_steps
from attnlab.stats.cells import CellSummary, ComparisonSpec, Goal, Over, Tasks

WIDE_SHARE = 0.5  # of an accuracy: from a guess between two classes to no error


def with_margin(
    spec: ComparisonSpec, margin: float | str | Mapping[str, float | str | None] | None, runs: Iterable[Mapping[str, Any]]
) -> ComparisonSpec:
    """Return a comparison with the margin of its study.

    Args:
        spec: Without a margin.
        margin: As the study states it: in the metric's unit, or as in "5 % of steps"; in a study of several tasks also label
            -> margin.
        runs: One mapping per run with `state`, the axes and the summary metrics.
    """
    if spec.tasks.goals:
        rows, goals = list(runs), {}
        for task in spec.tasks.goals:
            own = margin.get(task) if isinstance(margin, Mapping) else margin
            part = spec.for_task(task)
            goals[task] = with_margin(part, own, [run for run in rows if part.includes(run)]).goal
        return replace(spec, tasks=replace(spec.tasks, goals=goals))
    assert not isinstance(margin, Mapping)
    share = share_of_steps(margin)
    if share is None:
        assert not isinstance(margin, str)
        return replace(spec, goal=replace(spec.goal, margin=margin))
    by_seed = {seed: slope * math.log1p(share) for seed, slope in _slopes(spec, runs).items()}
    margin = statistics.fmean(by_seed.values()) if by_seed else 0.0
    estimated = {"margin": margin, "margin_by_seed": by_seed} if margin > 0 else {"margin": None, "margin_by_seed": {}}
    return replace(spec, goal=replace(spec.goal, margin_share=share, **estimated))


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


def _slopes(spec: ComparisonSpec, runs: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Return seed -> improvement of the baseline per unit of log(steps), the median over its runs; {} without a slope."""
    baseline = {axis: label_text(value) for axis, value in spec.baseline.items()}
    slopes: dict[int, list[float]] = {}
    for run in runs:
        slope = run.get(slope_name(spec.metric))
        is_baseline = all(label_text(run.get(axis)) == value for axis, value in baseline.items())
        if is_baseline and run["state"] == RunState.COMPLETED and isinstance(slope, float) and math.isfinite(slope):
            slopes.setdefault(int(run["seed"]), []).append(-slope if spec.direction == "min" else slope)
    return {seed: statistics.median(of_seed) for seed, of_seed in sorted(slopes.items())}


def question_of(spec: ComparisonSpec, question: Mapping[str, Any]) -> ComparisonSpec:
    """Return a comparison with the question that a study recorded, without its margin (see `with_margin`)."""
    baselines = question["baseline"] or []
    over = [Over(question["over"])] if question.get("over") else []
    further = tuple(Goal(*goal) for goal in question.get("questions") or ())
    goals = {task: Goal(*of_task) for task, of_task in (question.get("tasks") or {}).items()}
    return replace(
        spec,
        goal=Goal(question["metric"], question["direction"]),
        baselines=tuple(baselines if isinstance(baselines, list) else [baselines]),
        control=question.get("control"),
        sections=(*over, *(section for section in spec.sections if not isinstance(section, Over))),
        moderate=question.get("moderate", True),
        estimand=EstimandConfig.model_validate(question.get("estimand") or {}),
        tasks=Tasks(question.get("task_axis") or "", goals),
        further=further,
    )
