"""The uncertainty of a difference in two parts: seeds and test items.

A paired difference varies with the seed, which more seeds average out, and with the items of `test` (segments, documents),
which only a longer test averages out; the interval over seeds, all tested on the same items, does not contain the second part.

    seeds   the standard error over seeds of the mean difference
    items   the standard error over items of the difference averaged over seeds (Miller 2024, sections 2 and 3)

Items count with the number of bytes, tokens or documents that they are a mean of. Neighboring segments of a text are treated as
independent.

Reference:
    Miller, E. (2024). Adding error bars to evals: a statistical approach to language model evaluations. arXiv:2411.00640.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlab.stats.compare import CellSummary, ComparisonSpec, comparisons

if TYPE_CHECKING:
    import numpy
    import pandas


@dataclass(frozen=True)
class UncertaintyParts:
    """Standard errors of the mean difference of a cell from its baseline, in the metric's unit."""

    cell: str
    baseline: str
    seeds: float
    items: float

    @property
    def item_share(self) -> float:
        """The share of items in the variance of both parts together."""
        total = self.seeds**2 + self.items**2
        return self.items**2 / total if total else 0.0


def split_uncertainty(
    items: pandas.DataFrame, cells: Sequence[CellSummary], spec: ComparisonSpec
) -> tuple[UncertaintyParts, ...]:
    """Return the parts for each comparison of a study if its runs have the same items in at least two shared seeds.

    Args:
        items: As `attnlab.load_items` returns them.
        cells: The study's cell summaries.
        spec: The comparison that the study makes; items of another metric are left out. Another estimand than the mean has no
            such parts.
    """
    if not spec.estimator.is_mean:
        return ()
    scores = items.loc[items["metric"] == spec.metric, ["cell", "seed", "score", "count"]]
    groups: Any = scores.groupby(["cell", "seed"], sort=False, observed=True)
    runs = {(str(cell), int(seed)): (run["score"].to_numpy(), run["count"].to_numpy()) for (cell, seed), run in groups}
    parts = []
    for comparison in comparisons(cells):
        if comparison.difference is not None:
            pairs = [(runs.get((comparison.name, s)), runs.get((comparison.baseline, s))) for s in comparison.values]
            errors = _standard_errors([(a, b) for a, b in pairs if a is not None and b is not None])
            if errors is not None:
                parts.append(UncertaintyParts(comparison.name, comparison.baseline, *errors))
    return tuple(parts)


Scores = tuple["numpy.ndarray", "numpy.ndarray"]  # (n,) scores and what each counts


def _standard_errors(pairs: Sequence[tuple[Scores, Scores]]) -> tuple[float, float] | None:
    """Return the standard errors over seeds and over items; None unless there are two seeds with the same two or more items."""
    import numpy

    counts = [count for pair in pairs for _, count in pair]
    if len(pairs) < 2 or len(counts[0]) < 2 or not all(numpy.array_equal(count, counts[0]) for count in counts):
        return None
    weights = counts[0] / counts[0].sum()
    differences = numpy.stack([cell - baseline for (cell, _), (baseline, _) in pairs])  # (seeds, items)
    over_seeds = (differences @ weights).std(ddof=1) / math.sqrt(len(pairs))
    of_items = differences.mean(0)
    residuals = weights * (of_items - of_items @ weights)
    over_items = math.sqrt(len(weights) / (len(weights) - 1) * (residuals**2).sum())
    return float(over_seeds), float(over_items)
