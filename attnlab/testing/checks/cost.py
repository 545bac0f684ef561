"""Cost: the bytes saved for backward and the floating-point operations grow no faster with t than ``cost_exponent``.

Both are exact on every device.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from attnlab.testing.checks.result import Check, Failure, NotDeclared
from attnlab.testing.checks.target import CheckTarget
from attnlab.training.costs import count_flops, saved_bytes

LENGTHS = (256, 576, 1024)  # squares, so that a stride of sqrt(t) is an integer
SLACK = 0.1  # how far the measured exponent may exceed the declared one
Measure = Callable[[CheckTarget, str, int, dict[str, Any]], int]


def saved(target: CheckTarget) -> str:
    """The bytes that autograd saves for backward, each storage once and without parameters, grow no faster than declared."""
    return _check_growth(target, "bytes saved for backward", _saved_bytes, "MiB", 2**20)


def flops(target: CheckTarget) -> str:
    """The floating-point operations of a forward pass grow no faster than declared."""
    if target.backend == "xformers":  # torch has no formula for its kernels, which also order dimensions differently
        raise NotDeclared("torch cannot count the operations of xformers; check the variant with backend sdpa")
    return _check_growth(target, "operations", _operations, "MFLOP", 10**6)


def _check_growth(target: CheckTarget, what: str, measure: Measure, unit: str, size: int) -> str:
    """Compare the largest local exponent over ``LENGTHS`` of each role with ``Variant.cost_exponent``."""
    results = [_role_growth(target, role, what, measure, unit, size) for role in target.roles]
    _, measured = max(results)
    return f"{measured}; {', '.join(target.roles)}"


def _role_growth(target: CheckTarget, role: str, what: str, measure: Measure, unit: str, size: int) -> tuple[float, str]:
    """Return the exponent of one role, and its description; raise ``Failure`` if it exceeds the declared one."""
    # Recommended options come last: those that must grow with t do so even if the caller fixed them.
    sizes = [measure(target, role, t, {**target.options, **target.variant.recommended_options(t)}) for t in LENGTHS]
    steps = zip(pairwise(sizes), pairwise(LENGTHS), strict=True)
    exponent = max(math.log(b / a) / math.log(n / m) if a else 0.0 for (a, b), (m, n) in steps)
    declared = target.variant.cost_exponent
    measured = f"t^{exponent:.2f} (declared {declared:g}); {sizes[-1] / size:.1f} {unit} at length {LENGTHS[-1]}"
    if not exponent <= declared + SLACK:
        raise Failure(
            f"{role}, lengths {', '.join(map(str, LENGTHS))}: {what}: {measured}",
            "Look for a tensor with an entry for every pair of positions, such as a (t, t) mask, bias or logits. Compute only "
            "the pairs that the pattern allows, or declare the measured `cost_exponent`. Options that must grow with t belong "
            "in `recommended_options`.",
        )
    return exponent, measured


def _saved_bytes(target: CheckTarget, role: str, t: int, options: dict[str, Any]) -> int:
    layer = target.build(role, length=t, options=options, dtype=torch.float32).train()
    x, context = (None if z is None else z.float().requires_grad_() for z in target.inputs(role, 1, t, s=t))
    return saved_bytes(lambda: layer(x, context), layer)[1]


def _operations(target: CheckTarget, role: str, t: int, options: dict[str, Any]) -> int:
    layer = target.build(role, length=t, options=options, dtype=torch.float32)
    x, context = (None if z is None else z.float() for z in target.inputs(role, 1, t, s=t))
    return count_flops(lambda: layer(x, context))


CHECKS = [Check("saved bytes", saved), Check("flops", flops)]
