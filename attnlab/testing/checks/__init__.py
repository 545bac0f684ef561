"""The checks of the contract, one module per group of properties; ``attnlab.testing.contract`` runs them.

Internal: not part of the public interface.

A check is a function that takes a ``CheckTarget`` and returns a short description of what it measured. It raises
``Failure`` if the property does not hold, ``NotDeclared`` if the variant does not declare the property, and
``Unsupported`` if the variant refuses the configuration.
"""

from attnlab.testing.checks import (
    backends,
    components,
    cost,
    dropout,
    extremes,
    gradients,
    lifecycle,
    memory,
    modes,
    positions,
    projections,
    shapes,
    visibility,
)
from attnlab.testing.checks.result import Check, Failure, NotDeclared, Unsupported
from attnlab.testing.checks.target import CheckTarget

MODULES = (
    shapes,
    visibility,
    positions,
    components,
    memory,
    gradients,
    extremes,
    projections,
    backends,
    dropout,
    modes,
    cost,
    lifecycle,
)
PRECONDITIONS = ("shapes", "no hidden state")  # without which the other checks fail, too
_ALL = {check.name: check for module in MODULES for check in module.CHECKS}
CHECKS: dict[str, Check[CheckTarget]] = {name: _ALL[name] for name in (*PRECONDITIONS, *_ALL)}

__all__ = ["CHECKS", "Check", "CheckTarget", "Failure", "NotDeclared", "Unsupported"]
