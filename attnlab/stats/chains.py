"""The costs of runs that start from other runs, counted over the whole chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.stats.records import finite

TRAINING_PASSES = 3  # a training step costs about three forward passes


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
