"""Check a variant against the contract: what it declares must hold, and what it does not declare must be refused."""

import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from time import perf_counter
from typing import Any, TypeVar

import torch

from attnlab._util.raise_site import describe_error
from attnlab._util.text import html_table
from attnlab.components import Component
from attnlab.config.validation import check_option
from attnlab.errors import UserError, nearest
from attnlab.nn import attention
from attnlab.nn.attention import BACKENDS
from attnlab.positions import Position
from attnlab.registry import POSITIONS, VARIANTS, Registry, check_options
from attnlab.testing.checks import CHECKS, PRECONDITIONS, Check, CheckTarget, Failure, NotDeclared, Unsupported
from attnlab.testing.composition import ComponentSpec, component_classes, compose
from attnlab.training.device import resolve_device, unsupported
from attnlab.variants import ROLES, Variant

T = TypeVar("T")
STATUSES = ("passed", "not declared", "refused", "failed")


@dataclass(frozen=True)
class CheckResult:
    """The result of one check. As text, a failure shows its smallest failing case and what to change.

    Attributes:
        check: the name of the property.
        status: ``passed``, ``failed``, ``refused`` (the variant does not support the configuration and gives the reason) or
            ``not declared`` (the variant does not declare the property).
        detail: what was measured; for a failure the smallest failing case; otherwise the reason.
        seconds: how long the check took.
        advice: for a failure, what to change.
        traceback: when the failure is an exception, its traceback.
    """

    check: str
    status: str
    detail: str
    seconds: float = 0.0
    advice: str = ""
    traceback: str = ""

    def __str__(self) -> str:
        if self.status != "failed":
            return f"{self.check}: {self.status}{f', {self.detail}' if self.detail else ''}"
        return f"FAILED {self.check}\n  smallest case:  {self.detail}\n  what to change: {self.advice}"


