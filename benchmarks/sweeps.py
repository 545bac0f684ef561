"""Simulated studies whose cells need a learning rate: found by a search in each cell, or swept over one shared grid.

A search chooses the best of four trials of one seed and confirms it with other seeds, as studies with ``search`` do. A sweep
trains every rate with every seed, extends the grid as studies with ``sweep`` do, and compares cells at the best of the rates
tried, with the seeds of its list or with one look at each number of seeds. Many studies are simulated at once;
`tests/benchmarks/test_sweeps.py` compares their verdicts with those of `attnlab.stats.compare`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy

from attnlab.stats.paired import LEVEL
from attnlab.stats.sequential import Looks
from benchmarks.simulation import FALSE, POWER, Kind, Quantity, Setting, Share, Simulation
from benchmarks.table_tests import t_tests

FACTOR_2 = math.log10(2)  # decades between two rates of a sweep, by default
EXTENSIONS = 4  # rates that a sweep adds on one side at most
RANGE = 2.0  # decades that a search covers, with the optima in the middle half
QUASI_RANDOM = (0.0, 0.5, 0.75)  # trials of Optuna's QMCSampler after the first, which is random
APART = 0.2  # decades between the optima of two cells
STUDIES = 20_000  # of each setting
CHUNK = 2_000  # studies in memory at once
EFFECT = 2.0  # true difference in the lines on power, in standard deviations of a run
MARGIN = 2.5  # likewise


@dataclass(frozen=True)
class Curve:
    """The expected loss of a cell above its lowest, over the distance of the rate from the optimum in decades.

    Attributes:
        curvature: Loss one decade from the optimum of a parabola.
        optimum: Decades from the middle of the optima.
        lopsided: Steepness; 0 is a parabola, at 1 the loss a decade above the optimum is twice that a decade below.
        cubic: Further loss one decade above the optimum, which grows with the third power of the distance.
        wall: Decades above the optimum, or below if negative, from which on the loss has an `excess` and rises by 1 per decade.
        excess: Height of the wall.
        diverging: Decades above the optimum from which on runs diverge.
        plateau: Decades on each side of the optimum in which all rates are equally good.
    """

    curvature: float = 0.5
    optimum: float = 0.0
    lopsided: float = 0.0
    cubic: float = 0.0
    wall: float = math.inf
    excess: float = 0.0
    diverging: float = math.inf
    plateau: float = 0.0

    def losses(self, distances: numpy.ndarray) -> numpy.ndarray:
        """Return the expected losses; infinite where runs diverge."""
        x = numpy.sign(distances) * numpy.maximum(abs(distances) - self.plateau, 0)
        slope = self.lopsided * x
        losses = self.curvature * (2 / self.lopsided**2 * (numpy.exp(slope) - slope - 1) if self.lopsided else x**2)
        losses = losses + self.cubic * numpy.maximum(x, 0) ** 3
        beyond = (distances - self.wall) if self.wall > 0 else (self.wall - distances)
        losses = losses + numpy.where(beyond > 0, self.excess + beyond, 0)
        return numpy.where(distances >= self.diverging, numpy.inf, losses)


@dataclass(frozen=True)
class RateDesign:
    """A design and the curves that it meets.

    Attributes:
        rates: Rates of the sweep's first grid; 0 for a search.
        seeds: Seeds of the comparison.
        curves: Of the cells; all have the same lowest loss. The first one is the baseline.
        spread: Standard deviation of a run at the optimum.
        growth: Factor on the spread of a run, for each decade above the optimum.
        spacing: Decades between two rates of a sweep.
        last: A sweep is judged at each number of seeds from `seeds` to this one, until it has a verdict; 0: at `seeds` alone.
        at_optima: The lowest points of the curves count, at rates that may not have been tried, rather than the best tried.
    """

    rates: int
    seeds: int
    curves: tuple[Curve, ...] = (Curve(), Curve())
    spread: float = 0.02
    growth: float = 1.0
    spacing: float = FACTOR_2
    last: int = 0
    at_optima: bool = False

    @property
    def looks(self) -> Looks | None:
        """The looks of a sweep that is judged more than once."""
        return Looks(self.seeds, self.last) if self.last else None

    def setting(self, group: str) -> Setting:
        """The setting of these studies."""
        seeds = f"{self.seeds} to {self.last}" if self.last else str(self.seeds)
        spacing = "" if self.spacing == FACTOR_2 else f", a factor of {10**self.spacing:.2g}"
        name = f"sweep {self.rates} x {seeds}{spacing}" if self.rates else f"search 4, {seeds} seeds"
        reason = "a difference between the best rates tried, read as one between optima" if self.at_optima else ""
        reason = reason if self.rates else "a learning rate that was searched for each cell"
        return Setting(group, name, partial(compared_rates if self.rates else searched_rates, self), reason)


@dataclass(frozen=True)
class Sweeps:
    """Many studies at one look. Arrays begin with (studies, cells).

    Attributes:
        runs: Losses of all runs up to this look (rates x seeds); infinite where runs diverged.
        tried: True for the rates that the study has trained.
        at_best: Losses of the seeds at the best rate tried, by the mean over seeds.
        crossed: The same, each at the rate that is best for the other seeds.
        expected: Expected loss at the truly best of the rates tried.
        inside: True for cells whose best rate is neither the smallest nor the largest tried.
    """

    runs: numpy.ndarray
    tried: numpy.ndarray
    at_best: numpy.ndarray
    crossed: numpy.ndarray
    expected: numpy.ndarray
    inside: numpy.ndarray


def sweep(design: RateDesign, studies: int, random: numpy.random.RandomState, *, spread: float = 1.0) -> Iterator[Sweeps]:
    """Yield studies at each look; their grids are extended while the best rate of a cell is at an end.

    Args:
        design: The grid, the seeds, and the curves.
        studies: Number of studies.
        random: Source of the noise, and of the place of the optima in the grid.
        spread: Standard deviation of a run, in that of the design.
    """
    number, most = design.rates + 2 * EXTENSIONS, max(design.seeds, design.last)
    middle = design.spacing * random.uniform(-0.5, 0.5, (studies, 1, 1))
    optima = numpy.array([curve.optimum for curve in design.curves])[:, None]
    distances = design.spacing * (numpy.arange(number) - (number - 1) / 2) - middle - optima
    expected = numpy.stack([curve.losses(distances[:, i]) for i, curve in enumerate(design.curves)], axis=1)
    scatter = spread * design.spread * design.growth ** numpy.clip(distances, -2, 2)
    runs = expected[..., None] + scatter[..., None] * random.standard_normal((*distances.shape, most))
    tried = numpy.zeros((studies, number), dtype=bool)
    tried[:, EXTENSIONS : EXTENSIONS + design.rates] = True
    for seeds in range(design.seeds, most + 1):
        yield _look(runs[..., :seeds], expected, tried)


def _look(runs: numpy.ndarray, expected: numpy.ndarray, tried: numpy.ndarray) -> Sweeps:
    """Extend the rates tried, in place, and return the studies there."""
    number, means = tried.shape[1], runs.mean(3)
    for _ in range(2 * EXTENSIONS + 1):
        low, high = tried.argmax(1), number - 1 - tried[:, ::-1].argmax(1)
        best = numpy.where(tried[:, None], means, numpy.inf).argmin(2)
        largest, smallest = (best == high[:, None]).any(1) & (high < number - 1), (best == low[:, None]).any(1) & (low > 0)
        smallest &= ~largest
        tried[largest, high[largest] + 1] = True
        tried[smallest, low[smallest] - 1] = True
        if not (largest | smallest).any():
            break
    usable = tried[:, None] & numpy.isfinite(means)
    others = numpy.where(usable[..., None], runs.sum(3, keepdims=True) - numpy.where(usable[..., None], runs, 0), numpy.inf)
    masked = numpy.where(tried[:, None, :, None], runs, numpy.inf)
    return Sweeps(
        runs,
        tried.copy(),
        numpy.take_along_axis(masked, best[..., None, None], 2)[:, :, 0],
        numpy.take_along_axis(masked, others.argmin(2)[:, :, None], 2)[:, :, 0],
        numpy.where(tried[:, None], expected, numpy.inf).min(2),
        (best != low[:, None]) & (best != high[:, None]),
    )


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on each cell but the first, in the shape (studies, cells - 1)."""

    better: numpy.ndarray
    worse: numpy.ndarray
    equivalent: numpy.ndarray

    @property
    def differs(self) -> numpy.ndarray:
        """True for verdicts of better or worse."""
        return self.better | self.worse


