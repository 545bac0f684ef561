"""Simulated tables whose comparisons are not alike: at several levels (`over`), and at the best of swept learning rates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy

from attnlab.stats import paired
from attnlab.stats.joint import moderate
from attnlab.stats.sweep import LearningRateCurve, SweptRuns, depends_on_choice
from attnlab.stats.trend import fit_line
from attnlab.stats.variance_prior import MAX_DEGREES_OF_FREEDOM_OF_GROUPS
from benchmarks.simulation import COVERED, FALSE, POWER, Kind, Quantity, Setting, Share, Simulation
from benchmarks.sweeps import APART, Curve, RateDesign, Sweeps, sweep
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


def moderated_sweeps(design: RateDesign, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate tables at the best rates tried, with moderated t-tests and with those of each comparison alone."""
    look = next(sweep(design, studies, numpy.random.RandomState(seed)))
    false, plainly, covered, compared = 0, 0, 0, 0
    for differences in _differences(look):
        known = [difference.interval for difference in differences if difference]
        if not known:
            continue
        moderated, plain = paired.correct(moderate(differences)), paired.correct(differences)
        false += any(d is not None and d.is_significant for d in moderated)
        plainly += any(d is not None and d.is_significant for d in plain)
        covered += (known[0].low or 0) <= 0 <= (known[0].high or 0)
        compared += 1
    return {
        "false": Share(false, compared),
        "covered": Share(covered, compared),
        "false, plain": Share(plainly, compared),
        "no verdict": Share(studies - compared, studies),
    }


def _differences(look: Sweeps) -> Iterator[list[paired.Difference | None]]:
    """Yield the differences of each study, shifted so that the best of the rates tried are equally good in all cells."""
    shifts = look.expected[:, :1] - look.expected
    for inside, *readings in zip(look.inside, look.at_best + shifts[..., None], look.crossed + shifts[..., None], strict=True):
        at_best, crossed = ([dict(enumerate(values)) for values in reading.tolist()] for reading in readings)
        curves = [LearningRateCurve(SweptRuns({}, {}), crossed=values) for values in crossed]
        differences = [paired.difference(values, at_best[0]) if inside[0] else None for values in at_best[1:]]
        yield [
            paired.withhold(d, paired.NoTest.CHOICE) if d and depends_on_choice(d, curve, curves[0]) else d if own else None
            for d, curve, own in zip(differences, curves[1:], inside[1:], strict=True)
        ]


def swept_trends(design: RateDesign, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate tables swept at three levels, where the spread falls; test the trends of the differences."""
    random = numpy.random.RandomState(seed)
    looks = [next(sweep(design, studies, random, spread=spread)) for spread in (1.5, 1.0, 0.5)]
    values = [look.at_best + (look.expected[:, :1] - look.expected)[..., None] for look in looks]
    false, tested = 0, 0
    for study, by_level in enumerate(zip(*(_differences(look) for look in looks), strict=True)):
        complete = [cell for cell in range(len(by_level[0])) if all(level[cell] for level in by_level)]
        slopes = [
            _slope(
                [level[study] for level in values], cell + 1, any(d and d.no_test for d in (level[cell] for level in by_level))
            )
            for cell in complete
        ]
        false += any(d is not None and d.is_significant for d in paired.correct(slopes))
        tested += bool(complete)
    return {"false": Share(false, tested), "no verdict": Share(studies - tested, studies)}


def _slope(levels: Sequence[numpy.ndarray], cell: int, withheld: bool) -> paired.Difference | None:
    """Return the slope of the differences of a cell at the levels (cells x seeds); without a test if one of them has none."""
    differences = numpy.array([level[cell] - level[0] for level in levels]).T
    slopes = {seed: fit_line(LEVELS, of_seed)[0] for seed, of_seed in enumerate(differences.tolist())}
    slope = paired.difference(slopes, dict.fromkeys(slopes, 0.0))
    return paired.withhold(slope, paired.NoTest.CHOICE) if slope and withheld else slope


def _swept_setting(design: RateDesign, *, over: bool = False) -> Setting:
    first, last = design.curves[0], design.curves[-1]
    shape = "lopsided" if first.lopsided else "parabolas"
    shape += f", curvatures x{last.curvature / first.curvature:g}" if last.curvature != first.curvature else ""
    apart = last.optimum - first.optimum
    optima = f"optima over {apart:.1g} decades" if apart else "equal optima"
    name = f"{len(design.curves) - 1} cells, sweep {design.rates} x {design.seeds}"
    return Setting(f"{shape}, {optima}", name, partial(swept_trends if over else moderated_sweeps, design))


def _lopsided(comparisons: int) -> tuple[Curve, ...]:
    """Return lopsided curves of a baseline and its comparisons, of rising curvature and with optima next to each other."""
    shares = [cell / comparisons for cell in range(comparisons + 1)]
    return tuple(Curve(0.5 * 2**share, optimum=APART * (share - 0.5), lopsided=1.0) for share in shares)


SWEPT = [
    *(RateDesign(3, seeds, (Curve(),) * 4) for seeds in (3, 5)),
    *(RateDesign(3, seeds, _lopsided(comparisons)) for seeds, comparisons in ((2, 6), (3, 3), (3, 6), (5, 6))),
    *(RateDesign(5, seeds, _lopsided(comparisons)) for seeds, comparisons in ((3, 3), (5, 6))),
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

MODERATED_SWEEPS = Simulation(
    "moderated-sweeps",
    "Moderated t-tests of swept learning rates",
    """\
Tables of cells whose learning rates are swept over one grid, as above, compared at the best of the rates tried, which are
equally good. The optima lie evenly spread over 0.2 decades, or are equal. Curvatures are equal, or rise to twice that of the
baseline.""",
    settings=[_swept_setting(design) for design in SWEPT],
    quantities=(FALSE, COVERED, Quantity("false, plain", "false verdicts of plain t-tests"), NO_VERDICT),
    studies=2_000,
    hard={"sweeps in tables, curvatures that differ by 2": ("false", "curvatures x2")},
)

SWEPT_TRENDS = Simulation(
    "swept-trends",
    "Trends of swept learning rates",
    """\
The same tables, swept at each of three levels (`sweep:` and `over:`). The spread of a run falls to a third from the lowest
level to the highest, and the place of the optima in the grid changes. A trend is false, because the best of the rates tried
are equally good; where a difference at a level is withheld, none is tested.""",
    settings=[_swept_setting(RateDesign(rates, seeds, _lopsided(2)), over=True) for rates in (3, 5) for seeds in (3, 5, 12)],
    quantities=(Quantity(FALSE.name, "false trends", level=0.05, limit=0.06), NO_VERDICT),
    studies=2_000,
    hard={"trends of sweeps, curvatures that differ by 2": ("false", "curvatures x2")},
)
