"""Differences between tensors, and numbers in the messages of checks."""

from torch import Tensor


def max_abs_diff(a: Tensor, b: Tensor) -> float:
    """Return the largest absolute difference; 0 for empty tensors, infinity if the difference is NaN."""
    gap = (a.double() - b.double()).abs().max().item() if a.numel() else 0.0
    return gap if gap == gap else float("inf")


def format_number(value: float) -> str:
    """Format a measured number with two significant digits."""
    return "0" if value == 0 else f"{value:.1e}"
