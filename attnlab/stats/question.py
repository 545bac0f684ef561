"""Margins that are too wide to tell anything."""

from __future__ import annotations

from collections.abc import Iterable

from attnlab._util.metrics import is_share
from attnlab.stats.cells import CellSummary, ComparisonSpec

WIDE_SHARE = 0.5  # of an accuracy: from a guess between two classes to no error


def is_wide(margin: float | None, scores: Iterable[float], *, metric: str) -> bool:
    """Return True for a margin that is as large as every score, or half of the range of a share.

    A share by its name, such as ``accuracy``, is taken to be between 0 and 1 if all scores are. With such a margin nearly every
    cell would be equivalent, whatever it does.

    Args:
        margin: Largest difference that counts as equivalent, in the metric's unit.
        scores: Of the runs of a table.
        metric: Its name.
    """
    sizes = [abs(score) for score in scores]
    if margin is None or not sizes:
        return False
    largest = max(sizes)
    return margin >= (min(largest, WIDE_SHARE) if is_share(metric) and largest <= 1 else largest)


def has_wide_margin(cells: Iterable[CellSummary], spec: ComparisonSpec) -> bool:
    """Return ``is_wide`` for the margin and the scores of the cells of one task; False for a margin of solve rates."""
    scores = [score for cell in cells for score in cell.values.values()]
    return spec.estimator.in_unit and is_wide(spec.margin, scores, metric=spec.metric)
