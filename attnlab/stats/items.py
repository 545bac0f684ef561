"""The uncertainty of a difference in two parts: seeds and test items.

A paired difference varies with the seed, which more seeds average out, and with the items of `test` (segments, documents),
which only a longer test averages out; the interval over seeds, all tested on the same items, does not contain the second part.

    seeds   the standard error over seeds of the mean difference
    items   the standard error over items of the difference averaged over seeds (Miller 2024, sections 2 and 3), without the
            scatter of single scores, which is in the first part, too: the variance of the two-way table of seeds and items
            that neither explains is subtracted

Items count with the number of bytes, tokens or documents that they are a mean of. Neighboring segments of a text are not
independent, so up to `BLOCKS` blocks of consecutive segments are the items.

Where items are more than `MIN_SHARE` of the variance, the page states both intervals. In that for new items like these, the
squares of two half widths are added: of the interval over seeds, and of a t-interval over items. In simulations it is as wide
as stated or wider, also with two seeds or ten items, except with skewed items or a text of few files, where it misses up to
14 % (`benchmarks/items.py`); a t-interval with Satterthwaite's degrees of freedom misses up to 10 % with few seeds. A verdict
holds for new items if this interval, at the level of the table, agrees.

Reference:
    Miller, E. (2024). Adding error bars to evals: a statistical approach to language model evaluations. arXiv:2411.00640.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attnlab.stats.compare import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.paired import LEVEL, Difference, t_quantile
from attnlab.stats.verdict import NewItems

if TYPE_CHECKING:
    import numpy

Scores = tuple["numpy.ndarray", ...]  # of shape (items,) each: the scores and their counts
ItemReader = Callable[[str, str], Mapping[int, Scores]]  # cell, metric -> scores by seed
BLOCKS = 8  # of consecutive segments: more would be shorter than the files of a text, and look independent
MIN_SHARE = 0.1  # smallest share of the items in the variance that a page states


@dataclass(frozen=True)
class UncertaintyParts:
    """Standard errors of the mean difference of a cell from its baseline, in the metric's unit.

    Attributes:
        cell, baseline: Their names.
        seeds, items: The two parts.
        groups: Number of items, or of blocks of them, that the second part is estimated from; 0 on pages that were stored
            before segments were taken together: they show nothing about other texts.
    """

    cell: str
    baseline: str
    seeds: float
    items: float
    groups: int = 0

    @property
    def item_share(self) -> float:
        """The share of items in the variance of both parts together."""
        total = self.seeds**2 + self.items**2
        return self.items**2 / total if total else 0.0

    def judge(self, difference: Difference) -> NewItems | None:
        """Return what a difference shows about new items; None when it has no interval, or the items hardly matter."""
        half_width, conclusion = difference.interval.half_width, difference.conclusion
        if half_width is None or self.item_share <= MIN_SHARE:
            return None
        level, size = LEVEL / difference.comparisons, abs(difference.interval.mean)
        if conclusion == "equivalent" and difference.margin is not None:
            holds = size + self._half_width(difference, 2 * level) < difference.margin
        else:
            holds = conclusion in ("higher", "lower") and size > self._half_width(difference, level)
        return NewItems(math.hypot(half_width, self._quantile(LEVEL) * self.items), holds)

    def _half_width(self, difference: Difference, level: float) -> float:
        """Return half the width of the interval for new items that misses the true difference with probability `level`."""
        low, high = difference.ends_at(level)
        return math.inf if low is None or high is None else math.hypot((high - low) / 2, self._quantile(level) * self.items)

    def _quantile(self, level: float) -> float:
        return t_quantile(1 - level / 2, (self.groups or BLOCKS) - 1)


def judge_items(cells: Sequence[CellSummary], parts: Sequence[UncertaintyParts], *, metric: str) -> list[CellSummary]:
    """Return compared cells with what their differences show about new items, as far as the parts are known."""
    known = [part for part in parts if part.groups or not metric.startswith("bits_per_")]
    by_pair = {(part.cell, part.baseline): part for part in known}

    def judged(cell: CellSummary) -> CellSummary:
        part = by_pair.get((cell.name, cell.baseline))
        if part is None or cell.verdict is None or cell.difference is None:
            return cell
        return replace(cell, verdict=replace(cell.verdict, new_items=part.judge(cell.difference)))

    return [replace(judged(cell), further=tuple(map(judged, cell.further))) for cell in cells]


def split_uncertainty(items: ItemReader, cells: Sequence[CellSummary], spec: ComparisonSpec) -> tuple[UncertaintyParts, ...]:
    """Return the parts for each comparison of a study if its runs have the same items in at least two shared seeds.

    Args:
        items: As `item_reader` of `attnlab.tracking.artifacts` returns it.
        cells: The study's cell summaries.
        spec: The comparison that the study makes. Another estimand than the mean has no such parts.
    """
    if not spec.estimator.is_mean:
        return ()
    parts = []
    for comparison in sorted(comparisons(cells), key=lambda cell: cell.baseline):  # which is read once
        if comparison.difference is not None:
            baseline, cell = items(comparison.baseline, spec.metric), items(comparison.name, spec.metric)
            errors = _standard_errors([(cell[s], baseline[s]) for s in comparison.values if s in cell and s in baseline])
            if errors is not None:
                parts.append(UncertaintyParts(comparison.name, comparison.baseline, *errors))
    return tuple(parts)


def _standard_errors(pairs: Sequence[tuple[Scores, Scores]]) -> tuple[float, float, int] | None:
    """Return the parts and the number of groups; None unless there are two seeds with the same two or more items.

    Scores may be infinite, such as a perplexity that overflows; then the parts are unknown, too.
    """
    import numpy

    counts = [count for pair in pairs for _, count in pair]
    if len(pairs) < 2 or len(counts[0]) < 2 or not all(numpy.array_equal(count, counts[0]) for count in counts):
        return None
    with numpy.errstate(invalid="ignore", over="ignore"):
        differences = numpy.stack([cell - baseline for (cell, _), (baseline, _) in pairs])  # (seeds, items)
        errors = standard_errors(differences, counts[0])
    return errors if all(map(math.isfinite, errors)) else None


def standard_errors(differences: numpy.ndarray, counts: numpy.ndarray) -> tuple[float, float, int]:
    """Return the standard errors over seeds and over items, and the number of items or blocks behind the second.

    Args:
        differences: Of each seed on each item, shape (seeds, items), at least two of both.
        counts: The number of bytes, tokens or documents that each item is a mean of, shape (items,).
    """
    import numpy

    if counts.max() > 1:  # segments of a text
        starts = numpy.unique(numpy.arange(BLOCKS) * len(counts) // BLOCKS)
        sums = numpy.add.reduceat(differences * counts, starts, axis=1)
        counts = numpy.add.reduceat(counts, starts)
        differences = sums / counts
    seeds, items = differences.shape
    weights = counts / counts.sum()
    of_seeds, of_items = differences @ weights, differences.mean(0)
    rest = weights * (differences - of_seeds[:, None] - of_items + of_seeds.mean())
    unexplained = items / (items - 1) * (rest**2).sum() / (seeds * (seeds - 1))
    over_items = items / (items - 1) * ((weights * (of_items - of_seeds.mean())) ** 2).sum()
    over_seeds = of_seeds.std(ddof=1) / math.sqrt(seeds)
    return float(over_seeds), math.sqrt(max(float(over_items - unexplained), 0.0)), items
