"""Values in a table of runs, which pads absent ones with None or NaN, and names of comparisons."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any


def is_present(value: Any) -> bool:
    """Return False for None and NaN, with which a table of runs is padded."""
    return value is not None and value == value


def finite(value: Any) -> float | None:
    """Return a value as a float, or None if it is absent or infinite."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return float(value) if math.isfinite(value) else None


def is_infinite(value: Any) -> bool:
    """Return True for positive and negative infinity."""
    return isinstance(value, Real) and math.isinf(value)


def comparison_name(cell: str, baseline: str) -> str:
    """Return the name of the comparison of a cell with its baseline, given their names."""
    return f"{cell} against {baseline}"
