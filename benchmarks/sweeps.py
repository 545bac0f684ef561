"""Simulated studies whose cells need a learning rate: found by a search in each cell, or swept over one shared grid.

Two cells have the same lowest loss, at optima that are equal or 0.2 decades apart; a verdict of better or worse is therefore
false. A search chooses the best of four trials of one seed and confirms it with other seeds, as studies with ``search`` do.
A sweep trains every rate with every seed, extends the grid while a cell's best rate is at its edge, and compares the fitted
optima, as studies with ``sweep`` do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy

from attnlab.stats import paired
from attnlab.stats.lr_curve import CurveProblem, SeedValues, SweptRuns, fit_curves
from benchmarks.simulation import FALSE, Kind, Quantity, Setting, Share, Simulation

SPACING = 0.5  # decades between two rates of a sweep
EXTENSIONS = 4  # rates that a sweep adds on one side at most
RANGE = 2.0  # decades that a search covers, with the optima in the middle half
QUASI_RANDOM = (0.0, 0.5, 0.75)  # trials of Optuna's QMCSampler after the first, which is random
APART = 0.2  # decades between the optima of two cells
SEARCHED = "a learning rate that was searched for each cell"
LOPSIDED = "a sweep of three rates of lopsided curves whose optima lie apart"


@dataclass(frozen=True)
class RateDesign:
    """A design and the curves that it meets.

    Attributes:
        rates: Rates of the sweep's first grid; 0 for a search.
        seeds: Seeds of the comparison.
        curvature: Loss above the lowest, one decade from the optimum of a parabola.
        spread: Standard deviation of a run.
        apart: Decades between the optima.
        lopsided: Steepness; 0 is a parabola, at 1 the loss a decade above the optimum is twice that a decade below.
    """

    rates: int
    seeds: int
    curvature: float = 0.5
    spread: float = 0.02
    apart: float = 0.0
    lopsided: float = 0.0

    @property
    def setting(self) -> Setting:
        """The setting of these studies."""
        ratio = f"spread {100 * self.spread / self.curvature:g} %"
        group = f"{'lopsided' if self.lopsided else ratio}, {f'{self.apart:g} decades apart' if self.apart else 'equal optima'}"
        name = f"sweep {self.rates} x {self.seeds}" if self.rates else f"search 4, {self.seeds} seeds"
        lopsided = self.lopsided and self.apart and self.rates == 3
        reason = LOPSIDED if lopsided else "" if self.rates else SEARCHED
        return Setting(group, name, partial(compared_rates, self), reason)

    def losses(self, distances: numpy.ndarray) -> numpy.ndarray:
        """Return the expected losses at distances from the optimum, in decades."""
        if not self.lopsided:
            return self.curvature * distances**2
        slope = self.lopsided * distances
        return 2 * self.curvature / self.lopsided**2 * (numpy.exp(slope) - slope - 1)


def compared_rates(design: RateDesign, studies: int, seed: int) -> Mapping[str, Share]:
    """Return the share of false verdicts among the comparisons with a verdict, and the share of studies without one."""
    random = numpy.random.RandomState(seed)
    compare = _sweep if design.rates else _search
    false = judged = 0
    for _ in range(studies):
        difference = compare(design, random)
        if difference is not None:
            judged += 1
            false += difference.conclusion in ("lower", "higher")
    return {"false": Share(false, judged), "no verdict": Share(studies - judged, studies)}


def _search(design: RateDesign, random: numpy.random.RandomState) -> paired.Difference | None:
    """Search the rate of each cell in four trials of one seed, and compare the cells at the rates that were chosen."""
    middle = RANGE / 2 + random.uniform(-RANGE / 4, RANGE / 4)
    values = []
    for side in (-0.5, 0.5):
        optimum = middle + side * design.apart
        trials = RANGE * numpy.array([random.uniform(), *QUASI_RANDOM])
        trial_losses = design.losses(trials - optimum) + design.spread * random.standard_normal(len(trials))
        expected = design.losses(trials[trial_losses.argmin()] - optimum)
        values.append(dict(enumerate(expected + design.spread * random.standard_normal(design.seeds))))
    return paired.difference(values[0], values[1])


def _sweep(design: RateDesign, random: numpy.random.RandomState) -> paired.Difference | None:
    """Sweep both cells over one grid, and compare their optima; None if a cell has none."""
    values = sweep_cells(design, [-design.apart / 2, design.apart / 2], random)
    return paired.difference(values[0], values[1]) if len(values) == 2 else None


def sweep_cells(
    design: RateDesign, optima: Sequence[float], random: numpy.random.RandomState, *, spread: float = 1.0
) -> dict[int, SeedValues]:
    """Sweep cells over one grid, which is extended while the best rate of a cell is at its edge.

    Args:
        design: The grid, the seeds, and the shape of the curves.
        optima: Of each cell, in decades from the middle of the optima.
        random: Source of the noise, and of the place of the optima in the grid.
        spread: Standard deviation of a run, in that of the design.

    Returns:
        Index of each cell with a fitted optimum -> seed -> its value there.
    """
    positions = SPACING * (numpy.arange(design.rates + 2 * EXTENSIONS) - EXTENSIONS - (design.rates - 1) / 2)
    middle = random.uniform(-SPACING / 2, SPACING / 2)
    tables = [
        design.losses(positions - middle - optimum)[:, None]
        + spread * design.spread * random.standard_normal((len(positions), design.seeds))
        for optimum in optima
    ]
    low, high = EXTENSIONS, EXTENSIONS + design.rates
    while True:
        cells = {str(i): _swept_runs(positions[low:high], table[low:high]) for i, table in enumerate(tables)}
        curves = fit_curves(cells, direction="min")
        problems = {curve.problem for curve in curves.values()}
        if CurveProblem.SMALLEST_TRIED in problems and low > 0:
            low -= 1
        elif CurveProblem.LARGEST_TRIED in problems and high < len(positions):
            high += 1
        else:
            return {int(name): curve.values for name, curve in curves.items() if curve.problem is None}


def _swept_runs(positions: numpy.ndarray, losses: numpy.ndarray) -> SweptRuns:
    values = {math.pow(10, x): dict(enumerate(row)) for x, row in zip(positions.tolist(), losses.tolist(), strict=True)}
    return SweptRuns(values, dict(zip(values, losses.mean(axis=1).tolist(), strict=True)))


def designs() -> list[RateDesign]:
    """Return the simulated designs."""
    grids = [(0, 5), (0, 12), (0, 30), (3, 3), (3, 5), (3, 12), (3, 30), (5, 5)]
    curves = [RateDesign(*grid, 0.5, 0.02, apart) for apart in (0.0, APART) for grid in grids]
    curves += [RateDesign(*grid, 0.5, 0.01, apart) for apart in (0.0, APART) for grid in ((0, 5), (3, 5), (5, 5))]
    return curves + [RateDesign(*grid, 0.5, 0.02, apart, 1.0) for apart in (0.0, APART) for grid in ((0, 5), (3, 5), (5, 5))]


SWEEPS = Simulation(
    "learning-rates",
    "The choice of the learning rate",
    """\
Two cells with the same lowest loss, at optima that are equal or 0.2 decades apart; any verdict of better or worse is false. The
spread is the standard deviation of a run, in the loss one decade from the optimum. “Search 4, 5 seeds” chooses the best of four
trials of one seed in each cell (the trials of Optuna's QMCSampler, over two decades) and compares 5 other seeds at the chosen
rates. “Sweep 3 x 5” trains 3 rates, half a decade apart, with 5 seeds, extends the grid while the best rate of a cell is at its
edge, and compares the fitted optima. Curves are parabolas, or lopsided: the loss a decade above the optimum is twice that a
decade below. There is no verdict where the curve is rejected by the test for lack of fit (at 5 %), or no extension encloses the
optimum.""",
    settings=[design.setting for design in designs()],
    quantities=(FALSE, Quantity("no verdict", "studies without a verdict", Kind.FALSE)),
    studies=3_000,
    conclusion="""\
After a search, false verdicts become more frequent with more seeds, because the luck of the search is the same in all of
them.""",
)
