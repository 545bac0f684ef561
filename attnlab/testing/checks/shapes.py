"""Shapes and roles: outputs have the shape and dtype of the input; unsupported shapes and roles are refused."""

from dataclasses import replace

import torch
from torch import Tensor

from attnlab.testing.checks.result import Check, Failure, NotDeclared, Unsupported
from attnlab.testing.checks.target import CheckTarget, at_drawn_sizes
from attnlab.variants import ROLES


def shapes(target: CheckTarget) -> str:
    """Inputs (b, t, dim) give finite outputs (b, t, dim) of the same dtype, in every role."""
    batch, length = target.sizes.batch, target.sizes.length
    for role in target.roles:
        _check_scheme_shapes(target, role)
        layer = target.build(role)
        for b, t in ((1, 1), (1, 2), (1, length), (batch, 1), (batch, length)):  # the smallest first
            for s in (1, target.sizes.context) if role == "cross" else (t,):
                x, context = target.inputs(role, b, t, s=s)
                y = layer(x, context)
                _check_output(
                    x, y, case=f"role {role}, batch {b}, length {t}" + (f", context length {s}" if role == "cross" else "")
                )
    return f"{', '.join(target.roles)}: batch 1 and {batch}, length 1 to {length}, {target.heads} heads, width {target.dim}"


def _check_scheme_shapes(target: CheckTarget, role: str) -> None:
    """Raise ``Failure`` unless the position scheme, which may be user code, returns the shapes that its hook requires."""
    config, hook = target.position_config(role), target.scheme.hook
    scheme = target.scheme(config).to(target.device, target.dtype).eval()
    b, t = target.sizes.batch, target.sizes.length
    q = torch.randn(b, config.heads, t, config.head_dim, device=target.device, dtype=target.dtype)
    expected, results = tuple(q.shape), tuple[Tensor, ...]()
    if hook == "embed":
        expected, results = (t, target.dim), (scheme.embed(t),)
    elif hook == "rotate":
        results = tuple(scheme.rotate(q, q))
        widths = [result.shape[-1] for result in results if isinstance(result, Tensor) and result.dim()]
        expected = (*expected[:3], max([config.head_dim, *widths[:1]]))  # both may become wider, to the same width
    elif hook == "bias":
        expected, results = (*expected[:2], t, t), (scheme.bias(q, q, scale=1.0),)
    for result in results:
        if not _broadcasts(result, expected) or (hook == "rotate" and tuple(result.shape) != expected):
            shape = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
            case = f"position scheme {target.scheme_name}, role {role}, length {t}: {hook}()"
            raise Failure(
                f"{case}: expected {expected}, got {shape}", f"See Position.{hook} for the shape that it must return."
            )


def _broadcasts(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    try:
        return torch.broadcast_shapes(tensor.shape, shape) == shape
    except (AttributeError, RuntimeError):  # not a tensor, or not broadcastable
        return False


def _check_output(x: Tensor, y: Tensor, *, case: str) -> None:
    """Raise ``Failure`` unless y is a tensor of the shape and dtype of x."""
    if not isinstance(y, Tensor) or y.shape != x.shape:
        got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise Failure(
            f"{case}: expected {tuple(x.shape)}, got {got}",
            "forward() must return one tensor (b, t, dim), the shape of x; join heads with merge_heads.",
        )
    if y.dtype != x.dtype:
        raise Failure(f"{case}: expected {x.dtype}, got {y.dtype}", "Cast the result to the dtype of x: y.to(x.dtype).")


def one_head(target: CheckTarget) -> str:
    """One head works or is refused with a reason."""
    if not target.variant.has_heads:
        raise NotDeclared("`has_heads` is False")
    reason = next((r for r in (target.variant_unsupported(role=role, heads=1) for role in target.roles) if r), None)
    if reason:
        raise Unsupported(reason)
    for role in target.roles:
        config = target.position_config(role, heads=1)
        if reason := target.scheme.unsupported(config):
            raise Unsupported(f"{target.scheme_name}: {reason}")
        x, context = target.inputs(role, 1, 3)
        try:
            y = target.build(role, heads=1)(x, context)
        except Exception as error:  # any exception with one head is a failure of this check
            raise Failure(
                f"role {role}, heads 1, batch 1, length 3: {type(error).__name__}: {error}",
                "Support one head, or override unsupported() to return a reason if heads < 2.",
            ) from error
        _check_output(x, y, case=f"role {role}, heads 1, batch 1, length 3")
    return "one head works"


def width(target: CheckTarget) -> str:
    """A width that is not divisible by the number of heads works or is refused."""
    if not target.variant.has_heads:
        raise NotDeclared("`has_heads` is False")
    heads = max(target.heads, 2)
    backend = (
        "reference" if "reference" in target.variant.backends else target.backend
    )  # xformers requires head widths divisible by 8
    odd, role = replace(target, heads=heads, dim=heads * 7 + 1, backend=backend), target.roles[0]
    if reason := odd.unsupported(role):
        return f"refused: {reason}"
    x, context = odd.inputs(role, 1, 3)
    case = f"role {role}, width {odd.dim} with {heads} heads, batch 1, length 3"
    try:
        y = odd.build(role)(x, context)
    except Exception as error:  # any exception with such a width is a failure of this check
        raise Failure(
            f"{case}: not refused, but raises {type(error).__name__}: {str(error)[:90]}",
            "unsupported() must return a reason: end your override with `return super().unsupported(setting)`, or remove it.",
        ) from error
    _check_output(x, y, case=case)
    return f"width {odd.dim} works with {heads} heads"


def roles(target: CheckTarget) -> str:
    """Roles that the variant does not declare are refused."""
    missing = [role for role in ROLES if role not in target.variant.roles]
    for role in missing:
        if not target.variant_unsupported(role=role):
            raise Failure(
                f"role {role} is not among roles, but unsupported() returns None",
                "End your override of unsupported() with `return super().unsupported(setting)`, or add the role to `roles`.",
            )
    unknown = [role for role in target.variant.roles if role not in ROLES]
    if unknown:
        raise Failure(f"unknown role {unknown[0]!r} in `roles`", f"The roles are {', '.join(ROLES)}.")
    return f"refused: {', '.join(missing)}" if missing else "every role is declared"


CHECKS = [
    Check("shapes", at_drawn_sizes(shapes)),
    Check("one head", one_head),
    Check("indivisible width", width),
    Check("roles refused", roles),
]
