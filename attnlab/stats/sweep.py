"""The best value of a sweep in each cell, which decides on extensions of the sweep.

A run that diverged is worse than any other. A value counts as not tried when all its runs failed or ran out of memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from attnlab._util.run_state import RunState
from attnlab.stats.paired import noise
from attnlab.stats.records import finite

RunRecord = Mapping[str, Any]
PHASE = "sweep"  # of the runs of a sweep
MIN_FITTED = 4  # values without a diverged run that a curve needs; the parabola through three cannot be lopsided


@dataclass(frozen=True)
class BestValue:
    """The best value of a sweep in one cell, by the mean over seeds of the metric on `valid`.

    Attributes:
        cell: Name of the cell.
        value: The best value; of several equally good ones, one that is neither the smallest nor the largest if there is one.
        score: Mean of the metric at the best value; infinite if all runs diverged.
        is_smallest, is_largest: The best value is the smallest or largest tried. If all runs diverged, it is the smallest.
        usable: Number of values at which no run diverged.
    """

    cell: str
    value: float
    score: float
    is_smallest: bool
    is_largest: bool
    usable: int

    @property
    def edge(self) -> str:
        """The words "smallest" or "largest"; "" for a best value between others."""
        return "smallest" if self.is_smallest else "largest" if self.is_largest else ""


def best_values(runs: Iterable[RunRecord], *, path: str, metric: str, direction: str) -> list[BestValue]:
    """Return the best value of each cell with a completed or diverged run, in the order in which cells first appear.

    Args:
        runs: Rows with `cell`, `state`, `params` and the metrics, as `attnlab.load_runs` returns them.
        path: The swept field.
        metric: The metric that the study compares; its value on `valid` decides.
        direction: `min` or `max`.
    """
    means = mean_scores(runs, path=path, metric=metric, direction=direction)
    return [best_value(cell, of_cell, direction=direction) for cell, of_cell in means.items()]


def mean_scores(runs: Iterable[RunRecord], *, path: str, metric: str, direction: str) -> dict[str, dict[float, float]]:
    """Return the mean score on `valid` of each cell at each value; takes the arguments of `best_values`.

    Smaller scores are better: with direction "max" they are the negative metric. The score is infinite where a run
    diverged.
    """
    sign = 1 if direction == "min" else -1
    scores: dict[str, dict[float, list[float]]] = {}
    for run in runs:
        if run.get("phase") == "sweep" and run["state"] in (RunState.COMPLETED, RunState.DIVERGED) and path in run["params"]:
            score = finite(run.get(f"valid_{metric}"))
            usable = run["state"] == RunState.COMPLETED
            of_cell = scores.setdefault(str(run["cell"]), {})
            of_cell.setdefault(float(run["params"][path]), []).append(
                sign * score if usable and score is not None else math.inf
            )
    return {cell: {value: fmean(values) for value, values in of_cell.items()} for cell, of_cell in scores.items()}


def best_value(cell: str, means: Mapping[float, float], *, direction: str) -> BestValue:
    """Return the best of the values, for each of which `means` has a score as `mean_scores` returns it."""
    sign = 1 if direction == "min" else -1
    smallest, largest, score = min(means), max(means), min(means.values())
    tied = sorted(value for value, mean in means.items() if mean == score or abs(mean - score) <= noise(score, mean) < math.inf)
    inner = [value for value in tied if smallest < value < largest] if math.isfinite(score) else []
    value = inner[0] if inner else tied[0]
    usable = sum(map(math.isfinite, means.values()))
    return BestValue(cell, value, sign * score, value == smallest, value == largest and value != smallest, usable)


def swept_path(records: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the dotted path of the hyperparameter that the runs sweep; None when they are not runs of a sweep."""
    return next((path for record in records if record.get("phase") == PHASE for path in record["params"]), None)
