"""Simulated tables whose comparisons are not alike: at several levels (`over`), and at the optima of swept learning rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy

from attnlab.stats import paired
from attnlab.stats.joint import moderate
from attnlab.stats.sweep import LearningRateCurve
from attnlab.stats.trend import fit_line
from attnlab.stats.variance_prior import MAX_DEGREES_OF_FREEDOM_OF_GROUPS
from benchmarks.simulation import COVERED, FALSE, POWER, Kind, Quantity, Setting, Share, Simulation
from benchmarks.sweeps import APART, RateDesign, compare_curves, sweep_cells
from benchmarks.table_tests import TableTests, join, t_tests
from benchmarks.trends import LEVELS

EFFECT = 3.0  # true difference of one cell at the middle level in the lines on power, in standard deviations of its pairs
# Name -> standard deviations of the runs at each level, and factor on those of the baseline.
SPREADS: dict[str, tuple[tuple[float, float, float], float]] = {
    "levels equal": ((1, 1, 1), 1),
    "levels x3": ((1.5, 1, 0.5), 1),
    "highest level x3": ((1, 1, 3), 1),
    "baseline x2": ((1, 1, 1), 2),
    "levels x3, baseline x2": ((1.5, 1, 0.5), 2),
}


def moderated_levels(spread: str, cells: int, seeds: int, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate tables over three levels whose comparisons borrow from those at the same level, and from all."""
    random = numpy.random.RandomState(seed)
    scales, baseline = SPREADS[spread]
    runs = random.standard_normal((studies, cells + 1, len(scales), seeds)) * numpy.array(scales)[:, None]
    runs[:, 0] *= baseline
    differences = runs[:, 1:] - runs[:, :1]
    shifted = differences.copy()
    shifted[:, -1, 1] += EFFECT * scales[1] * math.sqrt(1 + baseline**2)
    widest = int(numpy.argmax(scales))
    together, found = (t_tests(x.reshape(studies, -1, seeds), moderated=True) for x in (differences, shifted))
    return {
        "false": Share(_tests_by_level(differences).differs.any(1).sum(), studies),
        "covered": Share(_tests_at(differences, widest).covers(0)[:, 0].sum(), studies),
        "power": Share(_tests_by_level(shifted).differs[:, 2 * cells - 1].sum(), studies),
        "false, one prior": Share(together.differs.any(1).sum(), studies),
        "power, one prior": Share(found.differs[:, -2].sum(), studies),
        "power, plain": Share(t_tests(shifted.reshape(studies, -1, seeds)).differs[:, -2].sum(), studies),
    }


def _tests_at(differences: numpy.ndarray, level: int) -> TableTests:
    return t_tests(differences[:, :, level], moderated=True, most=MAX_DEGREES_OF_FREEDOM_OF_GROUPS)


def _tests_by_level(differences: numpy.ndarray) -> TableTests:
    """Return moderated tests, level by level, in tables of levels x cells."""
    return join([_tests_at(differences, level) for level in range(differences.shape[2])])


@dataclass(frozen=True)
class SweptTable:
    """A table of cells at the optima of their swept learning rates, which have the same loss there.

    Attributes:
        design: Grid, seeds and curves; the optima of the cells lie evenly spread over `design.apart` decades.
        comparisons: Number of cells without the baseline.
    """

    design: RateDesign
    comparisons: int

    @property
    def optima(self) -> list[float]:
        """The optima, in decades; that of the baseline is the first."""
        return numpy.linspace(-self.design.apart / 2, self.design.apart / 2, self.comparisons + 1).tolist()


