"""Shapes and roles: outputs have the shape and dtype of the input; unsupported shapes and roles are refused."""

from dataclasses import replace

import torch
from torch import Tensor

from attnlab.nn.attention import BACKENDS
from attnlab.testing.checks.positions import require_hook_shapes
from attnlab.testing.checks.result import Check, Failure, NotDeclared
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
    config = target.position_config(role)
    scheme = target.scheme(config).to(target.device, target.dtype).eval()
    b, t = target.sizes.batch, target.sizes.length
    q = torch.randn(b, config.heads, t, config.head_dim, device=target.device, dtype=target.dtype)
    require_hook_shapes(scheme, q, q, f"position scheme {target.scheme_name}, role {role}, length {t}")


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


def other_shapes(target: CheckTarget) -> str:
    """One head, and a width that is not divisible by the number of heads, work or are refused."""
    if not target.variant.has_heads:
        raise NotDeclared("`has_heads` is False")
    heads, results = max(target.heads, 2), []
    # xformers requires widths of heads that 8 divides
    backend = "reference" if "reference" in target.variant.backends else target.backend
    for other in (replace(target, heads=1), replace(target, heads=heads, dim=heads * 7 + 1, backend=backend)):
        name = f"width {other.dim} with {other.heads} head{'s' * (other.heads > 1)}"
        results.append(f"{name} works")
        for role in target.roles:
            if reason := other.unsupported(role):
                results[-1] = f"{name} refused: {reason}"
                break
            x, context = other.inputs(role, 1, 3)
            case = f"role {role}, {name}, batch 1, length 3"
            try:
                y = other.build(role)(x, context)
            except Exception as error:  # any exception of a shape that is not refused is a failure of this check
                raise Failure(
                    f"{case}: not refused, but raises {type(error).__name__}: {str(error)[:90]}",
                    "unsupported() must return a reason: end your override with `return super().unsupported(setting)`.",
                ) from error
            _check_output(x, y, case=case)
    return "; ".join(results)


def refusals(target: CheckTarget) -> str:
    """Roles, hooks, backends and memory that the variant does not declare are refused; names that it declares exist."""
    variant, refused = target.variant, []
    for kind, known, declared in (
        ("role", ROLES, variant.roles),
        ("hook", ("embed", "rotate", "bias"), variant.hooks),
        ("backend", BACKENDS, variant.backends),
    ):
        if unknown := [name for name in declared if name not in known]:
            raise Failure(f"unknown {kind} {unknown[0]!r} in `{kind}s`", f"Expected some of {', '.join(known)}.")
        refused += [({kind: name}, f"{kind} {name}") for name in known if name not in declared]
    # Positions of memory and input would coincide where they are added to the input.
    memory = {"memory": True, "hook": "embed" if variant.supports_memory else "none"}
    refused.append((memory, "memory with absolute positions" if variant.supports_memory else "memory"))
    for setting, name in refused:
        if not target.variant_unsupported(**setting):
            advice = "End your override of unsupported() with `return super().unsupported(setting)`, or declare what works."
            raise Failure(f"{name} is not declared, but unsupported() returns None", advice)
    for hook in sorted(variant.hooks):
        if reason := target.variant_unsupported(hook=hook):
            raise Failure(f"hook '{hook}' is declared, yet refused: {reason}", f"Remove '{hook}' from `hooks`.")
    return f"refused: {', '.join(name for _, name in refused)}"


CHECKS = [
    Check("shapes", at_drawn_sizes(shapes)),
    Check("other shapes", other_shapes),
    Check("refusals", refusals),
]
