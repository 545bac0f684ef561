"""Check a class of any kind: a variant, a component, a position scheme, a task or a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from attnlab.components import Component
from attnlab.components.functions import function_component
from attnlab.errors import UserError, nearest
from attnlab.models.base import Model
from attnlab.positions import Position
from attnlab.registry import ADAPTERS, COMPONENTS, MODELS, POSITIONS, TASKS, VARIANTS
from attnlab.tasks import Task
from attnlab.testing.contract import (
    CheckResult,
    CheckResults,
    check_component,
    check_variant,
    class_of,
    resolve_check_device,
    run_checks,
    select_checks,
    validate_options,
)
from attnlab.testing.model_checks import MODEL_CHECKS, ModelTarget
from attnlab.testing.position_checks import POSITION_CHECKS, SchemeTarget
from attnlab.testing.task_checks import TASK_CHECKS, TaskTarget
from attnlab.variants import Variant

BASES = {"variant": Variant, "component": Component, "position scheme": Position, "task": Task, "model": Model}
KINDS = tuple(BASES)
# Arguments that only some kinds take -> these kinds.
TAKEN_BY = {
    "components": KINDS[:1],
    "seed": KINDS[:1],
    "position": KINDS[:2],
    "backend": KINDS[:2],
    "roles": KINDS[:2],
    "device": KINDS[:3],
    "heads": KINDS[:3],
    "dim": KINDS[:3],
    "variant": ("component",),
    "fields": ("model",),
}


def check_position(
    scheme: str | type[Position],
    *,
    options: dict[str, Any] | None = None,
    device: str = "cpu",
    heads: int | None = None,
    dim: int | None = None,
    only: Collection[str] | None = None,
    start: Callable[[str], None] | None = None,
    report: Callable[[CheckResult], None] | None = None,
) -> CheckResults:
    """Check a position scheme against the contract of ``attnlab.positions.Position``.

    Args:
        scheme: a registered name, a path as in a study (``file.py:Class``), or the class itself.
        options: keyword arguments of its constructor.
        device: ``cpu``, ``cuda``, ``cuda:N`` or ``auto``.
        heads: number of heads. None: the first of several that the scheme supports.
        dim: sum of the widths of the heads. None: a width that the scheme supports.
        only, start, report: as for ``check_variant``; the names of checks are the keys of ``POSITION_CHECKS``.

    Returns:
        One result per check; only a ``refused`` result if the scheme supports no role.

    Raises:
        UserError: a name is unknown, or the constructor does not take the options.

    Examples:
        >>> from attnlab.testing import check_position
        >>> [result.status for result in check_position("rotary", only=["shapes", "relative"])]
        ['passed', 'passed']
    """
    cls = class_of(POSITIONS, scheme, Position, "attnlab.positions.Position")
    options = validate_options(cls, options or {})
    target = SchemeTarget(cls, options, device=resolve_check_device(device)).with_supported_shape(heads, dim)
    checks = select_checks(POSITION_CHECKS, only)
    if target.roles:
        return run_checks(checks, target, start=start, report=report, classes=(cls,))
    refusals = [CheckResult(f"role {role}", "refused", reason) for role, reason in target.unsupported_roles]
    return run_checks([], target, refusals=refusals, report=report, classes=(cls,))


def check_task(
    task: str | type[Task],
    *,
    options: dict[str, Any] | None = None,
    only: Collection[str] | None = None,
    start: Callable[[str], None] | None = None,
    report: Callable[[CheckResult], None] | None = None,
) -> CheckResults:
    """Check a task against the contract of ``attnlab.tasks.Task``. This fetches and prepares its data.

    Args:
        task: a registered name, a path as in a study (``file.py:Class``), or the class itself.
        options: keyword arguments of its constructor.
        only, start, report: as for ``check_variant``; the names of checks are the keys of ``TASK_CHECKS``.

    Returns:
        One result per check. If ``shapes`` fails, the remaining checks, which depend on it, are left out.

    Raises:
        UserError: a name is unknown, the constructor does not take the options, or the data are not available.

    Examples:
        >>> from attnlab.testing import check_task
        >>> [result.status for result in check_task("pydocs", options={"length": 24}, only=["targets", "exact bytes"])]
        ['passed', 'passed']
    """
    cls = class_of(TASKS, task, Task, "attnlab.tasks.Task")
    options = validate_options(cls, options or {})
    return run_checks(select_checks(TASK_CHECKS, only), TaskTarget(cls, options), start=start, report=report, classes=(cls,))


def check_model(
    model: str | type[Model],
    *,
    options: dict[str, Any] | None = None,
    fields: dict[str, Any] | None = None,
    only: Collection[str] | None = None,
    start: Callable[[str], None] | None = None,
    report: Callable[[CheckResult], None] | None = None,
) -> CheckResults:
    """Check a model against the contract of ``attnlab.models.base.Model``, with blocks of ``dense``.

    Args:
        model: a registered name, a path as in a study (``file.py:Class``), or the class itself.
        options: keyword arguments of its constructor (``model.options`` of a study).
        fields: fields of the section ``model`` of a study, for example ``{"norm_type": "rms"}``; the checks choose the sizes.
        only, start, report: as for ``check_variant``; the names of checks are the keys of ``MODEL_CHECKS``.

    Returns:
        One result per check. If ``shapes`` fails, the remaining checks, which depend on it, are left out.

    Raises:
        UserError: a name is unknown, the constructor does not take the options, or a field does not accept its value.

    Examples:
        >>> from attnlab.testing import check_model
        >>> [result.status for result in check_model("encoder_decoder", only=["shapes", "causality"])]
        ['passed', 'passed']
    """
    cls = class_of(MODELS, model, Model, "attnlab.models.base.Model")
    options = validate_options(cls, options or {})
    target = ModelTarget(cls, options, fields or {})
    return run_checks(select_checks(MODEL_CHECKS, only), target, start=start, report=report, classes=(cls,))


FUNCTIONS: Mapping[str, Any] = dict(
    zip(KINDS, (check_variant, check_component, check_position, check_task, check_model), strict=True)
)


def check(target: str | type, **arguments: Any) -> CheckResults:
    """Check a variant, component, position scheme, task or model against its contract. Prints nothing.

    Args:
        target: a class; a registered name; a path as in a study (``file.py:Class`` or ``package.module:Class``); a function
            that is a component; or a layer of another library, for example ``torch:nn.MultiheadAttention``.
        arguments: as for ``check_variant``, ``check_component``, ``check_position``, ``check_task`` or ``check_model``, for
            example ``position="rotary"``, ``only=["shapes"]`` or ``report=print``, which prints each result as it comes.

    Returns:
        The results, which are true if a check passed and none failed.

    Raises:
        UserError: a name is unknown, the class is of no kind that can be checked, or its kind does not take an argument.

    Examples:
        >>> import attnlab
        >>> attnlab.check("no_wo", only=["shapes"])
        check of NoWo: 1 passed, in ... s
        >>> bool(attnlab.check("rotary", only=["shapes"]))
        True
    """
    kind, cls = resolve(target, arguments.get("options"))
    if isinstance(target, str) and is_adapted(target):
        arguments.pop("options", None)
    require_taken(kind, arguments)
    return FUNCTIONS[kind](cls, **arguments)


def is_adapted(ref: str) -> bool:
    """Return True for a layer of another library, as in ``xt:Attention``; these are imported when they are named."""
    library, colon, _ = ref.partition(":")
    return bool(colon) and library in ADAPTERS.names()


def adapt(ref: str, options: Mapping[str, Any]) -> type[Variant]:
    """Return a variant that computes a layer of another library.

    Args:
        ref: ``library:name``, for example ``torch:nn.MultiheadAttention``.
        options: keyword arguments of the layer; width, heads, role and dropout come from the check.

    Raises:
        UserError: the library is not installed, it has no such layer, or the layer has no such option.

    Examples:
        >>> from attnlab.testing import check
        >>> [result] = check(adapt("torch:nn.MultiheadAttention", {}), heads=4, dim=16, only=["shapes"])
        >>> result.status
        'passed'
    """
    library, _, name = ref.partition(":")
    return ADAPTERS.load(library)(name, dict(options))


def resolve(target: Any, options: Mapping[str, Any] | None = None) -> tuple[str, Any]:
    """Return the kind and the class of a target of ``check``.

    Raises:
        UserError: no class has this name, or it is of another kind.
    """
    if isinstance(target, str) and is_adapted(target):  # the options are those of the other library's constructor
        return "variant", adapt(target, options or {})
    cls = _find(target) if isinstance(target, str) else target
    if callable(cls) and not isinstance(cls, type):
        cls = function_component(cls)
    for kind, base in BASES.items():
        if isinstance(cls, type) and issubclass(cls, base):
            return kind, cls
    expected = "expected a subclass of attnlab's Variant, Component, Position, Task or Model"
    raise UserError(f"{expected}, got {getattr(cls, '__qualname__', repr(cls))}", target if isinstance(target, str) else "")


def _find(ref: str) -> type:
    registries = (VARIANTS, COMPONENTS, POSITIONS, TASKS, MODELS)
    if ":" in ref or ref.endswith(".py"):
        return COMPONENTS.get(ref)  # of every kind: a path leads to any class, and to a function of a component
    for registry in registries:
        if ref in registry.names():
            return registry.get(ref)
    names = [name for registry in registries for name in registry.names()]
    near = nearest(ref, names, anywhere=True)
    raise UserError(f"unknown {', '.join(KINDS[:-1])} or {KINDS[-1]} {ref!r}{near}; known: {', '.join(names)}")


def require_taken(kind: str, arguments: Mapping[str, Any], *, flags: Mapping[str, str] = MappingProxyType({})) -> None:
    """Raise ``UserError`` when a kind does not take one of these arguments; ``flags`` has their names on the command line."""
    for name, kinds in TAKEN_BY.items():
        if name in arguments and kind not in kinds:
            raise UserError(f"{flags.get(name, name)} is for a {' or '.join(kinds)}, got a {kind}")
