"""The contract of a position scheme: properties of its hook alone, without a variant.

Internal: not part of the public interface. ``attnlab.testing.check(variant, position=...)`` checks a scheme in a variant.
"""

from attnlab.testing.checks.result import Check
from attnlab.testing.position_checks import numbers, order
from attnlab.testing.position_checks.target import SchemeTarget

POSITION_CHECKS: dict[str, Check[SchemeTarget]] = {check.name: check for check in (*order.CHECKS, *numbers.CHECKS)}

__all__ = ["POSITION_CHECKS", "SchemeTarget"]