def moderated_optima(table: SweptTable, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate tables of fitted optima, with moderated t-tests and with those of each comparison alone."""
    random = numpy.random.RandomState(seed)
    false, plainly, covered, compared = 0, 0, 0, 0
    for _ in range(studies):
        curves = sweep_cells(table.design, table.optima, random)
        if 0 not in curves or len(curves) < 2:
            continue
        differences = [compare_curves(curves[i], curves[0]) for i in curves if i]
        moderated, plain = paired.correct(moderate(differences)), paired.correct(differences)
        false += any(d is not None and d.is_significant for d in moderated)
        plainly += any(d is not None and d.is_significant for d in plain)
        fitted = paired.difference(curves[min(curves.keys() - {0})].values, curves[0].values)
        covered += fitted is not None and (fitted.interval.low or 0) <= 0 <= (fitted.interval.high or 0)
        compared += 1
    return {
        "false": Share(false, compared),
        "covered": Share(covered, compared),
        "false, plain": Share(plainly, compared),
        "no verdict": Share(studies - compared, studies),
    }


def swept_trends(table: SweptTable, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate tables swept at three levels, where the spread falls and the optima move; test the trends of the differences."""
    random = numpy.random.RandomState(seed)
    false, tested = 0, 0
    for _ in range(studies):
        by_level = [sweep_cells(table.design, table.optima, random, spread=spread) for spread in (1.5, 1.0, 0.5)]
        complete = [i for i in range(1, table.comparisons + 1) if all(i in curves for curves in by_level)]
        if not complete or any(0 not in curves for curves in by_level):
            continue
        tests = paired.correct([_slope([(curves[i], curves[0]) for curves in by_level]) for i in complete])
        false += any(d is not None and d.is_significant for d in tests)
        tested += 1
    return {"false": Share(false, tested), "no verdict": Share(studies - tested, studies)}


def _slope(levels: Sequence[tuple[LearningRateCurve, LearningRateCurve]]) -> paired.Difference | None:
    """Return the slope of the differences at the levels; without a test if one of them has none."""
    seeds = levels[0][0].values
    slopes = {s: fit_line(LEVELS, [cell.values[s] - base.values[s] for cell, base in levels])[0] for s in seeds}
    slope = paired.difference(slopes, dict.fromkeys(seeds, 0.0))
    compared = [compare_curves(cell, base) for cell, base in levels]
    if slope is None or not any(d is not None and d.no_test for d in compared):
        return slope
    return paired.withhold(slope, paired.NoTest.READINGS)


def _swept_setting(table: SweptTable, *, over: bool = False) -> Setting:
    shape = "lopsided" if table.design.lopsided else "parabolas"
    shape += f", curvatures x{table.design.ratio:g}" if table.design.ratio != 1 else ""
    optima = f"optima over {table.design.apart:g} decades" if table.design.apart else "equal optima"
    name = f"{table.comparisons} cells, sweep {table.design.rates} x {table.design.seeds}"
    return Setting(f"{shape}, {optima}", name, partial(swept_trends if over else moderated_optima, table))


SWEPT = [
    SweptTable(RateDesign(rates, seeds, apart=apart, lopsided=lopsided, ratio=ratio), comparisons)
    for apart, lopsided, ratio, rates, sizes in (
        (0.0, 0.0, 1.0, 3, ((3, 3), (5, 3))),
        (APART, 1.0, 2.0, 3, ((2, 6), (3, 3), (3, 6), (5, 6))),
        (APART, 1.0, 2.0, 5, ((3, 3), (5, 6))),
    )
    for seeds, comparisons in sizes
]
NO_VERDICT = Quantity("no verdict", "studies without a verdict", Kind.FALSE)

MODERATED_LEVELS = Simulation(
    "moderated-levels",
    "Moderated t-tests over several levels",
    f"""\
Tables over three levels (`over:`), corrected by Holm's method over all of them. Comparisons borrow from those at the same
level only, with a prior of at most {MAX_DEGREES_OF_FREEDOM_OF_GROUPS} degrees of freedom. Nothing differs. The standard
deviation of a run is 1, or falls to a third (“levels x3”), or is three times as large at one level; that of the runs of the
baseline is the same or twice as large. Coverage is that at the level that scatters most. Power: one cell differs by {EFFECT:g}
standard deviations of its pairs at one level. “One prior”: all comparisons of the table borrow from each other, which attnlab
does not do: where one level scatters three times as much as the others, differences at the others would be missed.""",
    settings=[
        Setting(f"{cells} cells, {seeds} seeds", spread, partial(moderated_levels, spread, cells, seeds))
        for cells in (2, 3, 6)
        for seeds in (2, 3, 5)
        for spread in SPREADS
    ],
    quantities=(
        FALSE,
        COVERED,
        POWER,
        Quantity("false, one prior", "false verdicts with one prior"),
        Quantity("power, one prior", "true differences found with one prior", POWER.kind),
        Quantity("power, plain", "true differences found by plain t-tests", POWER.kind),
    ),
)

MODERATED_OPTIMA = Simulation(
    "moderated-optima",
    "Moderated t-tests of swept learning rates",
    """\
Tables of cells whose learning rates are swept over one grid, as above, compared at their fitted optima, where all have the same
loss. A verdict that the best rates tried do not show is withheld. The optima lie evenly spread over 0.2 decades, or are equal.
Curvatures are equal, or rise to twice that of the baseline.""",
    settings=[_swept_setting(table) for table in SWEPT],
    quantities=(FALSE, COVERED, Quantity("false, plain", "false verdicts of plain t-tests"), NO_VERDICT),
    studies=1_500,
    hard={"sweeps in tables, curvatures that differ by 2": ("false", "curvatures x2")},
)

SWEPT_TRENDS = Simulation(
    "swept-trends",
    "Trends of swept learning rates",
    """\
The same tables, swept at each of three levels (`sweep:` and `over:`). The spread of a run falls to a third from the lowest
level to the highest, and the place of the optima in the grid changes. A trend is false, because the optima have the same
loss; where the best rates tried and the optima part at a level, none is tested.""",
    settings=[
        _swept_setting(SweptTable(RateDesign(rates, seeds, apart=APART, lopsided=1.0, ratio=2.0), 2), over=True)
        for rates in (3, 5)
        for seeds in (3, 5, 12)
    ],
    quantities=(Quantity(FALSE.name, "false trends", level=0.05, limit=0.06), NO_VERDICT),
    studies=1_500,
    hard={"trends of sweeps, curvatures that differ by 2": ("false", "curvatures x2")},
)
