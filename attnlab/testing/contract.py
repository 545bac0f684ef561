"""The contract of an attention variant, for ours and for anyone's: what it declares must be true, what it does not, refused.

    from attnlab.testing.contract import check
    for outcome in check("my_lab/cosine.py:Cosine", position="rotary"):
        print(outcome.check, outcome.result, outcome.measured)

The single checks stand in ``attnlab.testing.checks``, one file a group.
"""

import inspect
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from attnlab.config.validation import check_option
from attnlab.errors import UserError, nearest
from attnlab.nn import attention
from attnlab.nn.attention import BACKENDS
from attnlab.positions import Position
from attnlab.registry import POSITIONS, VARIANTS, check_options
from attnlab.testing.checks import CHECKS, CheckTarget, Failure, NotDeclared, Unsupported
from attnlab.training.device import resolve_device, unsupported
from attnlab.variants import ROLES, Variant

RESULTS = ("passed", "failed", "refused", "not declared")


@dataclass(frozen=True)
class Outcome:
    """What came of one check.

    Attributes:
        check: the property's name.
        result: ``passed``, ``failed``, ``refused`` (the variant says why not) or ``not declared`` (it does not claim this).
        measured: what was seen, or the reason of a refusal; for a failure the smallest failing case.
        seconds: how long it took.
        advice: for a failure, what to change.
        trace: the traceback where an exception was the failure.
    """

    check: str
    result: str
    measured: str
    seconds: float = 0.0
    advice: str = ""
    trace: str = ""


def check(
    variant: str | type[Variant],
    *,
    options: dict[str, Any] | None = None,
    position: str | type[Position] | None = None,
    backend: str | None = None,
    device: str = "cpu",
    roles: Collection[str] = ROLES,
    only: Collection[str] | None = None,
    report: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Hold a variant against the contract.

    Args:
        variant: a name, a path as in a study (``file.py:Class``), or the class itself.
        options: of its constructor; without them those of ``Variant.suited`` for the lengths tried, then the defaults.
        position: the scheme that everything is checked with; None: without a scheme, and
            what schemes can break with every scheme there is.
        backend: the backend that everything is checked with; None: the first that it declares.
        device: ``cpu``, ``cuda``, ``cuda:1``, or ``auto``.
        roles: the roles to look at, those that it declares among them are checked.
        only: names of checks (keys of ``attnlab.testing.checks.CHECKS``); None: all.
        report: called with each outcome as soon as it is there.

    Returns:
        An outcome a check. Roles that cannot be had come first, as ``refused``; where none can be had they are all there is.

    Raises:
        UserError: a name that nothing has, or options that the constructor does not take.
    """
    subject = _subject(variant, options or {}, position=position, backend=backend, device=checked_device(device))
    for each in only or ():
        if each not in CHECKS:
            raise UserError(f"there is no check {each!r}{nearest(each, CHECKS)}")
    found: list[Outcome] = []

    def add(outcome: Outcome) -> None:
        found.append(outcome)
        if report is not None:
            report(outcome)

    asked = tuple(role for role in ROLES if role in roles)
    missing = attention.unsupported(subject.backend, device=subject.device)
    subject = subject.fitted(asked)
    claimed = [role for role in asked if role in subject.variant.roles]
    for role, reason in subject.unsupported_roles.items():
        if role in claimed or not claimed:  # a role that is not declared is looked at by "roles refused"
            add(Outcome(f"role {role}", "refused", reason))
    if missing and subject.roles:
        add(Outcome(f"backend {subject.backend}", "refused", missing))
    if subject.roles and not missing:
        _run_all(subject, only, add)
    return found


def _subject(
    variant: str | type[Variant],
    options: dict[str, Any],
    *,
    position: str | type[Position] | None,
    backend: str | None,
    device: str,
) -> CheckTarget:
    """What is held against the contract, of arguments as ``check`` takes them; ``UserError`` where it cannot be had."""
    cls = VARIANTS.get(variant) if isinstance(variant, str) else variant
    if not (isinstance(cls, type) and issubclass(cls, Variant)):
        raise UserError(f"expected a subclass of attnlab.variants.Variant, got {getattr(cls, '__qualname__', cls)}")
    checked_options(cls, options)
    scheme = POSITIONS.get(position or "none") if not isinstance(position, type) else position
    name = position if isinstance(position, str) else scheme.__name__ if position else "none"
    chosen = backend or cls.backends[0]
    if chosen not in BACKENDS:
        raise UserError(f"unknown backend {chosen!r}{nearest(chosen, BACKENDS)}: expected one of {', '.join(BACKENDS)}")
    return CheckTarget(cls, options, scheme, chosen, device, scheme_name=name, any_scheme=position is None)


def checked_device(name: str) -> str:
    """The device to check on; ``UserError`` where it is not there."""
    name = resolve_device(name)
    try:
        torch.device(name)
    except RuntimeError as error:
        raise UserError(f"unknown device {name!r}: expected auto, cpu, cuda or cuda:N") from error
    if reason := unsupported(name):
        raise UserError(reason)
    return name


def checked_options(cls: type[Variant], options: dict[str, Any]) -> dict[str, Any]:
    """The options, if the constructor takes them and their types, and has what it needs; ``UserError`` otherwise."""
    check_options(cls, {**cls.recommended_options(16), **options}, what=cls.__name__)
    for name, value in options.items():
        check_option(cls, name, value, place=cls.__name__)
    return options


def _run_all(subject: CheckTarget, only: Collection[str] | None, add: Callable[[Outcome], None]) -> None:
    for name, one in CHECKS.items():
        if only is not None and name not in only:
            continue
        began = perf_counter()
        outcome = _outcome(name, lambda one=one: one.run(subject), subject)
        add(Outcome(**{**vars(outcome), "seconds": perf_counter() - began}))
        if outcome.result == "failed" and name == "shapes":  # the others would say the same, and advise wrongly
            return


def _outcome(name: str, run: Callable[[], str], subject: CheckTarget) -> Outcome:
    try:
        return Outcome(name, "passed", run())
    except NotDeclared as reason:
        return Outcome(name, "not declared", str(reason))
    except Unsupported as reason:
        return Outcome(name, "refused", str(reason))
    except Failure as failure:
        return Outcome(name, "failed", failure.case, advice=failure.advice)
    except UserError:  # an option's value: the user's mistake, not the variant's
        raise
    except Exception as error:  # the variant is anyone's: whatever it raises is what was found
        what = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        place = _place(error, subject.variant) or _place(error, subject.scheme)
        return Outcome(name, "failed", f"it raises {what}{place}", advice=_hint(error), trace=traceback.format_exc())


def _place(error: Exception, cls: type) -> str:
    """Where in the file of a variant or a scheme an error came from."""
    try:
        file = inspect.getsourcefile(cls)
    except TypeError:
        return ""
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" ({Path(lines[-1].filename).name}:{lines[-1].lineno})" if lines else ""


def _hint(error: Exception) -> str:
    if isinstance(error, TypeError) and "argument" in str(error):
        return (
            "A variant is built as `__init__(self, setting, *, options ...)` and called as "
            "`forward(self, x, *, source=None, mask=None)`."
        )
    return "What it declares (roles, hooks, memory, backends) must run; --debug shows the traceback."
