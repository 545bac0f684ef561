"""Values in a table of runs, which pads absent ones with None or NaN, and names of comparisons."""

from __future__ import annotations

from numbers import Real
from typing import Any

LARGEST = 1e75  # powers of larger numbers, as a skewness has them, are no floats: they count as infinite


def is_present(value: Any) -> bool:
    """Return False for None and NaN, with which a table of runs is padded."""
    return value is not None and value == value


def finite(value: Any) -> float | None:
    """Return a value as a float, or None if it is absent or infinite (`is_infinite`)."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return float(value) if abs(float(value)) <= LARGEST else None


def is_infinite(value: Any) -> bool:
    """Return True for positive and negative infinity, and for numbers beyond `LARGEST`."""
    return isinstance(value, Real) and abs(float(value)) > LARGEST


def comparison_name(cell: str, baseline: str) -> str:
    """Return the name of the comparison of a cell with its baseline, given their names."""
    return f"{cell} against {baseline}"
