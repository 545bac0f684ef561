"""Checks of training schedules: warm-ups that do not end, evaluations that decide nothing, too few of them for a margin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from attnlab.config.axes import Label
from attnlab.config.run import RunConfig
from attnlab.config.study import StudyConfig
from attnlab.config.tasks import task_axis
from attnlab.errors import UserError
from attnlab.planning.evaluations import EvaluationSchedule, evaluation_schedule
from attnlab.planning.matching import CellPair
from attnlab.planning.named_notes import PlannedRun, shared_notes
from attnlab.training.optim import warmup_steps
from attnlab.training.slope import MIN_POINTS


def schedule_notes(study: StudyConfig, runs: Sequence[PlannedRun]) -> Iterator[str]:
    """Yield notes on the warm-up and the evaluations of each run."""
    notes: list[tuple[str, str]] = []
    short: dict[Label, str] = {}  # level of ``over`` -> the share of train.lr that its runs reach
    for run in runs:
        with suppress(Exception):  # any exception: the task may be the user's own, and the plan reports its errors elsewhere
            config = run.config if run.is_stage else _at_ends(study, run.config)
            schedule = evaluation_schedule(config, run.task)
            notes += ((run.name, note) for note in _on_evaluations(study, config, schedule))
            warmup = warmup_steps(config.train, schedule.steps)
            if study.over_axis in run.axes and schedule.steps < warmup:
                short[run.axes[study.over_axis]] = f"{schedule.steps / warmup:.2g}"
            else:
                notes += ((run.name, note) for note in _on_warmup(config, schedule, warmup))
    if short:
        levels, shares = ", ".join(map(str, short)), ", ".join(short.values())
        yield (
            f"over.{study.over_axis}: train.warmup is longer than the runs at {levels}, which reach {shares} of train.lr: a "
            "trend may be due to the rate; write train.warmup as a fraction, such as 0.1 of the run"
        )
    yield from shared_notes(notes, runs)


def _at_ends(study: StudyConfig, config: RunConfig) -> RunConfig:
    """Return the configuration with the longest warm-up and the fewest steps that a search may choose."""
    space = study.search.space if study.search else {}
    changes: dict[str, Any] = {}
    for name, choose in (("warmup", max), ("steps", min)):
        if (dimension := space.get(f"train.{name}")) is not None:
            changes[name] = choose(value for _, value in dimension.ends)
    if "steps" in changes:
        changes["epochs"] = None
    return config.model_copy(update={"train": config.train.model_copy(update=changes)})


def _on_warmup(config: RunConfig, schedule: EvaluationSchedule, warmup: int) -> Iterator[str]:
    train, total = config.train, schedule.steps
    if train.warmup == 1 and isinstance(train.warmup, int):
        yield "train.warmup: 1 is one step, which has no effect: write a fraction below 1, such as 0.1 of the run, or 0"
    elif warmup >= total > 1:
        length = "as long as the run" if warmup == total else f"longer than the run of {total:,} steps"
        reached = "" if warmup == total else f", to {total / warmup:.2g} of train.lr"
        yield (
            f"train.warmup: {train.warmup} is {length}, so the learning rate rises until the last step{reached}: set it lower, "
            "such as 0.1 of the run"
        )
    elif train.patience is not None and (first := (train.patience + 1) * schedule.every) <= min(warmup, schedule.last):
        yield (
            f"train.patience: {train.patience} can end a run at step {first:,}, before its warm-up of {warmup:,} steps ends: "
            "set train.patience or train.eval_every higher"
        )


def _on_evaluations(study: StudyConfig, config: RunConfig, schedule: EvaluationSchedule) -> Iterator[str]:
    train = config.train
    if schedule.early == 0 and study.search is None:
        acting = [name for name in ("patience", "stop_at") if getattr(train, name) is not None]
        acting += ["checkpoint_selection"] if train.checkpoint_selection == "best" else []
        for name in acting:
            yield (
                f"train.{name}: {getattr(train, name)} has no effect, because valid is read once, at the last step "
                f"({schedule.steps:,}): set train.eval_every lower"
            )
    elif train.patience is not None and train.patience >= schedule.early:
        yield (
            f"train.patience: {train.patience} ends no run: {train.patience + 1} evaluations are needed, and a run has "
            f"{schedule.early} before its last one: set train.patience or train.eval_every lower"
        )


def check_margin(study: StudyConfig, resolved: Sequence[CellPair], *, margins: Mapping[str, float | str | None]) -> None:
    """Raise ``UserError`` if a margin is a share of steps and a baseline is evaluated too seldom to estimate it.

    Args:
        margins: label of the task's value -> margin; "" -> margin in a study of one task.
    """
    shares = [margin for margin in margins.values() if isinstance(margin, str)]
    if not shares:
        return
    place, axis = study.where("margin"), task_axis(study)
    if not study.baselines:
        raise UserError(f"margin: {shares[0]} is estimated from the baseline: expected a 'baseline', got none", place)
    for cell, resolution in resolved:
        margin = margins[str(cell.axes[axis]) if axis else ""]
        if not isinstance(margin, str):
            continue
        if resolution.refusal is not None or not study.baselines[0].items() <= cell.axes.items():
            continue
        schedule = evaluation_schedule(resolution.config, resolution.task)
        steps, every = schedule.steps, schedule.every
        points = len({*range(every, steps + 1, every), steps} - set(range((steps + 1) // 2)))
        if points < MIN_POINTS:
            message = (
                f"margin: {margin} is estimated from the baseline's validation curve: expected at least {MIN_POINTS} "
                f"evaluations in the second half of training, got {points} of {cell.name!r}"
            )
            raise UserError(f"{message}; set train.eval_every to at most {max(1, steps // 4)}", place)
