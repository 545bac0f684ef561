"""Values in a table of runs, which pads absent ones with None or NaN, names of comparisons, and costs of whole chains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from attnlab._util.run_state import NOT_COMPARED, RunState

RunRow = Mapping[str, Any]  # of a table of runs

# States in which a seed has no value and never will. A diverged run has an outcome, which counts in some comparisons.
OUTCOMELESS_STATES = (RunState.OUT_OF_MEMORY, RunState.FAILED, RunState.TIMED_OUT)
LOST_STATES = (RunState.DIVERGED, *OUTCOMELESS_STATES)

TRAINING_PASSES = 3  # a training step costs about three forward passes


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


def exclude_trials(runs: Sequence[RunRow]) -> list[RunRow]:
    """Return the runs that are compared: all but the trials of a search, and the runs of stages, which others start from."""
    return [run for run in runs if run.get("phase") not in NOT_COMPARED]


def as_columns(source: Any, **names: str) -> dict[str, Any]:
    """Return attributes of an estimate or a test as columns of a table, all of them None when it is absent; a number `n` is 0.

    Args:
        source: Has the attributes; None: absent.
        names: Attribute -> name of its column.
    """
    absent = {"n": 0}
    return {name: absent.get(key) if source is None else getattr(source, key) for key, name in names.items()}


def comparison_name(cell: str, baseline: str) -> str:
    """Return the name of the comparison of a cell with its baseline, given their names."""
    return f"{cell} against {baseline}"


def with_chain_costs(runs: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return runs that all have the costs of their chain, if one of them has: of a run from scratch, these are its own."""
    if not any(finite(run.get("chain_seconds")) is not None for run in runs):
        return runs
    return [run if finite(run.get("chain_seconds")) is not None else {**run, **_own_costs(run)} for run in runs]


def _own_costs(run: Mapping[str, Any]) -> dict[str, float]:
    costs: dict[str, float] = {}
    seconds, flops, tokens = (finite(run.get(name)) for name in ("train_seconds", "flops_per_token", "tokens"))
    if seconds is not None:
        costs["chain_seconds"] = seconds
    if flops is not None and tokens is not None:
        costs["chain_flops"] = TRAINING_PASSES * flops * tokens
    return costs
