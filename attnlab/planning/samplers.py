"""Optuna's samplers and pruners by Optuna's names and arguments, and the values that they suggest for a trial.

A study file's ``sampler`` and ``pruner`` are looked up in ``optuna.samplers`` and ``optuna.pruners``, bound to the
constructor's signature and built once when the plan is made, so that a typo is reported within a second and not after a night.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

from attnlab._util.rng import derive_seed
from attnlab.config.types import Named
from attnlab.config.validation import check_hint
from attnlab.errors import UserError, nearest

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.trial import Trial

    from attnlab.config.search import Dimension, SearchConfig

Where = Callable[..., str]  # where(*loc, key=False) -> the place of a value in the section
_THE_GRID = "write an axis under 'grid' instead: this sampler repeats and loses points if several workers run"
REFUSED = {
    "GridSampler": _THE_GRID,
    "BruteForceSampler": _THE_GRID,
    "PartialFixedSampler": "write fixed values under 'base' instead",
}
NEEDS = {"CmaEsSampler": "cmaes"}  # packages that Optuna imports only when it samples a value
PLAIN = (str, int, float, bool, type(None))


def classes(kind: str) -> dict[str, type]:
    """Return the classes of Optuna that a study may name as its ``sampler`` or ``pruner``."""
    return {name: cls for name, cls in _Builder(kind).known.items() if name not in REFUSED}


def options_of(cls: type) -> dict[str, inspect.Parameter]:
    """Return the arguments of a class of Optuna that a study may set: all but the seed."""
    return {name: parameter for name, parameter in inspect.signature(cls).parameters.items() if name != "seed"}


def sampler(named: Named, *, seed: int, trial: int = 0) -> BaseSampler:
    """Return the sampler that a study file names, for one trial.

    Args:
        seed: of the search. All trials draw from the same quasi-random sequence.
        trial: number of the trial, which seeds all other random choices, including the ones of a nested sampler.

    Raises:
        UserError: no such sampler, or arguments that it does not accept.
    """
    return _Builder("sampler", (seed, trial)).build(named, _nowhere)


def pruner(named: Named) -> BasePruner:
    """Return the pruner that a study file names; raise as ``sampler`` does."""
    return _Builder("pruner").build(named, _nowhere)


def settings(named: Named, *, kind: str) -> dict[str, Any]:
    """Return the arguments of a ``sampler`` or ``pruner``, with Optuna's defaults for those that the study leaves out."""
    parameters = inspect.signature(_Builder(kind).find(named, _nowhere)).parameters
    return {name: named.options.get(name, parameter.default) for name, parameter in parameters.items()}


def check(search: SearchConfig, *, where: Where) -> None:
    """Build everything that the search will need from Optuna.

    Raises:
        UserError: a name, an argument or a range that Optuna does not accept, with its place.
    """
    _Builder("sampler", (0, 0)).build(search.sampler, lambda *loc, key=False: where("sampler", *loc, key=key))
    _Builder("pruner").build(search.pruner, lambda *loc, key=False: where("pruner", *loc, key=key))
    for path, dimension in search.space.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Optuna only warns when it moves the end; here it is a mistake
                distribution: Any = _distribution(dimension)
        except ValueError as error:
            raise UserError(f"search.space.{path}: {error}", where("space", path)) from error
        if dimension.choices is None and distribution.high != dimension.high:
            message = f"search.space.{path}: expected a high that is a whole number of steps above low, got {dimension.high}"
            raise UserError(f"{message} (the last step is at {distribution.high:.10g})", where("space", path, "high"))


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


def _nowhere(*loc: str | int, key: bool = False) -> str:
    return ""