def judge(sweeps: Sweeps, shift: float | numpy.ndarray, margin: float, looks: Looks | None = None) -> Verdicts:
    """Return the verdicts on cells whose losses are shifted, each tested alone; both readings must give the same.

    Args:
        sweeps: Studies at one look.
        shift: Added to the losses of all cells but the first.
        margin: Largest difference that counts as equivalent.
        looks: Looks at which the studies are judged.
    """
    readings = []
    for values in (sweeps.at_best, sweeps.crossed):
        with numpy.errstate(invalid="ignore"):
            differences = values[:, 1:] - values[:, :1] + numpy.asarray(shift)[..., None]
        differences = numpy.where(numpy.isfinite(differences), differences, 0.0)
        tests = t_tests(differences.reshape(-1, 1, differences.shape[2]), margin=margin, looks=looks)
        p, p_equivalent = (x.reshape(differences.shape[:2]) for x in (tests.p, tests.p_equivalent))
        readings.append((differences.mean(2), p < LEVEL, p_equivalent < LEVEL))
    (mean, differs, near), (other_mean, other_differs, other_near) = readings
    judged = sweeps.inside[:, 1:] & sweeps.inside[:, :1]
    agree = judged & differs & other_differs & (mean * other_mean > 0)
    return Verdicts(agree & (mean < 0), agree & (mean > 0), judged & near & ~differs & other_near)


