"""Simulated studies over three levels, judged by the function that judges a report (`attnlab.stats.trend`).

CELLS cells and their baseline are trained at levels that are a factor of three apart, with runs whose spread falls
from level to level. Differences and margins are in units of the mean spread of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy

from attnlab.stats.compare import CellSummary, ComparisonSpec
from attnlab.stats.paired import Difference, Interval
from attnlab.stats.trend import Trend, TrendKind, summarize_trends
from benchmarks.simulate import CELLS, DRAWS, Line, Share

LEVELS = (500, 1500, 4500)
SPREADS = (1.5, 1.0, 0.5)  # of a run at each level
MARGIN = 2.0
SHIFT = 2.0  # change of the difference from the lowest level to the highest, where it changes
SIZES = (3, 5, 12)
NOISES = ("normal", "t3", "skewed", "mild_gap")
PART = 5  # of the tables of other settings, one in so many is simulated: each has 12 cells
FALSE_WORDS = (TrendKind.SHRINKS, TrendKind.GROWS)
CHANGES = (*FALSE_WORDS, TrendKind.REVERSES, TrendKind.CHANGES)


class Case(NamedTuple):
    """A truth, and what is counted.

    Attributes:
        gaps: True difference at each level.
        margin: Of the study.
        counts: Returns True for a table that is counted.
    """

    gaps: tuple[float, float, float]
    margin: float | None
    counts: Callable[[list[Trend]], bool]


def _any_of(*kinds: TrendKind) -> Callable[[list[Trend]], bool]:
    return lambda trends: any(trend.kind in kinds for trend in trends)


CASES = {
    "false trend": Case((1.0, 1.0, 1.0), None, _any_of(*CHANGES)),
    "false steady": Case((0.0, MARGIN / 2, MARGIN), MARGIN, _any_of(TrendKind.STEADY)),
    "false word": Case((-SHIFT, 0.0, SHIFT), None, _any_of(*FALSE_WORDS)),
    "found": Case((1.0 + SHIFT, 1.0 + SHIFT / 2, 1.0), None, lambda trends: trends[0].kind in CHANGES),
}


def simulated_lines(noise: str, seeds: int, studies: int, seed: int) -> list[Line]:
    """Simulate tables with one kind of noise and a number of seeds; return one line for each of `CASES`."""
    studies = max(500, studies // PART)
    return [
        Line("trend", noise, str(seeds), name, share.value, share.error, share.of)
        for number, (name, case) in enumerate(CASES.items())
        for share in [simulate(case, noise, seeds, studies=studies, seed=seed + 1_000 * number + seeds)]
    ]


def simulate(case: Case, noise: str, seeds: int, *, studies: int, seed: int) -> Share:
    """Return the share of simulated tables that the case counts."""
    random = numpy.random.RandomState(seed)
    runs = DRAWS[noise](random, (studies, CELLS + 1, len(LEVELS), seeds)) * numpy.array(SPREADS)[:, None]
    if noise.endswith("_gap"):
        runs[:, 0] = 0.0  # all of the skew stays in the differences
    runs[:, 1:] += numpy.array(case.gaps)[:, None]
    return Share(sum(case.counts(judge(table, margin=case.margin)) for table in runs.tolist()), studies)


def judge(table: list[list[list[float]]], *, margin: float | None) -> list[Trend]:
    """Return the trends of a table: a value for each cell, level and seed; the first cell is the baseline."""
    axes = ("variant", "train.steps")
    spec = ComparisonSpec("simulated", axes, "loss", "min", {"variant": "0"}, margin=margin, over="train.steps")
    return summarize_trends(_cells(table), spec)


def _cells(table: list[list[list[float]]]) -> Iterable[CellSummary]:
    """Yield summaries with the values that trends are computed from.

    Differences are present, but without a test: no trend of these tables is called "changes sign".
    """
    for number, cell in enumerate(table):
        for level, values in zip(LEVELS, cell, strict=True):
            difference = Difference(Interval(len(values), 0.0)) if number else None
            yield CellSummary(
                name=f"{number} {level}",
                axes={"variant": str(number), "train.steps": str(level)},
                values=dict(enumerate(values)),
                value=None,
                costs={},
                states={},
                baseline=f"0 {level}" if number else "",
                difference=difference,
            )
