"""Backends compute the function of ``reference``: outputs, gradients, masks and bias."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from attnlab.nn import attention
from attnlab.testing.checks.result import Check, Failure, NotDeclared, Unsupported, format_number
from attnlab.testing.checks.target import CUDA_BACKENDS, AttentionLayer, CheckTarget, at_drawn_sizes, trained_parameters

TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4}  # of the error relative to the largest value
# In half precision a backend may have twice the error of ``reference`` at the same shapes, and at least four units of rounding.
# Measured with dense, no_wo, narrow and transformer_xl in all roles and with all position schemes, SDPA has at most one time
# that error. It is 0.3 to 2 % of the largest value in bf16, and 4 % in float16 where rounding moves a key of ``cope``.
HALF_FACTOR, HALF_UNITS = 2, 4
SMALL = 0.1
LONG_LENGTH = 131  # more than two of the blocks of 64 queries in which backends process a causal role


def equal(target: CheckTarget) -> str:
    """The output and all gradients equal ``reference``: with and without mask and memory, and over several blocks."""
    errors = []
    for backend in _backends_to_compare(target):
        dtypes = (torch.float32, torch.float16, torch.bfloat16) if backend in CUDA_BACKENDS else (torch.float64,)
        for dtype in dtypes:
            worst = max(
                _relative_error(variation, backend, role, dtype)
                for variation in target.with_every_scheme()
                for role in variation.roles
            )
            errors.append(f"{backend} {str(dtype).removeprefix('torch.')} {format_number(worst)}")
    absent = [name for name in target.variant.backends if attention.unsupported(name, device=target.device)]
    return (
        "relative error: " + ", ".join(errors) + (f"; not available on {target.device}: {', '.join(absent)}" if absent else "")
    )


def _backends_to_compare(target: CheckTarget) -> list[str]:
    """Return the backends to compare with ``reference``: the target's, or every declared one that runs here."""
    declared = [name for name in target.variant.backends if name != "reference"]
    if "reference" not in target.variant.backends:
        raise NotDeclared("`reference` is not among `backends`")
    candidates = [target.backend] if target.backend != "reference" else declared
    if not candidates:
        raise NotDeclared("`reference` is the only backend")
    reasons = {name: target.backend_unsupported(name) for name in candidates}
    available = [name for name, reason in reasons.items() if reason is None]
    if not available:
        raise Unsupported("; ".join(reason for reason in reasons.values() if reason))
    return available


def _relative_error(target: CheckTarget, backend: str, role: str, dtype: torch.dtype) -> float:
    """Return the largest error of a backend in ``dtype``, relative to the largest value of ``reference`` in float64."""
    exact = target.build(role, backend="reference", dtype=torch.float64)
    other = target.build(role, backend=backend, dtype=dtype)
    weights = {name: p.to(dtype) for name, p in exact.state_dict().items()}
    other.load_state_dict(weights)
    exact.load_state_dict({name: p.double() for name, p in weights.items()})
    rounded = None
    if dtype not in TOLERANCES:
        rounded = target.build(role, backend="reference", dtype=dtype)
        rounded.load_state_dict(weights)
    worst = 0.0
    try_long = role == "causal" and dtype == torch.float64 and not target.sizes.name
    for kind in (
        "plain",
        "masked",
        *(["memory", "masked memory"] if target.has_memory(role) else []),
        *([f"length {LONG_LENGTH}"] if try_long else []),
    ):
        expected, actual = (outputs(target, layer, role, kind, dt) for layer, dt in ((exact, torch.float64), (other, dtype)))
        gaps = relative_gaps(actual, expected)
        usual = relative_gaps(outputs(target, rounded, role, kind, dtype), expected) if rounded else {}
        for name, gap in gaps.items():
            if not gap <= tolerance(dtype, usual.get(name, 0.0)):
                case = f"{role}, position {target.scheme_name}, {kind}, {dtype}"
                raise Failure(
                    f"{case}: {name} of {backend} differs from reference by {format_number(gap)} of the largest value",
                    "Pass mask, bias and scale to `attend(..., backend=self.backend)`, or remove the backend from `backends`.",
                )
        worst = max(worst, *gaps.values())
    return worst


def tolerance(dtype: torch.dtype, usual: float) -> float:
    """Return the largest allowed error relative to the largest value.

    Args:
        usual: The error of ``reference`` in this precision.
    """
    return TOLERANCES.get(dtype) or max(HALF_FACTOR * usual, HALF_UNITS * torch.finfo(dtype).eps)


def relative_gaps(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the largest difference of each tensor of ``outputs`` relative to its largest value; NaN counts as infinite.

    The gradient of a parameter that softmax ignores, for example a constant of the bias, is zero up to rounding: gradients are
    compared relative to at least ``SMALL`` of the largest one.
    """
    sizes = {name: tensor.abs().max().item() for name, tensor in expected.items()}
    least = SMALL * max(size for name, size in sizes.items() if name.startswith("the gradient"))
    gaps = {}
    for name, tensor in expected.items():
        gap = (actual[name].to(tensor) - tensor).abs().max().item() / max(sizes[name], 1e-3, least)
        gaps[name] = gap if gap == gap else math.inf
    return gaps


def outputs(target: CheckTarget, layer: AttentionLayer, role: str, kind: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return the output and the gradients with respect to x, context and every parameter, by name.

    Args:
        kind: ``plain``, ``masked``, ``memory``, ``masked memory`` or ``length N``.
    """
    b, t = max(target.sizes.batch, 2), LONG_LENGTH if kind == f"length {LONG_LENGTH}" else target.sizes.length
    x, context = target.inputs(role, b, t)
    if "memory" in kind:
        context = torch.cat([target.noise(b, target.sizes.memory, seed=8), x], dim=1)
    mask = None
    if "masked" in kind:
        mask = torch.ones(b, (x if context is None else context).shape[1], dtype=torch.bool, device=target.device)
        mask[0, 1:][-2:] = mask[1, :1] = mask[2:, 2::3] = False
    leaves = {"the gradient of x": x.to(torch.bfloat16).to(dtype).requires_grad_()}
    if context is not None:
        leaves["the gradient of context"] = context.to(torch.bfloat16).to(dtype).requires_grad_()
    y = layer(leaves["the gradient of x"], leaves.get("the gradient of context"), mask)
    leaves |= {f"the gradient of {n}": p for n, p in trained_parameters(layer.attention).items()}
    weights = target.noise(b, t, seed=9).to(dtype)
    gradients = torch.autograd.grad((y * weights).sum(), list(leaves.values()), allow_unused=True)
    gradients_by_name = {name: g for name, g in zip(leaves, gradients, strict=True) if g is not None}
    return {"the output": y.detach(), **gradients_by_name}


CHECKS = [Check("backends", at_drawn_sizes(equal, draws=1))]