class CheckResults(list[CheckResult]):
    """The results of all checks of a class: true if a check passed and none failed.

    Attributes:
        name: the name of the class.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __bool__(self) -> bool:
        return not self.failed and any(result.status == "passed" for result in self)

    @property
    def failed(self) -> list[CheckResult]:
        """The results of the checks that failed."""
        return [result for result in self if result.status == "failed"]

    @property
    def counts(self) -> str:
        """The number of results by status and the time, as in "38 passed, 5 not declared, in 18.4 s"."""
        counts = Counter(result.status for result in self)
        seconds = sum(result.seconds for result in self)
        return f"{', '.join(f'{count} {status}' for status, count in counts.items()) or 'no checks'}, in {seconds:.1f} s"

    def __repr__(self) -> str:
        refused = [result for result in self if result.status == "refused"]
        return "\n".join([f"check of {self.name}: {self.counts}", *map(str, self.failed or (not self and refused) or ())])

    def _repr_html_(self) -> str:
        """Return the results as a table, for display in a notebook."""
        rows = [[result.check, result.status, result.detail, result.advice] for result in self]
        headings = ["check", "result", "measured", "what to change"]
        return html_table(headings, rows, caption=f"check of {self.name}: {self.counts}")


def check_variant(
    variant: str | type[Variant],
    *,
    options: dict[str, Any] | None = None,
    components: Sequence[str | type[Component] | Mapping[str, Any]] = (),
    position: str | type[Position] | None = None,
    backend: str | None = None,
    device: str = "cpu",
    heads: int | None = None,
    dim: int | None = None,
    seed: int = 0,
    roles: Collection[str] = ROLES,
    only: Collection[str] | None = None,
    start: Callable[[str], None] | None = None,
    report: Callable[[CheckResult], None] | None = None,
) -> CheckResults:
    """Check a variant against the contract of ``attnlab.variants.Variant``.

    Args:
        variant: a registered name, a path as in a study (``file.py:Class``), or the class itself.
        options: keyword arguments of its constructor. Options not given come from ``Variant.recommended_options``
            for the length of each check, then the constructor's defaults.
        components: components of the variant, each a registered name, a path, ``{name: ..., option: ...}`` or a class.
        position: the position scheme of every check. None: no scheme, except that checks which depend on the scheme
            run with one registered scheme of each kind.
        backend: the backend of every check. None: the first that the variant declares.
        device: ``cpu``, ``cuda``, ``cuda:N`` or ``auto``.
        heads: number of heads in every check. None: the first of several that the variant supports, then random numbers.
        dim: model width of every check. None: a width that the heads divide.
        seed: seed of the random sizes; see ``attnlab.testing.checks.sizes``. A failure at random sizes states them.
        roles: the roles to check; those that the variant does not declare are skipped.
        only: names of checks (keys of ``CHECKS``). None: all.
        start: called with the name of each check before it runs.
        report: called with each result as soon as the check has finished.

    Returns:
        One result per check, preceded by a ``refused`` result for each declared role that this configuration does not
        support. If no role is supported, or the backend does not run here, the list holds only ``refused`` results. If
        ``shapes`` or ``no hidden state`` fails, the remaining checks, which depend on it, are left out.

    Raises:
        UserError: a name is unknown, or the constructor does not take the options.

    Examples:
        >>> from attnlab.testing import check_variant
        >>> for result in check_variant("dense", position="rotary", roles=["causal"], only=["shapes", "seed"]):
        ...     print(result.check, result.status)
        shapes passed
        seed passed
    """
    if components:
        variant = compose(_variant_class(variant), [ComponentSpec.of(component) for component in components])
    target = _make_target(variant, options or {}, position=position, backend=backend, device=resolve_check_device(device))
    requested = tuple(role for role in ROLES if role in roles)
    target = replace(target, requested_heads=heads, requested_dim=dim, seed=seed).with_supported_shape(requested)
    checks = select_checks(CHECKS, only)
    runs_here = target.roles and not attention.unsupported(target.backend, device=target.device)
    return run_checks(
        checks if runs_here else [],
        target,
        refusals=_refusals(target, requested),
        start=start,
        report=report,
        classes=(target.variant, *component_classes(target.variant), target.scheme),
    )


def _refusals(target: CheckTarget, requested: Collection[str]) -> Iterator[CheckResult]:
    """Yield a result for each requested role, and for the backend, that the configuration does not support."""
    declared = [role for role in requested if role in target.variant.roles]
    for role, reason in target.unsupported_roles.items():
        if role in declared or not declared:  # the check "roles refused" covers roles that are not declared
            yield CheckResult(f"role {role}", "refused", reason)
    missing_backend = attention.unsupported(target.backend, device=target.device)
    if missing_backend and target.roles:
        yield CheckResult(f"backend {target.backend}", "refused", missing_backend)


def _make_target(
    variant: str | type[Variant],
    options: dict[str, Any],
    *,
    position: str | type[Position] | None,
    backend: str | None,
    device: str,
) -> CheckTarget:
    """Resolve the names that ``check`` takes; raise ``UserError`` if one is unknown."""
    cls = _variant_class(variant)
    validate_options(cls, options)
    scheme = position if isinstance(position, type) else POSITIONS.get(position or "none")
    scheme_name = position if isinstance(position, str) else scheme.__name__ if position else "none"
    backend = backend or cls.backends[0]
    if backend not in BACKENDS:
        raise UserError(f"unknown backend {backend!r}{nearest(backend, BACKENDS)}: expected one of {', '.join(BACKENDS)}")
    return CheckTarget(cls, options, scheme, backend, device, scheme_name=scheme_name, any_scheme=position is None)


def class_of(registry: Registry, target: str | type, base: type[T], name: str) -> type[T]:
    """Return the class that a name leads to, or the class itself; raise ``UserError`` unless it is a subclass of ``base``."""
    cls = registry.get(target) if isinstance(target, str) else target
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise UserError(f"expected a subclass of {name}, got {getattr(cls, '__qualname__', cls)}")
    return cls


def _variant_class(variant: str | type[Variant]) -> type[Variant]:
    return class_of(VARIANTS, variant, Variant, "attnlab.variants.Variant")


def check_component(
    component: str | type[Component],
    *,
    options: Mapping[str, Any] | None = None,
    variant: str | type[Variant] = "dense",
    **arguments: Any,
) -> CheckResults:
    """Check a component in a variant against the contract of variants, and that it takes effect.

    Args:
        component: a registered name, a path as in a study (``file.py:Class``), or the class itself.
        options: keyword arguments of its constructor.
        variant: the variant that it changes.
        arguments: the other arguments of ``check_variant``.

    Returns:
        The results of ``check_variant``.

    Raises:
        UserError: a name is unknown, or the constructor does not take the options.

    Examples:
        >>> from attnlab.testing import check_component
        >>> [result.status for result in check_component("gate", only=["components take effect"])]
        ['passed']
    """
    return check_variant(variant, components=[{"name": component, **(options or {})}], **arguments)


def resolve_check_device(name: str) -> str:
    """Resolve ``auto``, and raise ``UserError`` if this machine does not have the device."""
    name = resolve_device(name)
    try:
        torch.device(name)
    except RuntimeError as error:
        raise UserError(f"unknown device {name!r}: expected auto, cpu, cuda or cuda:N") from error
    if reason := unsupported(name):
        raise UserError(reason)
    return name


def validate_options(cls: type, options: dict[str, Any]) -> dict[str, Any]:
    """Return ``options``; raise ``UserError`` if the constructor lacks one, or does not take a name, type or value."""
    recommended = cls.recommended_options(16) if issubclass(cls, Variant) else {}
    check_options(cls, {**recommended, **options}, what=cls.__name__)
    for name, value in options.items():
        check_option(cls, name, value, place=cls.__name__)
    return options


def select_checks(checks: Mapping[str, Check[T]], only: Collection[str] | None) -> list[Check[T]]:
    """Return the checks that ``only`` names, or all; raise ``UserError`` if a name is unknown."""
    for name in only or ():
        if name not in checks:
            raise UserError(f"unknown check {name!r}{nearest(name, checks)}; known: {', '.join(checks)}")
    return [check for name, check in checks.items() if only is None or name in only]


def run_checks(
    checks: Iterable[Check[T]],
    target: T,
    *,
    classes: tuple[type, ...],
    refusals: Iterable[CheckResult] = (),
    start: Callable[[str], None] | None = None,
    report: Callable[[CheckResult], None] | None = None,
) -> CheckResults:
    """Run checks in order and return their results. If one of ``PRECONDITIONS`` fails, the others are left out.

    Args:
        classes: the classes under test, for the place of an exception.
        refusals: results that precede the checks' results.
        start: called with the name of each check before it runs.
        report: called with each result as soon as there is one.
    """
    results = CheckResults(classes[0].__name__)
    with _single_thread():
        for result in chain(refusals, _check_results(checks, target, classes, start)):
            results.append(result)
            if report is not None:
                report(result)
    return results


@contextmanager
def _single_thread() -> Iterator[None]:
    """Compute with one thread: the inputs of the checks are so small that threads spend most of their time waiting."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _check_results(
    checks: Iterable[Check[T]], target: T, classes: tuple[type, ...], start: Callable[[str], None] | None
) -> Iterator[CheckResult]:
    """Yield the result of each check, with its time."""
    for one in checks:
        if start is not None:
            start(one.name)
        began = perf_counter()
        result = _run_check(one, target, classes)
        yield replace(result, seconds=perf_counter() - began)
        if result.status == "failed" and one.name in PRECONDITIONS:  # the others would repeat this failure, with wrong advice
            return


