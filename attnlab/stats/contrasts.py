"""The contrasts of several studies, or of the tasks of one: which comparisons they share, with effects in per cent.

A contrast is a cell against a baseline, without the axes that both share. Its comparisons stand side by side, each with the
verdict of its study: nothing is averaged over studies, and the 5 % of false verdicts hold for each study.

Effects are in per cent, larger is worse: the difference from the baseline over the baseline's mean score for metrics with a
natural zero that training lowers (bits per byte, loss), over its mean error rate for accuracy. Dividing by a constant changes
no p-value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from attnlab.config.axes import label_text
from attnlab.config.grid import cell_name
from attnlab.stats.cells import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.joint import simultaneous_interval
from attnlab.stats.paired import Interval, NoTest
from attnlab.stats.records import comparison_name

SCALES = {  # metric -> the quantity that effects are per cent of
    "bits_per_byte": "bits per byte",
    "bits_per_token": "bits per token",
    "loss": "loss",
    "accuracy": "error rate",
    "bleu": "BLEU",
    "chrf": "chrF",
}
Ends = tuple[float | None, float | None]


@dataclass(frozen=True)
class Effect:
    """An effect in per cent; larger is worse.

    Attributes:
        mean: The estimate.
        ends: Of its 95 % interval; None when there is none.
        outer: Ends of the interval that holds together with all others of the study; likewise.
    """

    mean: float
    ends: Ends = (None, None)
    outer: Ends = (None, None)


@dataclass(frozen=True)
class StudyTable:
    """The results of one study.

    Attributes:
        name: The study's name.
        spec: The comparison that the study makes.
        cells: Its cells, compared.
    """

    name: str
    spec: ComparisonSpec
    cells: Sequence[CellSummary]


@dataclass(frozen=True)
class ContrastInStudy:
    """A contrast in one study.

    Attributes:
        table: The study.
        comparisons: The cells that have the contrast, at the highest level of `over`.
        lower_levels: The same at its other levels.
    """

    table: StudyTable
    comparisons: tuple[CellSummary, ...]
    lower_levels: tuple[CellSummary, ...]

    def effect(self, cell: CellSummary) -> Effect | None:
        """Return the relative effect of one of its comparisons."""
        baseline = next(other for other in self.table.cells if other.name == cell.baseline)
        return relative_effect(cell, baseline, self.table.spec)


@dataclass(frozen=True)
class Contrast:
    """A cell against a baseline, in all studies that compare them.

    Attributes:
        name: Of the cell, without the axes that it shares with its baseline.
        baseline: Of the baseline, likewise.
        studies: Its comparisons in each study.
    """

    name: str
    baseline: str
    studies: tuple[ContrastInStudy, ...]

    @property
    def label(self) -> str:
        """The names of the cell and its baseline: "no_wo against dense"."""
        return comparison_name(self.name, self.baseline)


def scale_of(spec: ComparisonSpec) -> str:
    """Return the quantity that a study's effects are per cent of; "" for a metric without a known natural zero.

    "" also for another estimand than the mean: its effects are not differences of mean scores.
    """
    return SCALES.get(spec.metric, "") if spec.estimator.is_mean else ""


def relative_effect(comparison: CellSummary, baseline: CellSummary, spec: ComparisonSpec) -> Effect | None:
    """Return a cell's difference from its baseline in per cent of the baseline's score or error rate.

    Args:
        comparison: The cell, with a difference.
        baseline: Its baseline.
        spec: The comparison that the study makes.

    Returns:
        None without a difference, if the two cells lost different numbers of seeds, for a metric without a known natural zero,
        if the baseline's score or error rate is 0, or if it is negative with a seed, which has no natural zero either.
    """
    difference = comparison.difference
    if difference is None or difference.no_test is NoTest.LOSSES or not scale_of(spec):
        return None
    scores = [baseline.values[seed] for seed in baseline.values.keys() & comparison.values.keys()]
    sizes = [1 - score for score in scores] if spec.metric == "accuracy" else scores
    quantity = fmean(sizes)
    if quantity <= 0 or min(sizes) < 0:
        return None
    factor = (-1 if spec.direction == "max" else 1) * 100 / quantity
    outer = simultaneous_interval(difference)
    return Effect(difference.interval.mean * factor, _ends(difference.interval, factor), _ends(outer, factor))


def _ends(interval: Interval | None, factor: float) -> Ends:
    """Return the ends of an interval in another unit; a negative factor exchanges them."""
    if interval is None or interval.low is None or interval.high is None:
        return None, None
    low, high = interval.low * factor, interval.high * factor
    return (high, low) if factor < 0 else (low, high)


def contrasts_of(tables: Sequence[StudyTable]) -> list[Contrast]:
    """Return each contrast with the studies that have it, those of several studies first. Controls are left out."""
    studies: dict[tuple[str, str], list[ContrastInStudy]] = {}
    for table in tables:
        compared: dict[tuple[str, str], list[CellSummary]] = {}
        for comparison in comparisons(table.cells):
            if comparison.difference is not None and not table.spec.is_control(comparison.axes):
                compared.setdefault(contrast_name(comparison, table.spec), []).append(comparison)
        for name, cells in compared.items():
            studies.setdefault(name, []).append(_in_study(table, cells))
    found = [Contrast(*name, tuple(of_name)) for name, of_name in studies.items()]
    return sorted(found, key=lambda contrast: len(contrast.studies) < 2)


def contrast_name(comparison: CellSummary, spec: ComparisonSpec) -> tuple[str, str]:
    """Return the names of a cell and its baseline, without the axes on which they agree."""
    baseline = next(b for b in spec.baselines if _is_compared_with(comparison, b, spec))
    axes = [axis for axis in baseline if comparison.axes[axis] != label_text(baseline[axis])] or list(baseline)
    return (
        cell_name({axis: comparison.axes[axis] for axis in axes}),
        cell_name({axis: label_text(baseline[axis]) for axis in axes}),
    )


def _is_compared_with(comparison: CellSummary, baseline: Mapping[str, object], spec: ComparisonSpec) -> bool:
    name = cell_name({axis: label_text(baseline.get(axis, value)) for axis, value in comparison.axes.items()})
    return comparison.baseline in (name, spec.doubles.get(name))


def _in_study(table: StudyTable, every: Sequence[CellSummary]) -> ContrastInStudy:
    """Return a contrast in one study, given all comparisons that have it."""
    over = table.spec.over
    highest = max(float(cell.axes[over]) for cell in every) if over else 0.0
    cells = tuple(cell for cell in every if not over or float(cell.axes[over]) == highest)
    return ContrastInStudy(table, cells, tuple(cell for cell in every if cell not in cells))
