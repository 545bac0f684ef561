"""Extremes: zero, equal and large inputs, which a run meets sooner or later, give finite outputs."""

import torch

from attnlab.testing.checks.result import Check, Failure
from attnlab.testing.checks.target import FINITE_ADVICE, CheckTarget, trained_parameters

LARGE = 100.0  # factor of the inputs: products of queries and keys exceed 1,000, whose exponential float64 does not represent


def extremes(target: CheckTarget) -> str:
    """Inputs that are zero, all equal or large give finite outputs, and large ones finite gradients."""
    for role in target.roles:
        layer = target.build(role)
        x, context = target.inputs(role)
        for name, change in (("zero", torch.zeros_like), ("all equal", torch.ones_like), ("large", lambda z: LARGE * z)):
            try:
                y = layer(change(x), None if context is None else change(context))
            except Failure as failure:
                raise Failure(f"{failure.case}, for {name} inputs", failure.advice) from failure
        leaves = list(trained_parameters(layer.attention).values())
        gradients = torch.autograd.grad(y.sum(), leaves, allow_unused=True) if y.requires_grad else ()
        if not all(gradient is None or torch.isfinite(gradient).all() for gradient in gradients):
            case = f"{role}, batch {len(x)}, length {x.shape[1]}, large inputs: the gradient of a parameter is NaN or infinite"
            raise Failure(case, FINITE_ADVICE)
    return f"{', '.join(target.roles)}: finite for zero inputs, equal inputs, and inputs times {LARGE:g}"


CHECKS = [Check("extreme inputs", extremes)]
