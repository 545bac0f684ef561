"""Extremes: zero, equal and large inputs, which a run meets sooner or later, give finite outputs.

One check makes every kind of call with them. The other checks compare results, and do that for noise: equal inputs are ties, of
which implementations that are both right may select different keys.
"""

from itertools import product

import torch

from attnlab.testing.checks.result import Check, Failure
from attnlab.testing.checks.target import FINITE_ADVICE, CheckTarget, trained_parameters

LARGE = 100.0  # factor of the inputs: products of queries and keys exceed 1,000, whose exponential float64 does not represent
INPUTS = {"zero": torch.zeros_like, "all equal": torch.ones_like, "large": lambda z: LARGE * z}


def extremes(target: CheckTarget) -> str:
    """Inputs that are zero, all equal or large give finite outputs in every kind of call, and large ones finite gradients."""
    for role, training in product(target.roles, (False, True)):
        layer = target.build(role).train(training)
        leaves = list(trained_parameters(layer.attention).values())
        for (call, (x, context, mask)), (name, change) in product(target.calls(role), INPUTS.items()):
            try:
                y = layer(change(x), None if context is None else change(context), mask)
            except Failure as failure:
                raise Failure(f"{failure.case}, for {name} inputs", failure.advice) from failure
            gradients = torch.autograd.grad(y.sum(), leaves, allow_unused=True) if y.requires_grad and name == "large" else ()
            if not all(gradient is None or torch.isfinite(gradient).all() for gradient in gradients):
                case = f"{role}, batch {len(x)}, length {x.shape[1]}{call}, {name} inputs: the gradient of a parameter"
                raise Failure(f"{case} is NaN or infinite", FINITE_ADVICE)
    return f"{', '.join(target.roles)}: finite for zero inputs, equal inputs, and inputs times {LARGE:g}"


CHECKS = [Check("extreme inputs", extremes)]