def compared_rates(design: RateDesign, studies: int, seed: int) -> Mapping[str, Share]:
    """Return the shares of false and of true verdicts on the last cell.

    Where a verdict is false by construction, the last cell is shifted so that the best of its tried rates equals the best of
    the other's, unless the lowest points of the curves count, which are equal.
    """
    random, margin, effect = numpy.random.RandomState(seed), MARGIN * design.spread, EFFECT * design.spread
    shifts = {"false": 0.0, "lower": -margin, "upper": margin, "better": -effect, "worse": effect}
    counts: dict[str, float] = dict.fromkeys((*shifts, "equivalence"), 0)
    for first in range(0, studies, CHUNK):
        some = min(CHUNK, studies - first)
        found = {name: numpy.zeros(some, dtype=bool) for name in counts}
        for look in sweep(design, some, random):
            equal = 0.0 if design.at_optima else look.expected[:, :1] - look.expected[:, 1:]
            verdicts = {name: judge(look, equal + shift, margin, design.looks) for name, shift in shifts.items()}
            found["false"] |= verdicts["false"].differs[:, -1]
            found["equivalence"] |= verdicts["false"].equivalent[:, -1]
            found["lower"] |= verdicts["lower"].equivalent[:, -1]
            found["upper"] |= verdicts["upper"].equivalent[:, -1]
            found["better"] |= verdicts["better"].better[:, -1]
            found["worse"] |= verdicts["worse"].worse[:, -1]
        counts = {name: count + int(found[name].sum()) for name, count in counts.items()}
    counts["false equivalence"] = max(counts.pop("lower"), counts.pop("upper"))
    counts["power"] = (counts.pop("better") + counts.pop("worse")) / 2
    return {name: Share(count, studies) for name, count in counts.items()}


def searched_rates(design: RateDesign, studies: int, seed: int) -> Mapping[str, Share]:
    """Search the rate of each cell in four trials of one seed, and compare other seeds at the rates that were chosen."""
    random = numpy.random.RandomState(seed)
    middle = RANGE / 2 + random.uniform(-RANGE / 4, RANGE / 4, (studies, 1))
    values = []
    for curve in design.curves:
        trials = RANGE * numpy.concatenate([random.uniform(size=(studies, 1)), numpy.tile(QUASI_RANDOM, (studies, 1))], axis=1)
        expected = curve.losses(trials - middle - curve.optimum)
        chosen = (expected + design.spread * random.standard_normal(trials.shape)).argmin(1)
        at_chosen = numpy.take_along_axis(expected, chosen[:, None], 1)
        values.append(at_chosen + design.spread * random.standard_normal((studies, design.seeds)))
    differences = (values[1] - values[0])[:, None]
    false, found = (Share(t_tests(differences + shift).differs.sum(), studies) for shift in (0.0, EFFECT * design.spread))
    return {"false": false, "power": found, **dict.fromkeys(("false equivalence", "equivalence"), Share(0, 0))}


GRIDS = ((3, 3), (3, 5), (3, 10), (4, 7), (5, 3), (5, 5), (5, 10))  # rates, seeds
LOPSIDED = Curve(1.0, lopsided=1.0)
FLAT = Curve(0.1)


def _apart(decades: float, first: Curve, last: Curve) -> tuple[Curve, ...]:
    return (replace(first, optimum=-decades / 2), replace(last, optimum=decades / 2))


