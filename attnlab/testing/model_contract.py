"""Check a model against its contract."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from attnlab.errors import UserError
from attnlab.models.base import Model
from attnlab.registry import MODELS
from attnlab.testing.contract import CheckResult, CheckResults, run_checks, select_checks, validate_options
from attnlab.testing.model_checks import MODEL_CHECKS, ModelTarget


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
        fields: fields of the section ``model`` of a study, such as ``{"norm_type": "rms"}``; the sizes are those of the checks.
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
