"""Check that an attention variant is correct.

``check`` tests a class of any kind, built in or not. For a variant it tests the contract of ``attnlab.variants.Variant``,
for example shapes, causality and gradients. ``attnlab.extras.bench.suite`` measures time and memory of single layers.

    >>> from attnlab.testing import check
    >>> [result] = check("dense", position="rotary", roles=["causal"], only=["causality by gradient"])
    >>> result.status
    'passed'

On the command line: ``attnlab check``.
"""

from attnlab.testing.checks import CHECKS
from attnlab.testing.contract import CheckResult, CheckResults, check_component, check_variant
from attnlab.testing.dispatch import check, check_model, check_position, check_task

__all__ = [
    "CHECKS",
    "CheckResult",
    "CheckResults",
    "check",
    "check_component",
    "check_model",
    "check_position",
    "check_task",
    "check_variant",
]
