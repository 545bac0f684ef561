"""Check a search against Optuna and against every cell; apply the values that a trial chose to a cell.

Notes name settings without an effect: samplers that only draw at random, pruners that never prune, unequal training budgets.
Optuna counts in the training steps at which ``valid`` is evaluated. The run ends at the last of them, so a pruner can only
act at those before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from attnlab.config.grid import CellConfig
from attnlab.config.paths import NAMED, assignment, check_value
from attnlab.config.run import RunConfig
from attnlab.config.search import SearchConfig, sweep_advice
from attnlab.config.study import StudyConfig
from attnlab.config.types import Named
from attnlab.errors import UserError
from attnlab.planning.evaluations import EvaluationSchedule, evaluation_schedule
from attnlab.planning.matching import check_fixed_costs
from attnlab.planning.resolve import Resolver
from attnlab.planning.samplers import check, settings

if TYPE_CHECKING:
    from attnlab.planning.cell import Cell

SCHEDULE_FIELDS = ("train.steps", "train.epochs", "train.eval_every")  # they change the steps at which valid is evaluated


def search_notes(
    study: StudyConfig,
    cells: Sequence[Cell],
    *,
    resolver: Resolver,
    tasks: list[Any],
    goal_of: Callable[[Cell], tuple[str, str]],
) -> list[str]:
    """Check the search of a planned study, and return notes on settings that have no effect.

    Args:
        resolver: of the study.
        tasks: of the cells, in their order.
        goal_of: returns the metric of a cell and its direction.

    Raises:
        UserError: an argument that Optuna does not accept, or a value of the space that a cell does not accept.
    """
    search = study.search
    assert search is not None
    check(search, where=lambda *loc, key=False: study.where("search", *loc, key=key))
    _check_space(study, cells, resolver)
    planned = [(cell, task) for cell, task in zip(cells, tasks, strict=True) if cell.refusal is None]
    notes: dict[str, None] = {}
    for metric, direction in dict.fromkeys(goal_of(cell) for cell, _ in planned):
        alike = [pair for pair in planned if goal_of(pair[0]) == (metric, direction)]
        schedules = [evaluation_schedule(cell.config, task) for cell, task in alike]
        notes |= dict.fromkeys(advice(search, schedules, metric=metric, direction=direction))
    return list(notes)


def apply_changes(study: StudyConfig, cell: Cell, changes: dict[str, Any], *, resolver: Resolver | None = None) -> RunConfig:
    """Return the configuration of a cell with dotted paths set, validated and resolved.

    Args:
        resolver: of the study; default a new one, which reads the user's files again.

    Raises:
        UserError: an invalid configuration, one that cannot run, or one that is no longer matched to its baseline; it names
            the cell and the changes.
    """
    try:
        config = cell.config.replace(changes)
    except UserError as error:  # its place is the path of the field
        raise _with_changes(str(error), study, cell, changes) from error
    try:
        resolver = resolver or Resolver(study)
        resolved = resolver(CellConfig(cell.name, cell.axes, config, study, {}))
        if resolved.refusal is None:
            check_fixed_costs(cell, resolved, resolver.traces)
    except UserError as error:
        raise _with_changes(error.message, study, cell, changes) from error
    if resolved.refusal is not None:
        raise _with_changes(resolved.refusal, study, cell, changes)
    return resolved.config


def search_digest(study: StudyConfig, cell: Cell, goal: str) -> str:
    """Return 12 hex digits over everything that determines a search: cell, space, sampler, pruner and ``goal``.

    The number of trials is left out, so that a search can be extended, and so is ``parallel``, which only affects the load.
    """
    assert study.search is not None
    settings = study.search.model_dump(mode="json", exclude={"trials", "parallel"})
    evaluate = cell.config.evaluate.model_copy(update={"lengths": ()})  # trials are not evaluated on the test split
    config = cell.config.model_copy(update={"evaluate": evaluate})
    text = json.dumps([config.fingerprint(), settings, goal], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _with_changes(message: str, study: StudyConfig, cell: Cell, changes: dict[str, Any]) -> UserError:
    assignments = ", ".join(assignment(path, value) for path, value in changes.items())
    return UserError(f"the cell {cell.name!r} with {assignments}: {message}", study.where("search", "space"))


def _check_space(study: StudyConfig, cells: Iterable[Cell], resolver: Resolver) -> None:
    """Apply both ends or all choices of every dimension to every cell that is not refused.

    Raises:
        UserError: a cell that lacks the field (an option of another variant), or does not accept the value.
    """
    assert study.search is not None
    for cell in cells:
        if cell.refusal is not None:
            continue
        for path, dimension in study.search.space.items():
            for loc, value in dimension.ends:
                try:
                    apply_changes(study, cell, {path: value}, resolver=resolver)
                except UserError as error:
                    raise UserError(error.message, study.where("search", "space", path, *loc)) from error


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
