"""Metrics as (sum, count) pairs, so that a mean over batches of unequal size is exact."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Mean(NamedTuple):
    """A sum and how many items it is over; pairs of several batches add up.

    Unpacks as ``total, count = mean``.
    """

    sum: float = 0.0
    count: int = 0

    def __add__(self, other: tuple[float, int]) -> "Mean":  # type: ignore[override]  # adds, where a tuple would join
        total, count = other
        return Mean(self.sum + total, self.count + count)

    @property
    def value(self) -> float:
        """The mean; NaN over nothing, so that an empty split cannot pass for a perfect one."""
        return self.sum / self.count if self.count else float("nan")


def merge(scores: Iterable[Mapping[str, tuple[float, int]]]) -> dict[str, Mean]:
    """Add up the scores of many batches, name by name."""
    total: dict[str, Mean] = {}
    for score in scores:
        for name, pair in score.items():
            total[name] = total.get(name, Mean()) + pair
    return total