class _Builder:
    """Builds a sampler or a pruner, and those nested in it, from names and options."""

    def __init__(self, kind: str, trial: tuple[int, int] | None = None) -> None:
        import optuna

        module = optuna.samplers if kind == "sampler" else optuna.pruners
        self._base = optuna.samplers.BaseSampler if kind == "sampler" else optuna.pruners.BasePruner
        exported = [(name, getattr(module, name)) for name in module.__all__]
        self.known = {n: c for n, c in exported if isinstance(c, type) and not inspect.isabstract(c)}
        self._kind = kind
        self._sequence_seed, self._seed = (_seed(trial[0]), _seed(*trial)) if trial else (None, None)

    def find(self, named: Named, where: Where) -> type:
        """Return the class that ``named`` names."""
        name = named.name
        if name in REFUSED:
            raise UserError(f"{self._kind} {name}: {REFUSED[name]}", where("name"))
        if name not in self.known:
            known = list(classes(self._kind))
            message = f"unknown {self._kind} {name!r}{nearest(name, known)}: expected one of {', '.join(known)}"
            raise UserError(f"{message} (of Optuna)", where("name"))
        if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
            package = NEEDS[name]
            raise UserError(f"{name} needs the package {package}: pip install {package}", where("name"))
        return self.known[name]

    def build(self, named: Named, where: Where) -> Any:
        """Return an instance of the class that ``named`` names, with its options as arguments."""
        cls = self.find(named, where)
        parameters = inspect.signature(cls).parameters
        self._bind(named, parameters, where)
        arguments = {}
        for name, value in named.options.items():
            place = where(name)
            if self._base.__name__ in str(parameters[name].annotation) and value is not None:
                arguments[name] = self._nested(name, value, where)
            else:
                _check_type(cls, parameters[name], value, place=place)
                arguments[name] = value
        if self._seed is not None and "seed" in parameters:
            arguments["seed"] = self._seed
        if named.name == "QMCSampler":  # its first trial is drawn by another sampler
            arguments["seed"] = self._sequence_seed
            arguments.setdefault("independent_sampler", self.build(Named(name="RandomSampler"), _nowhere))
        return self._make(cls, arguments, where)

    def _bind(self, named: Named, parameters: Mapping[str, inspect.Parameter], where: Where) -> None:
        taken = [name for name in parameters if name != "seed"]
        for name in named.options:
            if name == "seed":
                message = f"{named.name}: expected no 'seed', which attnlab derives from search.seed"
                raise UserError(message, where(name, key=True))
            if name not in taken:
                message = f"{named.name} has no argument {name!r}{nearest(name, taken)}"
                raise UserError(f"{message}; it takes {', '.join(taken) or 'none'}", where(name, key=True))

    def _nested(self, name: str, value: Any, where: Where) -> Any:
        """Build a pruner in a pruner or a sampler in a sampler, from a name or {name: ..., argument: ...}."""

        def inside(*loc: str | int, key: bool = False) -> str:
            return where(name, *loc, key=key)

        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
            raise UserError(f"{name}: expected a name, or {{name: ..., argument: ...}}", inside())
        return self.build(Named(name=value["name"], options={k: v for k, v in value.items() if k != "name"}), inside)

    def _make(self, cls: type, arguments: dict[str, Any], where: Where) -> Any:
        """Call the constructor; report Optuna's error on an argument in one line."""
        import optuna

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the warning that an argument is experimental
                if cls is optuna.pruners.HyperbandPruner:  # it checks these arguments only when it first prunes
                    part = {k: v for k, v in arguments.items() if k != "max_resource"}
                    optuna.pruners.SuccessiveHalvingPruner(**{"min_resource": 1, "reduction_factor": 3, **part})
                return cls(**arguments)
        except Exception as error:  # Optuna raises errors of any type on an invalid value
            raise UserError(f"{cls.__name__}: {' '.join(str(error).split())}", where()) from error


def _check_type(cls: type, parameter: inspect.Parameter, value: Any, *, place: str) -> None:
    """Check a value against Optuna's annotation."""
    shim = SimpleNamespace(__annotations__={"value": parameter.annotation})
    try:
        hint = get_type_hints(shim, vars(sys.modules[cls.__module__]))["value"]
    except NameError:  # a type that Optuna imports for type checkers only, such as a function or a list of trials
        hint = None
    if hint is None or "Callable" in str(hint):
        message = f"{parameter.name}: expected no value: it takes Python objects, which a study file cannot hold"
        raise UserError(message, place)
    check_hint(hint, value, loc=(parameter.name,), place=place)
