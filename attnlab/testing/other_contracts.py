"""Check a position scheme, a task or a model against its contract."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from attnlab.errors import UserError
from attnlab.models.base import Model
from attnlab.positions import Position
from attnlab.registry import MODELS, POSITIONS, TASKS
from attnlab.tasks import Task
from attnlab.testing.contract import (
    CheckResult,
    CheckResults,
    resolve_check_device,
    run_checks,
    select_checks,
    validate_options,
)
from attnlab.testing.model_checks import MODEL_CHECKS, ModelTarget
from attnlab.testing.position_checks import POSITION_CHECKS, SchemeTarget
from attnlab.testing.task_checks import TASK_CHECKS, TaskTarget


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
        only: names of checks (keys of ``POSITION_CHECKS``). None: all.
        start: called with the name of each check before it runs.
        report: called with each result as soon as the check has finished.

    Returns:
        One result per check; only a ``refused`` result if the scheme supports no role.

    Raises:
        UserError: a name is unknown, or the constructor does not take the options.

    Examples:
        >>> from attnlab.testing import check_position
        >>> [result.status for result in check_position("rotary", only=["shapes", "relative"])]
        ['passed', 'passed']
    """
    cls = POSITIONS.get(scheme) if isinstance(scheme, str) else scheme
    if not (isinstance(cls, type) and issubclass(cls, Position)):
        raise UserError(f"expected a subclass of attnlab.positions.Position, got {getattr(cls, '__qualname__', cls)}")
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
    """Check a task against the contract of ``attnlab.tasks.Task``. Its data are fetched and prepared.

    Args:
        task: a registered name, a path as in a study (``file.py:Class``), or the class itself.
        options: keyword arguments of its constructor.
        only: names of checks (keys of ``TASK_CHECKS``). None: all.
        start: called with the name of each check before it runs.
        report: called with each result as soon as the check has finished.

    Returns:
        One result per check. If ``shapes`` fails, the remaining checks, which depend on it, are left out.

    Raises:
        UserError: a name is unknown, the constructor does not take the options, or the data are not available.

    Examples:
        >>> from attnlab.testing import check_task
        >>> [result.status for result in check_task("pydocs", options={"length": 24}, only=["targets", "exact bytes"])]
        ['passed', 'passed']
    """
    cls = TASKS.get(task) if isinstance(task, str) else task
    if not (isinstance(cls, type) and issubclass(cls, Task)):
        raise UserError(f"expected a subclass of attnlab.tasks.Task, got {getattr(cls, '__qualname__', cls)}")
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
        fields: fields of the section ``model`` of a study, such as ``{"norm_type": "rms"}``; the checks choose the sizes.
        only: names of checks (keys of ``MODEL_CHECKS``). None: all.
        start: called with the name of each check before it runs.
        report: called with each result as soon as the check has finished.

    Returns:
        One result per check. If ``shapes`` fails, the remaining checks, which depend on it, are left out.

    Raises:
        UserError: a name is unknown, the constructor does not take the options, or a field does not accept its value.

    Examples:
        >>> from attnlab.testing import check_model
        >>> [result.status for result in check_model("encoder_decoder", only=["shapes", "causality"])]
        ['passed', 'passed']
    """
    cls = MODELS.get(model) if isinstance(model, str) else model
    if not (isinstance(cls, type) and issubclass(cls, Model)):
        raise UserError(f"expected a subclass of attnlab.models.base.Model, got {getattr(cls, '__qualname__', cls)}")
    options = validate_options(cls, options or {})
    target = ModelTarget(cls, options, fields or {})
    return run_checks(select_checks(MODEL_CHECKS, only), target, start=start, report=report, classes=(cls,))
