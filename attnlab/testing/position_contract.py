"""Check a position scheme against its contract."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from attnlab.errors import UserError
from attnlab.positions import Position
from attnlab.registry import POSITIONS
from attnlab.testing.contract import (
    CheckResult,
    CheckResults,
    resolve_check_device,
    run_checks,
    select_checks,
    validate_options,
)
from attnlab.testing.position_checks import POSITION_CHECKS, SchemeTarget


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