def _run_check(one: Check[T], target: T, classes: tuple[type, ...]) -> CheckResult:
    name = one.name
    try:
        return CheckResult(name, "passed", one.run(target))
    except NotDeclared as reason:
        return CheckResult(name, "not declared", str(reason))
    except Unsupported as reason:
        return CheckResult(name, "refused", str(reason))
    except Failure as failure:
        return CheckResult(name, "failed", failure.case, advice=failure.advice)
    except UserError:  # the value of an option: the user's mistake, not that of the class
        raise
    except Exception as error:  # the classes are user code: any exception is a failure of the check
        detail = " ".join([f"raises {describe_error(error, *classes)}", *getattr(error, "__notes__", [])])
        return CheckResult(name, "failed", detail, advice=_advice(error, classes[0]), traceback=traceback.format_exc())


def _advice(error: Exception, cls: type) -> str:
    if component_classes(cls):
        return (
            "Attributes of a component must not have the name of a place, which is a method; attnlab/components/base.py "
            "documents the arguments and the result of each place."
        )
    if issubclass(cls, Variant) and isinstance(error, TypeError) and "argument" in str(error):
        return (
            "The constructor must be `__init__(self, config, *, options ...)` and the forward pass "
            "`forward(self, x, *, context=None, mask=None)`."
        )
    return "What the class declares must run, and take all arguments of the base class; --debug shows the traceback."
