"""Simulated intervals: coverage of all intervals of a table together, and estimates that were chosen for being conclusive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnlab.stats.paired import LEVEL, Difference, Interval, interval_ends
from attnlab.stats.simultaneous import hides_correction, simultaneous_interval
from benchmarks.simulate import CELLS, Share, judge, tables

FAR = 9.0  # standard deviations of a run: such a difference is always significant
EFFECTS: dict[str, tuple[float, ...]] = {
    "none differs": (0.0,) * CELLS,
    "one differs by far": (FAR, *(0.0,) * (CELLS - 1)),
    "all but one differ by far": (*(FAR,) * (CELLS - 1), 0.0),
    "all differ by far": (FAR,) * CELLS,
    "all differ by 2": (2.0,) * CELLS,
}


@dataclass(frozen=True)
class TogetherCovered:
    """Shares of simulated tables.

    Attributes:
        single: All 95 % intervals of single comparisons contain their true differences.
        bonferroni: All of Bonferroni's do.
        simultaneous: All simultaneous intervals do, which end at zero where only Holm's method shows a difference.
        hidden: The table has a 95 % interval that excludes zero beside a difference that is not significant.
    """

    single: Share
    bonferroni: Share
    simultaneous: Share
    hidden: Share


def covered_together(effects: Sequence[float], n: int, *, studies: int, seed: int) -> TogetherCovered:
    """Simulate tables of cells with these true differences from a common baseline, with ``n`` normal seeds each."""
    single = bonferroni = simultaneous = hidden = 0
    for differences in _judged(effects, n, studies=studies, seed=seed):
        ends = [(difference.interval.low, difference.interval.high) for difference in differences]
        single += _all_cover(ends, effects)
        ends = [interval_ends(difference.interval, LEVEL / difference.comparisons) for difference in differences]
        bonferroni += _all_cover(ends, effects)
        intervals = [simultaneous_interval(difference) for difference in differences]
        ends = [(interval.low, interval.high) if interval else (None, None) for interval in intervals]
        simultaneous += _all_cover(ends, effects)
        hidden += any(hides_correction(difference) for difference in differences)
    return TogetherCovered(*(Share(share, studies) for share in (single, bonferroni, simultaneous, hidden)))


@dataclass(frozen=True)
class ChosenEstimates:
    """Differences that are called better or worse.

    Attributes:
        chosen: Share of all differences.
        ratio: Mean of estimated over true difference.
        covered: Share of their 95 % intervals that contain the true difference.
    """

    chosen: Share
    ratio: float
    covered: Share


def chosen_estimates(effect: float, n: int, *, studies: int, seed: int) -> ChosenEstimates:
    """Simulate tables in which all cells differ by ``effect`` standard deviations of a run; ``n`` normal seeds each."""
    chosen: list[Interval] = []
    for differences in _judged((effect,) * CELLS, n, studies=studies, seed=seed):
        chosen += [difference.interval for difference in differences if difference.conclusion in ("lower", "higher")]
    covered = sum(_all_cover([(interval.low, interval.high)], [effect]) for interval in chosen)
    ratio = sum(interval.mean for interval in chosen) / (len(chosen) * effect)
    return ChosenEstimates(Share(len(chosen), studies * CELLS), ratio, Share(covered, len(chosen)))


def _judged(effects: Sequence[float], n: int, *, studies: int, seed: int) -> list[list[Difference]]:
    noise = tables("normal", n, studies=studies, seed=seed)
    return [judge([[gap + effect for gap in gaps] for gaps, effect in zip(table, effects, strict=True)]) for table in noise]


def _all_cover(ends: Sequence[tuple[float | None, float | None]], effects: Sequence[float]) -> bool:
    """Return True if all intervals contain the true differences; an end at zero excludes zero."""
    return all(
        low is not None and high is not None and low <= effect <= high and not effect == 0 in (low, high)
        for (low, high), effect in zip(ends, effects, strict=True)
    )
