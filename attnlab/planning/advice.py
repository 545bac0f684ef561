"""Notes on settings of a search: samplers that only draw at random, pruners that never prune, unequal training budgets.

Optuna counts in the training steps at which ``valid`` is evaluated. The run ends at the last of them, so a pruner can only
act at those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attnlab.config.paths import NAMED, check_value
from attnlab.config.search import SearchConfig
from attnlab.config.sweep import sweep_advice
from attnlab.config.types import Named
from attnlab.errors import UserError
from attnlab.planning.evaluations import EvaluationSchedule
from attnlab.planning.samplers import settings

SCHEDULE_FIELDS = ("train.steps", "train.epochs", "train.eval_every")  # they change the steps at which valid is evaluated


def advice(search: SearchConfig, schedules: Sequence[EvaluationSchedule], *, metric: str, direction: str) -> list[str]:
    """Return notes on settings that have no effect, each with the change to make, and on those that make budgets unequal.

    Args:
        schedules: of the cells.
        metric, direction: of the study.
    """
    notes = [*_on_sampler(search), *_on_space(search), *_on_budget(search, schedules)]
    if search.pruner.name != "NopPruner":
        notes += _on_pruner(search.pruner, search, schedules, metric, direction)
    return list(dict.fromkeys(notes))


def _on_sampler(search: SearchConfig) -> Iterator[str]:
    name, arguments = search.sampler.name, settings(search.sampler, kind="sampler")
    learns = name not in ("RandomSampler", "QMCSampler")
    for key in ("n_startup_trials", "population_size"):
        if key in arguments and arguments[key] >= search.trials:
            learns = False
            yield (
                f"sampler: {name} draws its first {arguments[key]} trials at random ({key}), and the search has only "
                f"{search.trials}, so it is a random search: set {key} lower or search.trials higher"
            )
    choices = [path for path, dimension in search.space.items() if dimension.choices is not None]
    if choices and name in ("CmaEsSampler", "QMCSampler"):
        yield f"sampler: {name} draws choices at random ({', '.join(choices)}): use TPESampler, or a range"
    if learns and sweep_advice(search):
        different = f"so cells are tried at different values{sweep_advice(search)}"
        yield f"sampler: {name} chooses values by the results of the cell's earlier trials, {different}"


def _on_space(search: SearchConfig) -> Iterator[str]:
    for path, dimension in search.space.items():
        if dimension.high is None or not dimension.whole or dimension.step is not None or path.partition(".")[0] in NAMED:
            continue
        try:
            check_value(path, dimension.high - 0.5, where=lambda loc, key=False: "")
        except UserError:  # a field of whole numbers
            continue
        all_numbers = f"write low: {dimension.low}.0 to try all numbers between them"
        yield f"search.space.{path}: both ends are whole numbers, so only whole numbers are tried: {all_numbers}"


def _on_budget(search: SearchConfig, schedules: Sequence[EvaluationSchedule]) -> Iterator[str]:
    """Yield notes on fields with which the confirmed runs of two cells differ in data read, in steps or in cost."""
    by_epochs = all(schedule.epochs for schedule in schedules)
    lengths = [path for path in ("train.steps", "train.epochs", "train.batch_size") if path in search.space]
    if by_epochs and lengths == ["train.batch_size"]:
        yield (
            "search.space: train.batch_size decides the number of steps of a run of so many epochs, so cells can be confirmed "
            "with unequal numbers of steps"
        )
    elif lengths:
        decide = "decides" if len(lengths) == 1 else "decide"
        yield (
            f"search.space: {' and '.join(lengths)} {decide} how much data a run reads, so cells can be confirmed with unequal "
            "budgets, and a difference between them may be due to the budget"
        )
    if "train.gradient_accumulation" in search.space:
        yield (
            "search.space: train.gradient_accumulation changes the speed and memory of a run, not the batch that it learns "
            "from, so cells can be confirmed with costs that are not comparable"
        )


def _on_pruner(
    named: Named, search: SearchConfig, schedules: Sequence[EvaluationSchedule], metric: str, direction: str
) -> Iterator[str]:
    arguments = settings(named, kind="pruner")
    inner = arguments.get("wrapped_pruner")
    if inner is not None:
        inner = {"name": inner} if isinstance(inner, str) else inner
        inside = Named(name=inner["name"], options={k: v for k, v in inner.items() if k != "name"})
        yield from _on_pruner(inside, search, schedules, metric, direction)
    yield from _on_trials(named.name, arguments, search.trials)
    if named.name == "WilcoxonPruner":
        yield (
            "pruner: WilcoxonPruner compares repeated measurements such as seeds, but a trial is one training with one seed: "
            "use MedianPruner or HyperbandPruner"
        )
    wrong, right = ("lower", "upper") if direction == "min" else ("upper", "lower")
    if named.name == "ThresholdPruner" and arguments[wrong] is not None:
        yield f"pruner: {wrong}: {arguments[wrong]} stops the trials with the better {metric}: set {right} instead"
    moving = (*SCHEDULE_FIELDS, "train.batch_size") if any(schedule.epochs for schedule in schedules) else SCHEDULE_FIELDS
    moved = [path for path in moving if path in search.space]
    if moved:
        yield f"pruner: trials are evaluated at different steps ({', '.join(moved)}), but compared at equal steps"
        return
    for schedule in dict.fromkeys(schedules):
        if schedule.early == 0:
            yield (
                f"pruner: no trial can be stopped, because valid is read only once, at the last step ({schedule.steps}): "
                "set train.eval_every lower"
            )
        else:
            yield from _on_steps(named.name, arguments, schedule)


def _on_trials(name: str, arguments: dict[str, Any], trials: int) -> Iterator[str]:
    for key in ("n_startup_trials", "n_min_trials"):
        if key in arguments and arguments[key] >= trials:
            wait = f"waits for {arguments[key]} trials ({key}), and the search has {trials}"
            yield f"pruner: {name} {wait}, so it stops no trial: set {key} lower"
    if arguments.get("bootstrap_count", 0) >= trials:
        count = arguments["bootstrap_count"]
        early = f"stops the first {count} trials early (bootstrap_count), and the search has {trials}"
        yield f"pruner: {name} {early}, so none completes: set bootstrap_count lower"
    if arguments.get("percentile") == 100:
        yield f"pruner: {name} keeps the best 100 % of the trials, so it stops no trial: set percentile lower"


def _on_steps(name: str, arguments: dict[str, Any], schedule: EvaluationSchedule) -> Iterator[str]:
    """Compare the steps of a run with those at which the pruner acts."""
    end = f"the last evaluation before the end is at step {schedule.last}"
    first = _FIRST.get(name)
    if first is not None:
        step, key = first(arguments)
        if step > schedule.last:
            yield f"pruner: {name} first acts at step {step} ({key}), but {end}, so it stops no trial: set {key} lower"
    if arguments.get("interval_steps", 1) > schedule.steps:
        yield (
            f"pruner: {name} acts every {arguments['interval_steps']} steps (interval_steps), but a run has only "
            f"{schedule.steps}, so it acts once in each trial: set interval_steps lower"
        )
    most = arguments.get("max_resource")
    if isinstance(most, int) and most != schedule.steps:
        yield (
            f"pruner: {name} expects runs of {most} steps (max_resource), but a run has {schedule.steps}: "
            f"set max_resource: {schedule.steps}"
        )
    if arguments.get("patience", -1) + 1 >= schedule.early:
        yield (
            f"pruner: {name} waits for more than {arguments['patience'] + 1} evaluations (patience), but a run has only "
            f"{schedule.early} before its last one, so it stops no trial: set patience or train.eval_every lower"
        )


def _rung(arguments: dict[str, Any]) -> tuple[int, str]:
    """Return the first step at which successive halving prunes; with "auto", Optuna uses a hundredth of the run."""
    least = 1 if arguments["min_resource"] == "auto" else arguments["min_resource"]
    # 40 is more than any run needs; a larger exponent would give a number of many digits.
    rate = min(arguments.get("min_early_stopping_rate", 0), 40)
    return least * min(arguments["reduction_factor"], 1_000) ** rate, "min_early_stopping_rate" if rate else "min_resource"


def _warmup(arguments: dict[str, Any]) -> tuple[int, str]:
    return arguments["n_warmup_steps"], "n_warmup_steps"


_FIRST: dict[str, Callable[[dict[str, Any]], tuple[int, str]]] = {
    "HyperbandPruner": _rung,
    "SuccessiveHalvingPruner": _rung,
    "MedianPruner": _warmup,
    "PercentilePruner": _warmup,
    "ThresholdPruner": _warmup,
}
