"""Summaries of the hyperparameter search of each cell: its trials, the best one, and values at a boundary of the space."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnlab._util.run_state import RunState
from attnlab.config.run import accepts
from attnlab.config.search import sweep_advice, written
from attnlab.stats.compare import ComparisonSpec, cell_of
from attnlab.stats.records import RunRow, exclude_trials

if TYPE_CHECKING:
    from attnlab.config.search import Dimension, SearchConfig

NOT_CONFIRMED = "not confirmed"  # state of a searched cell without a run outside its search
EDGE = 0.05  # share of a dimension, on its sampling scale, that counts as its boundary


@dataclass(frozen=True)
class SearchSummary:
    """The search of one cell.

    Attributes:
        cell: Name of the cell.
        states: State -> number of trials.
        value: Best value on `valid` of the completed trials; None when none completed.
        trial: Number of the best trial, or None.
        params: Dotted path -> value that the best trial chose, or None.
        warnings: One sentence for each chosen value at a boundary of its range, or that is the smallest or largest tried.
        tried: Dotted path -> the different values of all trials, ascending, for each range of numbers.
    """

    cell: str
    states: Mapping[str, int]
    value: float | None = None
    trial: int | None = None
    params: Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()
    tried: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """The states as text, as in "18 completed, 5 pruned, 1 failed"."""
        first = (RunState.COMPLETED, RunState.PRUNED, RunState.FAILED)
        order = [*first, *(state for state in self.states if state not in first)]
        return ", ".join(f"{self.states[state]} {state}" for state in order if self.states.get(state))


def summarize_searches(runs: Sequence[RunRow], spec: ComparisonSpec, search: SearchConfig) -> list[SearchSummary]:
    """Summarize the search of each searched cell, in the order in which cells first appear."""
    groups: dict[str, list[RunRow]] = {}
    for run in runs:
        if run.get("phase") == "search":
            groups.setdefault(cell_of(run, spec), []).append(run)
    return [_summarize_search(cell, trials, spec, search) for cell, trials in groups.items()]


def _summarize_search(cell: str, trials: Sequence[RunRow], spec: ComparisonSpec, search: SearchConfig) -> SearchSummary:
    states = Counter(str(trial["state"]) for trial in trials)
    name, tried = f"valid_{spec.metric}", _tried_values(trials, search)
    completed = [trial for trial in trials if trial["state"] == RunState.COMPLETED and math.isfinite(trial.get(name, math.nan))]
    if not completed:
        return SearchSummary(cell, states, tried=tried)
    sign = 1 if spec.direction == "min" else -1
    best = min(completed, key=lambda trial: (sign * trial[name], trial["trial"]))
    warnings = tuple(_boundary_warnings(best["params"], tried, search))
    return SearchSummary(cell, states, best[name], int(best["trial"]), best["params"], warnings, tried)


def _tried_values(trials: Sequence[RunRow], search: SearchConfig) -> dict[str, tuple[float, ...]]:
    """Return, for each dimension that is a range, the different values of the trials in ascending order."""
    ranges = [path for path, dimension in search.space.items() if dimension.choices is None]
    values = {path: {trial["params"][path] for trial in trials if path in trial["params"]} for path in ranges}
    return {path: tuple(sorted(of_path)) for path, of_path in values.items()}


def different_values(summaries: Sequence[SearchSummary], search: SearchConfig) -> list[str]:
    """Return a sentence on the ranges of which cells were tried at different values; [] if there are none."""
    ranges = [path for path, dimension in search.space.items() if dimension.choices is None]
    paths = [path for path in ranges if len({summary.tried[path] for summary in summaries}) > 1]
    luck = "a verdict depends on the luck of each search"
    return [f"cells were tried at different values of {', '.join(paths)}: {luck}{sweep_advice(search)}"] if paths else []


def unconfirmed_cells(runs: Sequence[RunRow], spec: ComparisonSpec, searches: Sequence[SearchSummary]) -> list[RunRow]:
    """Return a placeholder run for each searched cell without a confirmed run, so that tables list it."""
    confirmed = {cell_of(run, spec) for run in exclude_trials(runs)}
    placeholders: list[RunRow] = []
    for search in searches:
        if search.cell not in confirmed:
            first = next(run for run in runs if cell_of(run, spec) == search.cell)
            if search.value is None:
                reason = f"no trial of its search completed: {search.outcome}"
            else:
                reason = "the configuration that its search chose has not been trained yet"
            axes = {axis: first.get(axis) for axis in spec.axes}
            placeholders.append({**axes, "cell": search.cell, "seed": first["seed"], "state": NOT_CONFIRMED, "reason": reason})
    return placeholders


def _boundary_warnings(params: Mapping[str, Any], tried: Mapping[str, Sequence[float]], search: SearchConfig) -> Iterator[str]:
    """Yield a sentence for each value within `EDGE` of an end of its range, or that is the smallest or largest tried.

    A value beyond which the field has no valid ones, for example a dropout of 0, has no sentence.
    """
    for path, value in params.items():
        dimension = search.space.get(path)
        if dimension is None or dimension.low is None or dimension.high is None:
            continue
        scale, unscale = (math.log, math.exp) if dimension.log else (float, float)
        low, high = scale(dimension.low), scale(dimension.high)
        position = (scale(value) - low) / (high - low)
        values = tried[path]
        for end, most, is_near, is_last, beyond in (
            ("low", "smallest", position <= EDGE, value == values[0], unscale(low - EDGE * (high - low))),
            ("high", "largest", position >= 1 - EDGE, value == values[-1], unscale(high + EDGE * (high - low))),
        ):
            if is_near and _is_valid_beyond(path, beyond, dimension):
                space = f"the {end} end of its search space ({dimension.label})"
                yield f"{path} {format_param(value)} is at {space}; widen the space and search again"
            elif is_last and not is_near and len(values) > 1:
                yield f"{path} {format_param(value)} is the {most} of {len(values)} values tried; the best one may lie beyond"


def _is_valid_beyond(path: str, beyond: float, dimension: Dimension) -> bool:
    """Return True when the field accepts a value beyond an end of its range; a dropout below 0, say, is not valid."""
    rounded = math.floor if dimension.low is not None and beyond < dimension.low else math.ceil
    return accepts(path, rounded(beyond) if dimension.whole else beyond)


def format_param(value: Any) -> str:
    """Format a value that a search chose, floats with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else written(value)
