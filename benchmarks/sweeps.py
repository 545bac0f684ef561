"""Simulated studies whose cells need a learning rate: found by a search in each cell, or swept over one shared grid.

Two cells have the same lowest loss, at optima that are equal or lie apart, on curves of equal or different shapes; a verdict of
better or worse is therefore false. A search chooses the best of four trials of one seed and confirms it with other seeds, as
studies with ``search`` do. A sweep trains every rate with every seed, extends the grid as studies with ``sweep`` do, and
compares the fitted optima, with the seeds of its list or with one look at each number of seeds. A verdict needs that the best
rates tried show the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy

from attnlab.stats import paired
from attnlab.stats.sequential import Looks
from attnlab.stats.sweep import CurveProblem, LearningRateCurve, SweptRuns, fit_curves, readings_part
from benchmarks.simulation import FALSE, POWER, Kind, Quantity, Setting, Share, Simulation

SPACING = 0.5  # decades between two rates of a sweep
EXTENSIONS = 4  # rates that a sweep adds on one side at most
RANGE = 2.0  # decades that a search covers, with the optima in the middle half
QUASI_RANDOM = (0.0, 0.5, 0.75)  # trials of Optuna's QMCSampler after the first, which is random
APART = 0.2  # decades between the optima of two cells
SEARCHED = "a learning rate that was searched for each cell"
ABRUPT = (
    "curves that rise four times as steeply above the optimum, or have a kink there, most of all on a grid of half a decade"
)
STUDIES = 400  # of each setting; all settings take about three minutes
EFFECT = 1.5  # true difference in the lines on power, in standard deviations of a run


@dataclass(frozen=True)
class RateDesign:
    """A design and the curves that it meets.

    Attributes:
        rates: Rates of the sweep's first grid; 0 for a search.
        seeds: Seeds of the comparison.
        curvature: Loss above the lowest, one decade from the optimum of a parabola.
        spread: Standard deviation of a run at the optimum.
        apart: Decades between the optima.
        lopsided: Steepness; 0 is a parabola, at 1 the loss a decade above the optimum is twice that a decade below.
        ratio: Curvature of the last cell, in that of the first.
        unequal: The steepness of the first cell is half of `lopsided`, that of the last 1.5 times.
        growth: Factor on the spread of a run, for each decade above the optimum.
        diverging: Decades above its optimum from which runs of the last cell diverge.
        kink: Curvature above the optimum, in that below, of a parabola; its second derivative jumps there.
        spacing: Decades between two rates of a sweep.
        last: A sweep is judged at each number of seeds from `seeds` to this one, until it has a verdict; 0: at `seeds` alone.
    """

    rates: int
    seeds: int
    curvature: float = 0.5
    spread: float = 0.02
    apart: float = 0.0
    lopsided: float = 0.0
    ratio: float = 1.0
    unequal: bool = False
    growth: float = 1.0
    diverging: float = math.inf
    kink: float = 1.0
    spacing: float = SPACING
    last: int = 0

    def setting(self, group: str) -> Setting:
        """The setting of these studies."""
        seeds = f"{self.seeds} to {self.last}" if self.last else str(self.seeds)
        name = f"sweep {self.rates} x {seeds}" if self.rates else f"search 4, {seeds} seeds"
        reason = SEARCHED if not self.rates else ABRUPT if self.lopsided > 1 or self.kink > 1 else ""
        return Setting(group, name, partial(compared_rates, self), reason)

    def of_cell(self, share: float) -> RateDesign:
        """Return the curve of a cell; `share` is 0 for the first cell and 1 for the last."""
        return replace(
            self,
            curvature=self.curvature * self.ratio**share,
            lopsided=self.lopsided * (0.5 + share if self.unequal else 1),
            diverging=self.diverging if share == 1 else math.inf,
        )

    def losses(self, distances: numpy.ndarray) -> numpy.ndarray:
        """Return the expected losses at distances from the optimum, in decades."""
        if not self.lopsided:
            return self.curvature * numpy.where(distances > 0, self.kink, 1.0) * distances**2
        slope = self.lopsided * distances
        return 2 * self.curvature / self.lopsided**2 * (numpy.exp(slope) - slope - 1)

    def runs(self, distances: numpy.ndarray, random: numpy.random.RandomState) -> numpy.ndarray:
        """Return the losses of runs at distances from the optimum, distances x seeds; those of diverged runs are infinite."""
        spread = self.spread * self.growth ** numpy.clip(distances, -2, 2)
        seeds = max(self.seeds, self.last)
        losses = self.losses(distances)[:, None] + spread[:, None] * random.standard_normal((len(distances), seeds))
        return numpy.where((distances >= self.diverging)[:, None], numpy.inf, losses)


def compared_rates(design: RateDesign, studies: int, seed: int) -> Mapping[str, Share]:
    """Return the shares of false and of true verdicts among the comparisons with one, and the share of studies without."""
    random = numpy.random.RandomState(seed)
    compare = _sweep if design.rates else _search
    false = true = judged = 0
    for _ in range(studies):
        looks = [curves for curves in compare(design, random) if len(curves) == 2]
        judged += bool(looks)
        false += any(_differs(curves, design) for curves in looks)
        true += any(_differs(curves, design, effect=EFFECT * design.spread) for curves in looks)
    return {
        "false": Share(false, judged),
        "power": Share(true, judged),
        "no verdict": Share(studies - judged, studies),
    }


def _differs(cells: dict[int, LearningRateCurve], design: RateDesign, *, effect: float = 0.0) -> bool:
    """Return True when the last cell, with an effect added to its values, is better or worse than the first."""
    looks = Looks(design.seeds, design.last) if design.last else None
    difference = paired.correct([compare_curves(_shifted(cells[1], effect), cells[0], looks=looks)])[0]
    return difference is not None and difference.conclusion in ("lower", "higher")


def _shifted(curve: LearningRateCurve, effect: float) -> LearningRateCurve:
    """Return a curve with an effect added to all its values."""
    runs = {rate: {seed: value + effect for seed, value in values.items()} for rate, values in curve.runs.values.items()}
    fitted = {seed: value + effect for seed, value in curve.values.items()}
    return replace(curve, runs=replace(curve.runs, values=runs), values=fitted)


def compare_curves(
    cell: LearningRateCurve, baseline: LearningRateCurve, *, looks: Looks | None = None
) -> paired.Difference | None:
    """Compare two cells at their optima; without a test if the best rates tried do not show the same."""
    difference = paired.difference(cell.values, baseline.values, looks=looks)
    if difference is not None and readings_part(difference, cell, baseline):
        return paired.withhold(difference, paired.NoTest.READINGS)
    return difference


def _search(design: RateDesign, random: numpy.random.RandomState) -> list[dict[int, LearningRateCurve]]:
    """Search the rate of each cell in four trials of one seed, and return the runs at the rates that were chosen."""
    middle = RANGE / 2 + random.uniform(-RANGE / 4, RANGE / 4)
    curves = {}
    for cell, side in enumerate((-0.5, 0.5)):
        optimum = middle + side * design.apart
        trials = RANGE * numpy.array([random.uniform(), *QUASI_RANDOM])
        trial_losses = design.losses(trials - optimum) + design.spread * random.standard_normal(len(trials))
        expected = design.losses(trials[trial_losses.argmin()] - optimum)
        values = dict(enumerate(expected + design.spread * random.standard_normal(design.seeds)))
        curves[cell] = LearningRateCurve(SweptRuns({1.0: values}, {}), best=1.0, values=values)
    return [curves]


def _sweep(design: RateDesign, random: numpy.random.RandomState) -> list[dict[int, LearningRateCurve]]:
    """Sweep both cells over one grid, and return the curves with an optimum, at each look."""
    return list(sweep_looks(design, [-design.apart / 2, design.apart / 2], random))


def sweep_cells(
    design: RateDesign, optima: Sequence[float], random: numpy.random.RandomState, *, spread: float = 1.0
) -> dict[int, LearningRateCurve]:
    """Sweep cells with all seeds of a design; takes the arguments of `sweep_looks`, and returns its only look."""
    return next(sweep_looks(design, optima, random, spread=spread))


def sweep_looks(
    design: RateDesign, optima: Sequence[float], random: numpy.random.RandomState, *, spread: float = 1.0
) -> Iterator[dict[int, LearningRateCurve]]:
    """Sweep cells over one grid, which is extended while a cell's best rate is at its edge or too few of its rates completed.

    The grid of a look is at least that of the look before.

    Args:
        design: The grid, the seeds, and the shape of the curves.
        optima: Of each cell, in decades from the middle of the optima.
        random: Source of the noise, and of the place of the optima in the grid.
        spread: Standard deviation of a run, in that of the design.

    Yields:
        At each look, the index of each cell with a fitted optimum -> its curve.
    """
    positions = design.spacing * (numpy.arange(design.rates + 2 * EXTENSIONS) - EXTENSIONS - (design.rates - 1) / 2)
    middle = design.spacing * random.uniform(-0.5, 0.5)
    scaled, tables = replace(design, spread=spread * design.spread), []
    for i, optimum in enumerate(optima):
        tables.append(scaled.of_cell(i / (len(optima) - 1)).runs(positions - middle - optimum, random))
    low, high, seeds = EXTENSIONS, EXTENSIONS + design.rates, design.seeds
    while seeds <= max(design.seeds, design.last):
        cells = {str(i): _swept_runs(positions[low:high], table[low:high, :seeds]) for i, table in enumerate(tables)}
        curves = fit_curves(cells, direction="min")
        problems = {curve.problem for curve in curves.values()}
        if CurveProblem.LARGEST_TRIED in problems and high < len(positions):
            high += 1
        elif problems & {CurveProblem.SMALLEST_TRIED, CurveProblem.TOO_FEW_VALUES} and low > 0:
            low -= 1
        else:
            yield {int(name): curve for name, curve in curves.items() if curve.problem is None}
            seeds += 1


def _swept_runs(positions: numpy.ndarray, losses: numpy.ndarray) -> SweptRuns:
    rates = [math.pow(10, x) for x in positions.tolist()]
    table = dict(zip(rates, losses.tolist(), strict=True))
    values = {rate: dict(enumerate(row)) for rate, row in table.items() if math.isfinite(row[0])}
    scores = dict(zip(rates, losses.mean(axis=1).tolist(), strict=True))
    return SweptRuns(values, scores, {rate: len(row) for rate, row in table.items() if rate not in values})


GRIDS = ((3, 3, 0), (3, 5, 0), (3, 10, 0), (5, 3, 0), (5, 5, 0), (5, 10, 0), (5, 3, 12))  # rates, seeds, last
SHAPES = {  # group -> fields of its designs
    "equal curves": {},
    "equal curves, 0.2 decades apart": {"apart": APART},
    "curvature x1.3": {"ratio": 1.3},
    "curvature x1.5": {"ratio": 1.5},
    "curvature x2": {"ratio": 2.0},
    "curvature x2, spread 10 %": {"ratio": 2.0, "spread": 0.05},
    "lopsided, 0.3 decades apart": {"lopsided": 1.0, "apart": 0.3},
    "lopsided, curvature x2, 0.3 decades apart": {"lopsided": 1.0, "ratio": 2.0, "apart": 0.3},
    "lopsided, curvature x2, 0.3 decades apart, spread 10 %": {"lopsided": 1.0, "ratio": 2.0, "apart": 0.3, "spread": 0.05},
    "unequally lopsided, 0.3 decades apart": {"lopsided": 1.0, "unequal": True, "apart": 0.3},
    "spread x2 per decade, curvature x2": {"growth": 2.0, "ratio": 2.0, "lopsided": 1.0},
    "very lopsided, curvature x1.5, 0.3 decades apart": {"lopsided": 2.0, "ratio": 1.5, "apart": 0.3},
    "kink, curvature x2, 0.3 decades apart": {"kink": 2.0, "ratio": 2.0, "apart": 0.3},
    "kink, curvature x2, 0.3 decades apart, rates 0.3 decades apart": {
        "kink": 2.0,
        "ratio": 2.0,
        "apart": 0.3,
        "spacing": 0.3,
    },
    "diverging 0.5 decades above, curvature x1.5": {"diverging": 0.5, "ratio": 1.5, "lopsided": 1.0},
}


def settings() -> list[Setting]:
    """Return the simulated settings, the hardest first."""
    swept = [
        RateDesign(rates, seeds, last=last, **shape).setting(group)
        for group, shape in reversed(SHAPES.items())
        for rates, seeds, last in GRIDS
    ]
    searched = {"a search, equal optima": 0.0, "a search, optima 0.2 decades apart": APART}
    return swept + [RateDesign(0, n, apart=apart).setting(group) for group, apart in searched.items() for n in (5, 12, 30)]


SWEEPS = Simulation(
    "learning-rates",
    "The choice of the learning rate",
    f"""\
