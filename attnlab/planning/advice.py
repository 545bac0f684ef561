"""What a person should know of a search before it costs a night: samplers that guess, pruners that never prune.

Steps are those that Optuna is told: the steps at which ``valid`` is read. What is found at the last of them ends
the run anyway, so a pruner can only act at those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from attnlab.config.paths import NAMED, check_value
from attnlab.config.run import RunConfig
from attnlab.config.search import SearchConfig
from attnlab.config.types import Named
from attnlab.errors import UserError
from attnlab.planning.samplers import settings

PACE = ("train.steps", "train.epochs", "train.eval_every")  # fields that move the steps at which valid is read


@dataclass(frozen=True)
class Pace:
    """How long a run is, and when ``valid`` is read before its end.

    Attributes:
        steps: of the whole run.
        every: between two readings.
        epochs: they follow from the number of epochs.
    """

    steps: int
    every: int
    epochs: bool = False

    @property
    def early(self) -> int:
        """How many readings come before the last."""
        return (self.steps - 1) // self.every

    @property
    def last(self) -> int:
        """The step of the last reading at which stopping saves anything; 0 where there is none."""
        return self.early * self.every


def pace(config: RunConfig, task: Any) -> Pace:
    """The pace of a run."""
    from attnlab.training.train import total_steps

    total, every = total_steps(config.train, task), config.train.eval_every
    if every is None and config.train.epochs is not None:
        every = task.steps_per_epoch(config.train.batch_size)
    return Pace(total, every or total, epochs=config.train.epochs is not None)


def advice(search: SearchConfig, paces: Sequence[Pace], *, metric: str, direction: str) -> list[str]:
    """Notes on settings that do not do what they are there for, each with what to change.

    Args:
        paces: of the cells.
        metric, direction: of the study.
    """
    notes = [*_on_sampler(search), *_on_space(search)]
    if search.pruner.name != "NopPruner":
        notes += _on_pruner(search.pruner, search, paces, metric, direction)
    return list(dict.fromkeys(notes))


def _on_sampler(search: SearchConfig) -> Iterator[str]:
    name, given = search.sampler.name, settings(search.sampler, kind="sampler")
    for key in ("n_startup_trials", "population_size"):
        if key in given and given[key] >= search.trials:
            yield (
                f"sampler: {name} draws at random for its first {given[key]} trials ({key}), and there are {search.trials}: "
                f"a random search in effect; set {key} lower or search.trials higher"
            )
    choices = [path for path, dimension in search.space.items() if dimension.choices is not None]
    if choices and name in ("CmaEsSampler", "QMCSampler"):
        yield f"sampler: {name} draws {', '.join(choices)} at random, as all choices: take TPESampler, or a range"


def _on_space(search: SearchConfig) -> Iterator[str]:
    for path, dimension in search.space.items():
        if dimension.high is None or not dimension.whole or dimension.step is not None or path.partition(".")[0] in NAMED:
            continue
        try:
            check_value(path, dimension.high - 0.5, where=lambda loc, key=False: "")
        except UserError:  # a field of whole numbers
            continue
        yield f"search.space.{path}: both ends are whole, so only whole numbers are tried; for all between: {dimension.low}.0"


def _on_pruner(named: Named, search: SearchConfig, paces: Sequence[Pace], metric: str, direction: str) -> Iterator[str]:
    given = settings(named, kind="pruner")
    inner = given.get("wrapped_pruner")
    if inner is not None:
        inner = {"name": inner} if isinstance(inner, str) else inner
        inside = Named(name=inner["name"], options={k: v for k, v in inner.items() if k != "name"})
        yield from _on_pruner(inside, search, paces, metric, direction)
    yield from _on_trials(named.name, given, search.trials)
    if named.name == "WilcoxonPruner":
        yield (
            "pruner: WilcoxonPruner compares trials over repetitions, such as seeds, and a trial here is one training "
            "with one seed, whose steps depend on each other: take MedianPruner or HyperbandPruner"
        )
    wrong = "lower" if direction == "min" else "upper"
    if named.name == "ThresholdPruner" and given[wrong] is not None:
        yield f"pruner: {wrong} {given[wrong]} stops trials whose {metric} is good: set the other one"
    moving = (*PACE, "train.batch_size") if any(each.epochs for each in paces) else PACE
    moved = [path for path in moving if path in search.space]
    if moved:
        yield f"pruner: trials differ in when valid is read ({', '.join(moved)}), and are compared at the same step"
        return
    for each in dict.fromkeys(paces):
        if each.early == 0:
            yield (
                f"pruner: no trial can be stopped: valid is read only once, at the last step, {each.steps}; set "
                f"train.eval_every below that"
            )
        else:
            yield from _on_steps(named.name, given, each)


def _on_trials(name: str, given: dict[str, Any], trials: int) -> Iterator[str]:
    for key in ("n_startup_trials", "n_min_trials"):
        if key in given and given[key] >= trials:
            wait = f"waits for {given[key]} trials ({key}), and there are {trials}"
            yield f"pruner: {name} {wait}: it stops none; set {key} lower"
    if given.get("bootstrap_count", 0) >= trials:
        count = given["bootstrap_count"]
        yield f"pruner: {name} stops the first {count} trials (bootstrap_count), and there are {trials}: none completes"
    if given.get("percentile") == 100:
        yield f"pruner: {name} keeps the best 100 %: it stops none; set percentile lower"


def _on_steps(name: str, given: dict[str, Any], pace: Pace) -> Iterator[str]:
    """Where the steps of a run lie beside those that the pruner was told."""
    end = f"the last evaluation before the end is at step {pace.last}"
    first = _FIRST.get(name)
    if first is not None:
        step, key = first(given)
        if step > pace.last:
            yield f"pruner: {name} first looks at step {step} ({key}), and {end}: it stops none; set {key} lower"
    if given.get("interval_steps", 1) > pace.steps:
        yield (
            f"pruner: {name} looks every {given['interval_steps']} steps (interval_steps), and a run has {pace.steps}: each "
            "trial is looked at once; set interval_steps lower"
        )
    most = given.get("max_resource")
    if isinstance(most, int) and most != pace.steps:
        yield (
            f"pruner: {name} expects runs of {most} steps (max_resource), and a run has {pace.steps}: "
            f"set max_resource: {pace.steps}"
        )
    if given.get("patience", -1) + 1 >= pace.early:
        yield (
            f"pruner: {name} waits for more than {given['patience'] + 1} evaluations (patience), and {pace.early} come "
            "before the last: it stops none; set patience lower or train.eval_every lower"
        )


def _rung(given: dict[str, Any]) -> tuple[int, str]:
    """The first step of successive halving; with "auto" Optuna takes a hundredth of the run."""
    least = 1 if given["min_resource"] == "auto" else given["min_resource"]
    rate = min(given.get("min_early_stopping_rate", 0), 40)  # beyond any run, and no number of a million digits
    return least * min(given["reduction_factor"], 1_000) ** rate, "min_early_stopping_rate" if rate else "min_resource"


def _warmup(given: dict[str, Any]) -> tuple[int, str]:
    return given["n_warmup_steps"], "n_warmup_steps"


_FIRST: dict[str, Callable[[dict[str, Any]], tuple[int, str]]] = {
    "HyperbandPruner": _rung,
    "SuccessiveHalvingPruner": _rung,
    "MedianPruner": _warmup,
    "PercentilePruner": _warmup,
    "ThresholdPruner": _warmup,
}
