"""Optuna's samplers and pruners by Optuna's names and arguments, and the values that they suggest for a trial.

When the plan is made, a study's ``sampler`` and ``pruner`` are constructed and tried with two trials in memory, so that a
mistake is reported, in Optuna's words, within a second and not after a night.
"""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attnlab._util.rng import derive_seed
from attnlab.config.types import Named
from attnlab.errors import UserError, nearest

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.trial import Trial

    from attnlab.config.search import Dimension, SearchConfig

_THE_GRID = "write an axis under 'grid' instead: this sampler repeats and loses points if several workers run"
REFUSED = {
    "GridSampler": _THE_GRID,
    "BruteForceSampler": _THE_GRID,
    "PartialFixedSampler": "write fixed values under 'base' instead",
}
NESTED = {"wrapped_pruner": "pruner", "independent_sampler": "sampler"}  # arguments that are a class with arguments
PLAIN = (str, int, float, bool, type(None))


def classes(kind: str) -> dict[str, type]:
    """Return the classes of Optuna that a study may name as its ``sampler`` or ``pruner``."""
    import optuna

    module = optuna.samplers if kind == "sampler" else optuna.pruners
    exported = {name: getattr(module, name) for name in module.__all__}
    return {n: c for n, c in exported.items() if isinstance(c, type) and not inspect.isabstract(c) and n not in REFUSED}


def options_of(cls: type) -> dict[str, inspect.Parameter]:
    """Return the arguments of a class of Optuna that a study may set: all but the seed."""
    return {name: parameter for name, parameter in inspect.signature(cls).parameters.items() if name != "seed"}


def sampler(named: Named, *, seed: int, trial: int = 0) -> BaseSampler:
    """Return the sampler that a study names, for one trial.

    Args:
        seed: of the search. All trials draw from the same quasi-random sequence.
        trial: number of the trial, which seeds all other random choices, including the ones of a nested sampler.
    """
    return _build("sampler", named, sequence=_seed(seed), seed=_seed(seed, trial))


def pruner(named: Named) -> BasePruner:
    """Return the pruner that a study names."""
    return _build("pruner", named)


def check(search: SearchConfig, *, where: Callable[..., str]) -> None:
    """Try the sampler, the pruner and the space of a search with two trials in memory.

    Raises:
        UserError: a name, an argument or a range that Optuna does not accept, with its place.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for path, dimension in search.space.items():
        with _reported(f"search.space.{path}", where("space", path)), warnings.catch_warnings():
            warnings.simplefilter("error")  # Optuna only warns when it moves an end that steps do not reach
            _distribution(dimension)
    of_sampler, of_pruner = ((getattr(search, kind).name, where(kind)) for kind in ("sampler", "pruner"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an argument is experimental
        with _reported(*of_sampler):
            study = optuna.create_study(sampler=sampler(search.sampler, seed=0))
        with _reported(*of_pruner):
            study.pruner = pruner(search.pruner)
        for _ in range(2):
            with _reported(*of_sampler):
                trial = study.ask()
                suggest(trial, search.space)
            with _reported(*of_pruner):
                trial.report(0.0, step=1)
                trial.should_prune()
            study.tell(trial, 0.0)


@contextmanager
def _reported(what: str, place: str) -> Iterator[None]:
    """Report an error of Optuna, of any type, in one line."""
    try:
        yield
    except Exception as error:
        raise UserError(f"{what}: {' '.join(str(error).split())}", place) from error


def suggest(trial: Trial, space: Mapping[str, Dimension]) -> dict[str, Any]:
    """Return the values that the sampler chooses for this trial: dotted path -> value of the field."""
    suggested: dict[str, Any] = {}
    for path, dimension in space.items():
        low, high, step = dimension.low, dimension.high, dimension.step
        if low is None or high is None:
            suggested[path] = trial.suggest_categorical(path, list(_choices(dimension)))
        elif dimension.whole:
            suggested[path] = trial.suggest_int(path, int(low), int(high), step=int(step or 1), log=dimension.log)
        else:
            suggested[path] = trial.suggest_float(path, low, high, step=step, log=dimension.log)
    return values(suggested, space)


def values(params: Mapping[str, Any], space: Mapping[str, Dimension]) -> dict[str, Any]:
    """Return Optuna's record of a trial's parameters (``trial.params``) as values of the fields."""
    known = {path: _choices(dimension) for path, dimension in space.items()}
    return {path: known[path][value] if known[path] else value for path, value in params.items()}


def _distribution(dimension: Dimension) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    low, high, step = dimension.low, dimension.high, dimension.step
    if low is None or high is None:
        return CategoricalDistribution(list(_choices(dimension)))
    if dimension.whole:
        return IntDistribution(int(low), int(high), step=1 if step is None else int(step), log=dimension.log)
    return FloatDistribution(low, high, step=step, log=dimension.log)


def _choices(dimension: Dimension) -> dict[Any, Any]:
    """Return the value passed to Optuna -> the choice: a plain value is passed as it is, a list as JSON."""
    return {value if isinstance(value, PLAIN) else json.dumps(value): value for value in dimension.choices or []}


def _seed(*numbers: int) -> int:
    return derive_seed(numbers[0], "search", *numbers[1:]) % 2**32  # NumPy's limit


def _build(kind: str, named: Named, *, sequence: int = 0, seed: int = 0) -> Any:
    """Return an instance of the class that ``named`` names, with its options as arguments.

    Raises:
        UserError: no such class.
        Exception: the class does not accept the arguments.
    """
    known, name = classes(kind), named.name
    if name not in known:
        raise UserError(
            REFUSED.get(name)
            or f"unknown {kind} {name!r}{nearest(name, known)}: expected one of {', '.join(known)} (of Optuna)"
        )
    if "seed" in named.options:
        raise UserError("expected no 'seed', which attnlab derives from search.seed")
    arguments = dict(named.options)
    for key, value in arguments.items():
        if key in NESTED and value is not None:
            nested = Named.model_validate(value)
            arguments[key] = _build(NESTED[key], nested, sequence=sequence, seed=seed)
    if "seed" in inspect.signature(known[name]).parameters:
        arguments["seed"] = sequence if name == "QMCSampler" else seed
    if name == "QMCSampler":  # its first trial is drawn by another sampler
        arguments.setdefault("independent_sampler", _build("sampler", Named(name="RandomSampler"), seed=seed))
    return known[name](**arguments)
