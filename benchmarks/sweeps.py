"""Simulated studies whose cells need a learning rate: found by a search in each cell, or swept over one shared grid.

Two cells have the same lowest loss, at optima that are equal or 0.2 decades apart; a verdict of better or worse is therefore
false. A search chooses the best of four trials of one seed and confirms it with other seeds, as studies with ``search`` do.
A sweep trains every rate with every seed, extends the grid while a cell's best rate is at its edge, and compares the fitted
optima, as studies with ``sweep`` do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy

from attnlab.stats import paired
from attnlab.stats.lr_curve import CurveProblem, SweptRuns, fit_curves
from benchmarks.simulate import Line, Share

SPACING = 0.5  # decades between two rates of a sweep
EXTENSIONS = 4  # rates that a sweep adds on one side at most
RANGE = 2.0  # decades that a search covers, with the optima in the middle half
QUASI_RANDOM = (0.0, 0.5, 0.75)  # trials of Optuna's QMCSampler after the first, which is random
APART = 0.2  # decades between the optima of two cells


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
    def case(self) -> str:
        """The design as text."""
        return f"sweep {self.rates} x {self.seeds}" if self.rates else f"search 4 + confirm {self.seeds}"

    @property
    def curve(self) -> str:
        """The curves as text."""
        shape = f"lopsided {self.lopsided:g}, " if self.lopsided else ""
        optima = f"optima {self.apart:g} decades apart" if self.apart else "optima equal"
        return f"{shape}curvature {self.curvature:g}, spread {self.spread:g}, {optima}"

    def losses(self, distances: numpy.ndarray) -> numpy.ndarray:
        """Return the expected losses at distances from the optimum, in decades."""
        if not self.lopsided:
            return self.curvature * distances**2
        slope = self.lopsided * distances
        return 2 * self.curvature / self.lopsided**2 * (numpy.exp(slope) - slope - 1)


def designs() -> list[RateDesign]:
    """Return the simulated designs in the order of ``validity.csv``."""
    curves = [(0.5, 0.02), (0.5, 0.01)]  # only the ratio of curvature and spread matters
    optima = [(curvature, spread, apart) for curvature, spread in curves for apart in (0.0, APART)]
    sizes = [(0, 5), (3, 3), (3, 5), (5, 5)]
    plain = [RateDesign(rates, seeds, *curve) for curve in optima for rates, seeds in sizes]
    many = [RateDesign(rates, seeds, apart=apart) for apart in (0.0, APART) for seeds in (12, 30) for rates in (0, 3)]
    lopsided = [RateDesign(rates, 5, 0.5, 0.02, apart, 1.0) for apart in (0.0, APART) for rates in (0, 3, 5)]
    return plain + many + lopsided


def simulate_rates(design: RateDesign, studies: int, seed: int) -> list[Line]:
    """Return the share of false verdicts among the comparisons with a verdict, and the share of studies without one."""
    random = numpy.random.RandomState(seed)
    compare = _sweep if design.rates else _search
    false = judged = 0
    for _ in range(studies):
        difference = compare(design, random)
        if difference is not None:
            judged += 1
            false += difference.conclusion in ("lower", "higher")
    shares = {"false": Share(false, max(judged, 1)), "no verdict": Share(studies - judged, studies)}
    return [
        Line("rates", design.curve, design.case, quantity, share.value, share.error, share.of)
        for quantity, share in shares.items()
    ]


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
    positions = SPACING * (numpy.arange(design.rates + 2 * EXTENSIONS) - EXTENSIONS - (design.rates - 1) / 2)
    middle = random.uniform(-SPACING / 2, SPACING / 2)
    tables = {
        str(side): design.losses(positions - middle - side * design.apart)[:, None]
        + design.spread * random.standard_normal((len(positions), design.seeds))
        for side in (-0.5, 0.5)
    }
    low, high = EXTENSIONS, EXTENSIONS + design.rates
    while True:
        cells = {name: _swept_runs(positions[low:high], table[low:high]) for name, table in tables.items()}
        curves = fit_curves(cells, direction="min")
        problems = {curve.problem for curve in curves.values()}
        if CurveProblem.SMALLEST_TRIED in problems and low > 0:
            low -= 1
        elif CurveProblem.LARGEST_TRIED in problems and high < len(positions):
            high += 1
        elif problems != {None}:
            return None
        else:
            first, second = curves.values()
            return paired.difference(first.values, second.values)


def _swept_runs(positions: numpy.ndarray, losses: numpy.ndarray) -> SweptRuns:
    values = {math.pow(10, x): dict(enumerate(row)) for x, row in zip(positions.tolist(), losses.tolist(), strict=True)}
    return SweptRuns(values, dict(zip(values, losses.mean(axis=1).tolist(), strict=True)))
