"""A check of a contract, and what it raises where its property does not hold or cannot be checked."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from torch import Tensor

T = TypeVar("T")  # the target of a check: a CheckTarget for variants


class Failure(Exception):
    """Raised by a check when its property does not hold.

    Args:
        case: the smallest failing case, and what was measured in it.
        advice: what to change in the variant.
    """

    def __init__(self, case: str, advice: str) -> None:
        super().__init__(case)
        self.case, self.advice = case, advice


class NotDeclared(Exception):
    """Raised by a check of a property that the variant does not declare."""


class Unsupported(Exception):
    """Raised by a check of a configuration that the variant refuses; the message is the variant's reason."""


class Check(NamedTuple, Generic[T]):
    """One property of a contract.

    Attributes:
        name: as printed, and as ``check(only=...)`` selects it.
        run: returns a short description of what it measured; raises ``Failure``, ``NotDeclared`` or ``Unsupported``.
    """

    name: str
    run: Callable[[T], str]


def max_abs_diff(a: Tensor, b: Tensor) -> float:
    """Return the largest absolute difference; 0 for empty tensors, infinity if the difference is NaN."""
    gap = (a.double() - b.double()).abs().max().item() if a.numel() else 0.0
    return gap if gap == gap else float("inf")


def require_small(gap: float, tolerance: float, case: str, advice: str) -> float:
    """Return a difference of values that must be the same; raise ``Failure`` if it exceeds the tolerance or is NaN."""
    if not gap <= tolerance:
        raise Failure(f"{case} by {format_number(gap)}", advice)
    return gap


def format_number(value: float) -> str:
    """Format a measured number with two significant digits."""
    return "0" if value == 0 else f"{value:.1e}"
