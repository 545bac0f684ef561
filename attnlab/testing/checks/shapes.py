"""Shapes and roles: what goes in comes out, and what does not fit is refused."""

from dataclasses import replace

import torch
from torch import Tensor

from attnlab.testing.checks.target import B, Check, CheckTarget, Failure, NotDeclared, S, T, Unsupported
from attnlab.variants import ROLES

SIZES = ((1, 1), (1, 2), (1, T), (B, 1), (B, T))  # (batch, length), the smallest first


def shapes(subject: CheckTarget) -> str:
    """(b, t, dim) in, (b, t, dim) out, in every role, whatever b and t are."""
    for role in subject.roles:
        _scheme_fits(subject, role)
        cell = subject.build(role)
        for b, t in SIZES:
            for s in (1, S) if role == "cross" else (t,):
                x, context = subject.inputs(role, b, t, s=s)
                y = cell(x, context)
                _same_shape(x, y, case=f"role {role}, batch {b}, length {t}" + (f", source {s}" if role == "cross" else ""))
    return f"{', '.join(subject.roles)}: batch 1 and {B}, length 1 to {T}, {subject.heads} heads, width {subject.dim}"


def _scheme_fits(subject: CheckTarget, role: str) -> None:
    """What the position scheme returns has the shape that its hook asks for: the scheme may be anyone's, too."""
    config, hook = subject.position_config(role), subject.scheme.hook
    scheme = subject.scheme(config).to(subject.device, subject.dtype).eval()
    q = torch.randn(B, config.heads, T, config.head_dim, device=subject.device, dtype=subject.dtype)
    full, got = tuple(q.shape), tuple[Tensor, ...]()
    if hook == "embed":
        full, got = (T, subject.dim), (scheme.embed(T),)
    elif hook == "rotate":
        got = tuple(scheme.rotate(q, q))
    elif hook == "bias":
        full, got = (*full[:2], T, T), (scheme.bias(q, q, scale=1.0),)
    for each in got:
        if not _broadcasts(each, full) or (hook == "rotate" and tuple(each.shape) != full):
            shape = tuple(each.shape) if isinstance(each, Tensor) else type(each).__name__
            what = f"position scheme {subject.scheme_name}, role {role}, length {T}: {hook}()"
            raise Failure(f"{what}: expected {full}, got {shape}", f"attnlab.positions says what {hook}() must return.")


def _broadcasts(found: Tensor, full: tuple[int, ...]) -> bool:
    try:
        return torch.broadcast_shapes(found.shape, full) == full
    except (AttributeError, RuntimeError):  # no tensor, or one that does not fit
        return False


def _same_shape(x: Tensor, y: Tensor, *, case: str) -> None:
    if not isinstance(y, Tensor) or y.shape != x.shape:
        got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise Failure(
            f"{case}: expected {tuple(x.shape)}, got {got}",
            "forward must return one tensor (b, t, dim), shaped like x; put heads together with merge_heads.",
        )
    if y.dtype != x.dtype:
        raise Failure(f"{case}: {x.dtype} came in, {y.dtype} went out", "Cast the result back: y.to(x.dtype).")
    if not torch.isfinite(y).all():
        raise Failure(f"{case}: the output is not finite", "Look for a division by zero or a softmax over no keys at all.")


def one_head(subject: CheckTarget) -> str:
    """A single head works, or is refused with a reason."""
    if not subject.variant.has_heads:
        raise NotDeclared("it has no heads")
    reason = next((r for r in (subject.variant_unsupported(role=role, heads=1) for role in subject.roles) if r), None)
    if reason:
        raise Unsupported(reason)
    for role in subject.roles:
        heads = subject.position_config(role, heads=1)
        if reason := subject.scheme.unsupported(heads):
            raise Unsupported(f"{subject.scheme_name}: {reason}")
        x, context = subject.inputs(role, 1, 3)
        try:
            y = subject.build(role, heads=1)(x, context)
        except Exception as error:  # anything that one head breaks is what this check is about
            raise Failure(
                f"role {role}, heads 1, batch 1, length 3: {type(error).__name__}: {error}",
                "Make one head work, or override unsupported() to return the reason where heads < 2.",
            ) from error
        _same_shape(x, y, case=f"role {role}, heads 1, batch 1, length 3")
    return "heads 1 works"


def width(subject: CheckTarget) -> str:
    """A width that the heads do not divide works, or is refused."""
    if not subject.variant.has_heads:
        raise NotDeclared("it has no heads")
    heads = max(subject.heads, 2)
    backend = "reference" if "reference" in subject.variant.backends else subject.backend  # xformers wants head widths of 8 n
    odd, role = replace(subject, heads=heads, dim=heads * 7 + 1, backend=backend), subject.roles[0]
    if reason := odd.unsupported(role):
        return f"refused: {reason}"
    x, context = odd.inputs(role, 1, 3)
    case = f"role {role}, width {odd.dim} with {heads} heads, batch 1, length 3"
    try:
        y = odd.build(role)(x, context)
    except Exception as error:  # anything that such a width breaks is what this check is about
        raise Failure(
            f"{case}: it is accepted, and {type(error).__name__}: {str(error)[:90]}",
            "unsupported() must return a reason: end your override with `return super().unsupported(...)`, or drop it.",
        ) from error
    _same_shape(x, y, case=case)
    return f"width {odd.dim} works with {heads} heads"


def roles(subject: CheckTarget) -> str:
    """Roles that are not declared are refused."""
    missing = [role for role in ROLES if role not in subject.variant.roles]
    for role in missing:
        if not subject.variant_unsupported(role=role):
            raise Failure(
                f"role {role} is not among roles, yet unsupported() returns None",
                "End your override of unsupported() with `return super().unsupported(...)`, or add the role to `roles`.",
            )
    unknown = [role for role in subject.variant.roles if role not in ROLES]
    if unknown:
        raise Failure(f"it declares the role {unknown[0]!r}", f"Roles are {', '.join(ROLES)}.")
    return f"refused: {', '.join(missing)}" if missing else "it takes every role"


CHECKS = [
    Check("shapes", shapes),
    Check("one head", one_head),
    Check("indivisible width", width),
    Check("roles refused", roles),
]