SHAPES: dict[str, tuple[Curve, ...]] = {  # group -> the curves of its two cells
    "parabolas": (Curve(), Curve()),
    "parabolas 0.1 decades apart": _apart(0.1, Curve(), Curve()),
    "parabolas 0.3 decades apart, curvature x2": _apart(0.3, Curve(), Curve(1.0)),
    "parabolas, curvature x2": (Curve(), Curve(1.0)),
    "lopsided 0.3 decades apart, curvature x2": _apart(0.3, replace(LOPSIDED, curvature=0.5), LOPSIDED),
    "very lopsided 0.3 decades apart": _apart(0.3, Curve(lopsided=2.0), Curve(0.75, lopsided=2.0)),
    "cubic rise of one cell": _apart(0.1, Curve(), Curve(cubic=2.0)),
    **{
        f"flat, then a wall {wall} above, excess {excess}": (FLAT, replace(FLAT, wall=wall, excess=excess))
        for wall in (0.15, 0.3)
        for excess in (0.03, 0.1, 0.3)
    },
    "walls 0.15 and 0.3 above": (replace(FLAT, wall=0.3, excess=0.1), replace(FLAT, wall=0.15, excess=0.1)),
    "a cliff 0.2 below": (FLAT, replace(FLAT, wall=-0.2, excess=0.1)),
    "diverging 0.15 above": (FLAT, replace(FLAT, diverging=0.15)),
    "diverging 0.3 above": (Curve(), Curve(diverging=0.3)),
    "several equal rates against one": (Curve(20.0, plateau=0.6), Curve(20.0)),
    "several equal rates": (Curve(20.0, plateau=0.6), Curve(20.0, plateau=0.6)),
}
GROWTHS = {"spread x2 per decade": (2.0, (Curve(lopsided=1.0), LOPSIDED)), "spread x10 per decade": (10.0, (FLAT, FLAT))}


def _settings() -> list[Setting]:
    """Return the simulated settings."""
    shaped = [(name, 1.0, curves) for name, curves in SHAPES.items()]
    settings = []
    for name, growth, curves in shaped + [(name, *shape) for name, shape in GROWTHS.items()]:
        quiet = "flat" in name or "wall" in name or "cliff" in name
        design = RateDesign(0, 0, curves, spread=0.004 if quiet else 0.02, growth=growth)
        designs = [replace(design, rates=rates, seeds=seeds) for rates, seeds in GRIDS]
        designs += [replace(design, rates=3, seeds=5, spacing=0.5), replace(design, rates=8, seeds=5, spacing=FACTOR_2 / 2)]
        designs.append(replace(design, rates=4, seeds=3, last=12))
        settings += [each.setting(name) for each in designs]
    curves = _apart(0.1, Curve(), Curve(1.0))
    for spread in (0.05, 0.02, 0.004):
        for spacing in (0.5, FACTOR_2, FACTOR_2 / 2):
            design = RateDesign(4, 5, curves, spread=spread, spacing=spacing, at_optima=True)
            settings.append(design.setting(f"at the optima, standard deviation {spread}"))
    searched = {"a search, equal optima": 0.0, "a search, optima 0.2 decades apart": APART}
    return settings + [
        RateDesign(0, n, _apart(apart, Curve(), Curve())).setting(group)
        for group, apart in searched.items()
        for n in (5, 12, 30)
    ]


