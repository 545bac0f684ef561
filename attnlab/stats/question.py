"""The question of a study, as its record has it: what is compared, by which metric, baseline and margin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from attnlab.config.question import EstimandConfig
from attnlab.stats.cells import ComparisonSpec, Goal, Over, Tasks
from attnlab.stats.margin import with_margin


def question_of(spec: ComparisonSpec, question: Mapping[str, Any]) -> ComparisonSpec:
    """Return a comparison with the question that a study recorded, without its margin (`attnlab.stats.margin`)."""
    baselines = question["baseline"] or []
    over = [Over(question["over"])] if question.get("over") else []
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
    )


def with_question(
    spec: ComparisonSpec, question: Mapping[str, Any], records: Sequence[Mapping[str, Any]]
) -> ComparisonSpec | None:
    """Return a comparison with another question; None when the runs cannot answer it."""
    before = question_of(spec, question)
    named = [axis for baseline in (*before.baselines, before.control or {}) for axis in baseline]
    axes = {*named, *(axis for axis in (before.over, before.tasks.axis) if axis)}
    if not before.is_judged or not axes <= {*spec.axes}:
        return None
    return with_margin(before, question["margin"], records)
