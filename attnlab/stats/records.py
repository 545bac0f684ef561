"""Values in a table of runs, which pads absent ones with None or NaN, and names of comparisons."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from attnlab._util.run_state import RunState

# States in which a seed has no value and never will. A diverged run has an outcome, which counts in some comparisons.
OUTCOMELESS_STATES = (RunState.OUT_OF_MEMORY, RunState.FAILED, RunState.TIMED_OUT)
LOST_STATES = (RunState.DIVERGED, *OUTCOMELESS_STATES)


def is_present(value: Any) -> bool:
    """Return False for None and NaN, with which a table of runs is padded."""
    return value is not None and value == value


def finite(value: Any) -> float | None:
    """Return a value as a float, or None when it is absent or infinite."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return float(value) if math.isfinite(value) else None


def is_infinite(value: Any) -> bool:
    """Return True for positive and negative infinity."""
    return isinstance(value, Real) and math.isinf(value)


def state_of(run: Mapping[str, Any], metric: str) -> str:
    """Return a run's state; a completed run with an infinite value of the metric counts as diverged."""
    return str(RunState.DIVERGED if is_infinite(run.get(metric)) else run["state"])


def comparison_name(cell: str, baseline: str) -> str:
    """Return the name of the comparison of a cell with its baseline, given their names."""
    return f"{cell} against {baseline}"