SWEEPS = Simulation(
    "learning-rates",
    "The choice of the learning rate",
    f"""\
Two cells. “Sweep 3 x 5” trains 3 rates, a factor of 2 apart where no other factor is stated, with 5 seeds; “sweep 4 x 3 to 12”
as many as a verdict needs, with a look at each number. The grid is extended while the best rate of a cell is at its edge. Each
cell is compared at the best of the rates tried, by the mean over seeds; a verdict that each seed at the best rate for the
*other* seeds does not show is withheld. What is estimated is the difference between the best of the rates tried: the last cell
is shifted so that it is zero, or the margin ({MARGIN:g} standard deviations of a run), or {EFFECT:g} of them in the lines on
power. The optima lie at any place between two rates. Parabolas have a loss of 0.5 one decade from the optimum, flat ones 0.1;
“lopsided” ones twice as much above as below, “very lopsided” four times. The standard deviation of a run is 0.02, with walls
and cliffs 0.004. “Several equal rates”: all rates within 0.6 decades are equally good. “At the optima”: a verdict counts as
false where the lowest points of the two curves (curvature x2, 0.1 decades apart) are equal, at rates that may not have been
tried. “Search 4, 5 seeds” chooses the best of four trials of one seed in each cell (the trials of Optuna's QMCSampler, over
two decades) and compares 5 other seeds at the chosen rates.""",
    settings=_settings(),
    quantities=(
        FALSE,
        Quantity("false equivalence", "false verdicts of equivalent", level=0.05, limit=0.06),
        POWER,
        Quantity("equivalence", "equal cells found equivalent", Kind.POWER),
    ),
    studies=STUDIES,
    conclusion="""\
Before, cells were compared at the lowest point of a polynomial through five rates, and a verdict also needed the difference at
the best rates tried. Both rules side by side, on 1,200 studies of each setting (standard errors of 0.6 %; 3 to 8 rates, a
factor of 1.4 to 3.2 apart, 3 to 10 seeds, standard deviations of 0.004 to 0.05), in percent: the most false verdicts / false
verdicts of equivalent of a shape, and the mean power and equivalence found. Each rule is measured at what it estimates, the
optimum before and the best of the tried rates now.

| shape | false, before | now | power, before | now | equivalence, before | now |
| --- | --- | --- | --- | --- | --- | --- |
| a cliff 0.2 below | 3 / 3 | 5 / 2 | 48 | 60 | 37 | 64 |
| cubic rise of one cell | 24 / 13 | 6 / 3 | 55 | 66 | 55 | 74 |
| curvature x25 | 6 / 4 | 5 / 2 | 63 | 67 | 66 | 70 |
| diverging 0.15 above | 2 / 1 | 5 / 2 | 34 | 68 | 39 | 71 |
| diverging 0.3 above | 4 / 2 | 6 / 2 | 53 | 68 | 61 | 74 |
| lopsided 0.3 apart, curvature x2 | 6 / 2 | 6 / 2 | 61 | 72 | 61 | 77 |
| parabolas | 4 / 2 | 7 / 3 | 66 | 66 | 76 | 72 |
| parabolas 0.1 apart | 4 / 2 | 6 / 3 | 62 | 70 | 65 | 75 |
| parabolas 0.3 apart | 4 / 2 | 6 / 3 | 58 | 64 | 63 | 70 |
| parabolas 0.3 apart, curvature x2 | 4 / 2 | 6 / 3 | 56 | 66 | 57 | 73 |
| parabolas, curvature x2 | 5 / 2 | 6 / 3 | 58 | 64 | 62 | 70 |
| spread x10 per decade | 4 / 1 | 6 / 2 | 49 | 44 | 58 | 46 |
| spread x2 per decade, curvature x2 | 5 / 2 | 6 / 2 | 62 | 68 | 65 | 74 |
| very lopsided 0.3 apart | 34 / 7 | 6 / 2 | 57 | 66 | 60 | 73 |
| a wall 0.15, excess 0.03 | 6 / 2 | 5 / 2 | 53 | 64 | 46 | 69 |
| a wall 0.15, excess 0.1 | 7 / 5 | 5 / 2 | 45 | 60 | 30 | 66 |
| a wall 0.15, excess 0.3 | 3 / 3 | 6 / 2 | 44 | 65 | 22 | 67 |
| a wall 0.3, excess 0.03 | 3 / 4 | 5 / 2 | 55 | 62 | 51 | 66 |
| a wall 0.3, excess 0.1 | 3 / 3 | 6 / 2 | 52 | 59 | 46 | 64 |
| a wall 0.3, excess 0.3 | 4 / 3 | 5 / 2 | 47 | 65 | 28 | 68 |
| walls 0.15 and 0.3 above | 10 / 4 | 6 / 2 | 51 | 62 | 41 | 66 |

Other rules, over all of these shapes: one parabola through the three rates around the best, with the same second reading, 70 %
false verdicts at most, power 55 %; the polynomial alone 100 %. Each seed at the rate that the other seeds choose, without the
first reading: 24 %, because seeds that choose for each other depend on each other. The best rates tried, without the second
reading: 7 % (power 69 %, with it 64 %), but 9 and 11 % where 5 or 8 equal rates of one cell meet a single one of the other.
After a search, false verdicts become more frequent with more seeds, because the luck of the search is the same in all of
them.""",
    hard={
        "sweeps, parabolas whose curvature differs up to 2 times": ("false", "parabolas"),
        "sweeps, lopsided curves": ("false", "lopsided"),
        "sweeps, a cubic rise": ("false", "cubic"),
        "sweeps, flat, then a wall": ("false", "wall"),
        "the same, equivalence": ("false equivalence", "wall"),
        "sweeps, a cliff below": ("false", "cliff"),
        "sweeps, diverging rates": ("false", "diverging"),
        "sweeps, noise that grows with the rate": ("false", "spread x"),
        "sweeps, several equal rates": ("false", "equal rates"),
    },
)