Two cells with the same lowest loss; any verdict of better or worse is false. “Sweep 3 x 5” trains 3 rates, half a decade
apart, with 5 seeds, “sweep 5 x 3 to 12” as many as a verdict needs, with a look at each number. The grid is extended while
the best rate of a cell is at its edge, or fewer than 4 rates of a cell completed, and the optima of the curves are compared.
The optima lie at any place between two rates. Curves are parabolas, or lopsided: the loss a decade above the optimum is
twice that a decade below. “Curvature x2”: the curve of one cell is twice as steep as that of the other, as after the removal
of a layer. At “very lopsided”, it is four times that. “Kink”: a parabola with twice the curvature above its optimum.
“Unequally lopsided”: the curve of one cell is three times as lopsided. The spread of a run is 4 % of the loss one decade
from the optimum (10 % where stated), and grows with the rate where stated. “Diverging”: runs of one cell diverge from that
distance above its optimum on. “Search 4, 5 seeds” chooses the best of four trials of one seed in each cell (the trials of
Optuna's QMCSampler, over two decades) and compares 5 other seeds at the chosen rates. There is no verdict where no extension
encloses the optimum, or the curve has no minimum below the diverged rates; a verdict at the fitted optima that the best rates
tried do not show is withheld, which counts as neither false nor found. Power: true differences of {EFFECT:g} standard
deviations of a run. Each setting has {STUDIES} studies.""",
    settings=settings(),
    quantities=(FALSE, POWER, Quantity("no verdict", "studies without a verdict", Kind.FALSE)),
    studies=STUDIES,
    conclusion="""\
A curve passes through the means of its cell, and cells share no shape. With one shape for all cells (attnlab 0.7), curvatures
that differ by 1.3, 1.5 and 2 gave 21, 39 and 79 % false verdicts (3 x 5, spread 10 %), or none at all. Polynomials of a lower
degree, chosen by their lack of fit, reach 6 to 9 %; curvatures shrunk towards each other 5 to 14 %, and over 50 % where curves
are lopsided; the score of each seed at the rate that the other seeds chose 6 to 50 %, because the best rate of a grid is not
the optimum. The price is power: with one shape, where it is right, 83 % (3 x 5) and 97 % (5 x 5) of the true differences were
found. After a search, false verdicts become more frequent with more seeds, because the luck of the search is the same in all of
them.""",
    hard={
        "sweeps, curvatures that differ by 1.3 to 2": ("false", "curvature x"),
        "sweeps, lopsided curves": ("false", "lopsided"),
        "sweeps, diverging rates": ("false", "diverging"),
    },
)
