"""Cost: bytes saved for backward, and arithmetic, grow no faster with t than declared. Both are exact on every device."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from attnlab.testing.checks.target import Check, CheckTarget, Failure, NotDeclared
from attnlab.training.costs import count_flops, saved_bytes

LENGTHS = (256, 576, 1024)  # squares, so that a stride of sqrt(t) is a whole number
SLACK = 0.1
Measure = Callable[[CheckTarget, str, int, dict[str, Any]], int]


def saved(subject: CheckTarget) -> str:
    """Bytes that autograd keeps, storage by storage, parameters not counted."""
    return _held(subject, "bytes saved for backward", _saved_bytes, "MiB", 2**20)


def arithmetic(subject: CheckTarget) -> str:
    """Floating-point operations of a forward pass."""
    if subject.backend == "xformers":  # which lays heads and positions out the other way round
        raise NotDeclared("torch counts no arithmetic of xformers; --backend sdpa tells the same variant's")
    return _held(subject, "arithmetic", _operations, "MFLOP", 10**6)


def _held(subject: CheckTarget, what: str, measure: Measure, unit: str, size: int) -> str:
    role = subject.roles[0]
    # An option that must grow with t does so, whatever was asked for.
    sizes = [measure(subject, role, t, {**subject.options, **subject.variant.recommended_options(t)}) for t in LENGTHS]
    steps = zip(pairwise(sizes), pairwise(LENGTHS), strict=True)
    grown = max(math.log(b / a) / math.log(n / m) if a else 0.0 for (a, b), (m, n) in steps)
    declared = subject.variant.cost_exponent
    measured = f"t^{grown:.2f} (declared {declared:g}); {sizes[-1] / size:.1f} {unit} at length {LENGTHS[-1]}"
    if not grown <= declared + SLACK:
        raise Failure(
            f"{role}, lengths {', '.join(map(str, LENGTHS))}: {what} grows as {measured}",
            "Something is built for every pair of positions: a mask, a bias or logits of t x t. Declare `cost_exponent` "
            "as it is, or compute only what the pattern allows; see `recommended_options` for options that must grow with t.",
        )
    return measured


def _saved_bytes(subject: CheckTarget, role: str, t: int, options: dict[str, Any]) -> int:
    cell = subject.build(role, length=t, options=options, dtype=torch.float32)
    x, context = (None if z is None else z.float().requires_grad_() for z in subject.inputs(role, 1, t, s=t))
    return saved_bytes(lambda: cell(x, context), cell)[1]


def _operations(subject: CheckTarget, role: str, t: int, options: dict[str, Any]) -> int:
    cell = subject.build(role, length=t, options=options, dtype=torch.float32)
    x, context = (None if z is None else z.float() for z in subject.inputs(role, 1, t, s=t))
    return count_flops(lambda: cell(x, context))


CHECKS = [Check("saved bytes", saved), Check("arithmetic", arithmetic)]
