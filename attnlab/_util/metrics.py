"""Metrics as (sum, count) pairs, so that a mean over batches of unequal size is exact, and the names of metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    Score = tuple[float | Tensor, int | Tensor]  # a sum and a count; scalar tensors stay on their device

GENERATED_SCORES = ("bleu", "chrf")  # of generated text, shown together: each leaves out what the other sees
HUGE = 1e12  # four decimals of a larger number are more than a float has
MIN_HALF_WIDTH, MAX_DECIMALS = 1e-9, 12  # of an interval whose half-width decides the decimals
# Words in the names of metrics that are shares, between 0 and 1; some programs print them in per cent.
SHARE_WORDS = {"acc", "accuracy", "auc", "auroc", "dice", "exact", "f1", "iou", "mrr", "precision", "recall", "top1", "top5"}
ITEMS_FILE = "items.npz"  # scores of the single items of the test split, in a run's folder and among its artifacts


def settled(value: float, digits: int = 10) -> float:
    """Return the number with ten significant digits.

    Processors differ in the sixteenth, which decides how a tie such as 0.1861875 is rounded for a reader. Pages therefore
    round in two steps, and do not depend on the processor.
    """
    return float(f"{value:.{digits}g}")


def format_metric(value: float, digits: int = 4) -> str:
    """Format a metric with a fixed number of decimals, so that a column aligns; tiny and huge values in scientific notation."""
    value = settled(value, max(10, digits))
    if value and abs(value) < 0.5 * 10**-digits:
        return f"{value:.1e}"
    return f"{value:.{digits}e}" if HUGE <= abs(value) < math.inf else f"{value:.{digits}f}"


def rounded(value: float, half_width: float | None, *, mean: float = 0.0) -> str:
    """Format a number with the decimals of the two first digits of a half-width.

    It has more decimals when two would hide whether the half-width is smaller than the `mean`. Without a half-width, or with
    one that is zero, tiny or huge, it has the decimals of other metrics.
    """
    if not half_width or not MIN_HALF_WIDTH <= half_width < HUGE or not abs(mean) < HUGE:
        return format_metric(value)
    digits = max(1 - math.floor(math.log10(half_width)), 0)
    while (abs(mean) > half_width) != (round(abs(mean), digits) > round(half_width, digits)) and digits < MAX_DECIMALS:
        digits += 1
    return f"{settled(value):z.{digits}f}"  # z: no sign before a zero


def is_share(metric: str) -> bool:
    """Return True for a metric that is a share by its name, for example ``accuracy``, ``top5_accuracy`` or ``val_f1``."""
    return not SHARE_WORDS.isdisjoint(re.split(r"[^a-z0-9]+", metric.lower()))


class Mean(NamedTuple):
    """A sum and its number of items; the pairs of several batches can be added.

    Unpacks as ``total, count = mean``.
    """

    sum: float | Tensor = 0.0
    count: int | Tensor = 0

    def __add__(self, other: Score) -> Mean:  # type: ignore[override]  # adds, where a tuple would concatenate
        total, count = other
        return Mean(self.sum + total, self.count + count)

    @property
    def value(self) -> float:
        """Return the mean; NaN without items, so that an empty split is not mistaken for a perfect one."""
        return float(self.sum / self.count) if self.count else float("nan")


def merge(scores: Iterable[Mapping[str, Score]]) -> dict[str, Mean]:
    """Add up the scores of many batches, name by name."""
    total: dict[str, Mean] = {}
    for score in scores:
        for name, pair in score.items():
            total[name] = total.get(name, Mean()) + pair
    return total


def at_length(name: str, length: int) -> str:
    """Return the name of a final metric at another length, ``accuracy_at/512``; MLflow shows all lengths in one section."""
    return f"{name}_at/{length}"


def length_of(name: str) -> int | None:
    """Return the length in a name that ``at_length`` made; None for every other name."""
    _, at, length = name.rpartition("_at/")
    return int(length) if at and length.isdigit() else None


def base_metric(name: str) -> str:
    """Return the name of a metric at the trained length, also of one that ``at_length`` made."""
    return name if length_of(name) is None else name.rpartition("_at/")[0]


def in_words(name: str) -> str:
    """Return the name of a metric as words, as in "bits per byte at length 512"."""
    return name.replace("_at/", " at length ").replace("_", " ")


def is_curve(name: str) -> bool:
    """Return True when a metric has points at many steps (``train/loss``), not one for the whole run (``accuracy``)."""
    return "/" in name and (length_of(name) is None or name.startswith("curve/"))  # a program may name a curve "x_at/512"
