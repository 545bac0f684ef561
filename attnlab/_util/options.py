"""Options of a class that a study names: the parameters of its constructor."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from attnlab.errors import UserError, nearest

OPTIMIZER_FIELDS = ("lr", "weight_decay", "betas")  # parameters of optimizers that are fields of the section ``train``
UNSUITABLE = ("maximize", "differentiable", "capturable")  # parameters of optimizers without a use in a study


def source(cls: Callable[..., Any]) -> str:
    """Return ``file:line`` of a class or a function, for lists and messages; its module if it has no file."""
    try:
        return f"{inspect.getsourcefile(cls)}:{inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):  # defined in an interactive session
        return cls.__module__


@cache  # a plan of a thousand cells asks ten thousand times
def options_of(cls: type) -> Mapping[str, inspect.Parameter]:
    """Return the options of a class that a study may set: the keyword-only parameters of its constructor.

    Optimizers take PyTorch's arguments: all except the ones that the section ``train`` sets are options.
    """
    parameters = inspect.signature(cls).parameters.values()
    if _is_optimizer(cls):
        named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        reserved = ("params", *OPTIMIZER_FIELDS, *UNSUITABLE)
        return {p.name: p for p in parameters if p.kind in named and p.name not in reserved}
    return {p.name: p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def with_defaults(cls: type, options: dict[str, Any]) -> dict[str, Any]:
    """Return every option of a class that has a value: ``options``, and the defaults of the others."""
    defaults = {name: p.default for name, p in options_of(cls).items() if p.default is not inspect.Parameter.empty}
    return {**defaults, **options}


def check_options(cls: type, options: dict[str, Any], *, what: str) -> None:
    """Check ``options`` against the signature of a constructor without calling it.

    Args:
        cls: the class.
        options: option names -> values.
        what: description of the class for messages, for example ``"variant 'dense'"``.

    Raises:
        UserError: an unknown option, or a missing required one.
    """
    known, positional = options_of(cls), {} if _is_optimizer(cls) else _positional(cls)
    for name in options:
        if name in OPTIMIZER_FIELDS and _is_optimizer(cls):
            raise UserError(f"{what}: expected {name!r} in the section train (train.{name}), got it as an option")
        if name in positional:
            raise UserError(f"{what}: {_keyword_only(cls, positional[name])}")
        if name not in known:
            hint = ": name each option as a keyword-only parameter instead of **kwargs" if _takes_any(cls) else ""
            taken = ", ".join(known) or "no options"
            raise UserError(f"{what} has no option {name!r}{nearest(name, known)}; it takes {taken}{hint}")
    for parameter in positional.values():
        if parameter.default is inspect.Parameter.empty:
            raise UserError(f"{what}: {_keyword_only(cls, parameter)}")
    for name, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and name not in options:
            raise UserError(f"{what} requires the option {name!r}")


def _is_optimizer(cls: type) -> bool:
    return any(f"{base.__module__}.{base.__name__}" == "torch.optim.optimizer.Optimizer" for base in cls.__mro__)


def _positional(cls: type) -> dict[str, inspect.Parameter]:
    """Return the positional parameters of a constructor that a study cannot set: all but the configuration of a module."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [p for p in inspect.signature(cls).parameters.values() if p.kind in kinds]
    return {p.name: p for p in parameters[len(_passed(cls)) :]}


def _passed(cls: type) -> list[str]:
    """Return the positional parameters that attnlab passes: to variants, position schemes and models, but not to tasks."""
    bases = {f"{base.__module__}.{base.__name__}" for base in cls.__mro__}
    if "attnlab.models.base.Model" in bases:
        return ["config", "task"]
    return ["config"] if "torch.nn.modules.module.Module" in bases else []


def _keyword_only(cls: type, parameter: inspect.Parameter) -> str:
    start = ", ".join(["self", *_passed(cls), "*"])
    return (
        f"expected the option {parameter.name!r} as a keyword-only parameter, `def __init__({start}, {parameter})`, "
        f"got a positional one ({Path(source(cls)).name})"
    )


def _takes_any(cls: type) -> bool:
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in inspect.signature(cls).parameters.values())
