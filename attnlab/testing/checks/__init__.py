"""The single checks of the contract, one file a group; ``attnlab.testing.contract`` runs them.

A check is a function of a ``CheckTarget`` that returns what it measured, in a few words. It raises ``Failure`` where the
property does not hold, ``NotDeclared`` where the variant does not claim it, ``Unsupported`` where the variant refuses it.
"""

from attnlab.testing.checks import (
    backends,
    bias,
    causality,
    cost,
    gradients,
    hooks,
    lifecycle,
    memory,
    padding,
    positions,
    shapes,
)
from attnlab.testing.checks.target import Check, CheckTarget, Failure, NotDeclared, Unsupported

MODULES = (shapes, causality, padding, positions, hooks, bias, memory, gradients, backends, cost, lifecycle)
CHECKS: dict[str, Check] = {check.name: check for module in MODULES for check in module.CHECKS}

__all__ = ["CHECKS", "Check", "Failure", "NotDeclared", "Unsupported", "CheckTarget"]
