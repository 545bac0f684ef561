"""Effects of a factorial study: main effects and interactions, estimated by least squares with seeds as blocks.

Each effect is estimated from all runs (`attnlab.config.design` defines the terms) and computed in every seed. A verdict
needs two tests below 5 %, like any other (`attnlab.stats.paired`):

- the t-test of the effect alone: its scatter over the seeds, as for a paired difference, with n - 1 degrees of freedom for n
  seeds.
- the test of its family, main effects or interactions, corrected by Holm's method over the family. Its error is the residual
  of the linear model with cells and seeds as blocks: if runs scatter independently, all effects have one variance up to a known
  factor, and with 16 cells and 3 seeds the residual has 30 degrees of freedom. A factor that changes the initial values makes
  its main effect scatter more. Where the main effects scatter more over the seeds than the residual says, their mean variance
  is the error (`FamilyError`). A main effect that scatters beyond chance more than the residual without main effects has mostly
  its own variance: the error then has the weight of at most 2 degrees of freedom. The error of interactions leaves out the
  scatter of main effects, and is otherwise found alike.

The residual by itself makes 11 to 45 % of false verdicts if one factor changes the runs of a seed more than the others do, and
the t-test of an effect alone finds few effects with 3 seeds (`benchmarks/factorial.py`). The correction for looks is in
`attnlab.stats.paired`.

Runs that are lost leave the design unbalanced. A lost run is then replaced by its least-squares prediction, which does not
change the least-squares estimates (Yates 1933), and the standard errors are increased to what they are for the completed runs.
An effect has no test when one of its sides lost a larger share of its runs than the other (`compare.MAX_LOST_SHARE`).
Effects that the completed runs do not determine are named.

References:
    Box, G. E. P., Hunter, J. S. and Hunter, W. G. (2005). Statistics for Experimenters, 2nd edition. Wiley.
    Yates, F. (1933). The analysis of replicated experiments when the field results are incomplete. Empire Journal of
    Experimental Agriculture 1, 129-142.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from attnlab.config.design import (
    Estimable,
    FactorialDesign,
    Point,
    Term,
    design_aliases,
    estimable_terms,
    model_columns,
    model_terms,
)
from attnlab.stats import paired
from attnlab.stats.compare import CellSummary, ComparisonSpec, lose_alike
from attnlab.stats.paired import LEVEL
from attnlab.stats.question import is_wide
from attnlab.stats.records import LOST_STATES
from attnlab.stats.variance_prior import VariancePrior
from attnlab.stats.verdict import Sensitivity, Verdict, VerdictKind, judge

if TYPE_CHECKING:
    import numpy

MAX_PRIOR = 2  # degrees of freedom of the error in the variance of an effect that scatters beyond chance
TOGETHER = "all together"
SMALLEST_WEIGHT = 1e-9  # of a cell in an effect; below it, the cell is on neither of the effect's sides
Run = tuple[Point, int, float]  # levels, seed, value


@dataclass(frozen=True)
class Effect:
    """An effect of a factorial study.

    Attributes:
        name: As in ``no_wo``, ``rotary instead of learned`` or ``no_wo × rotary``.
        is_main: True for main effects.
        values: Seed -> the effect in this seed, in the metric's unit: on minus off. With lost runs, their scatter is increased
            as for an estimate from the completed runs.
        difference: Mean and tests of `values`, corrected over all main effects or over all interactions.
        verdict: Better or worse with the factor on.
        aliases: (coefficient, name) of the effects that this estimate contains as well.
    """

    name: str
    is_main: bool
    values: Mapping[int, float]
    difference: paired.Difference
    verdict: Verdict
    aliases: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class FamilyError:
    """The variance that the effects of one family are tested with: of main effects, or of interactions.

    Attributes:
        variance: Of one run, in the metric's unit squared.
        degrees_of_freedom: Of the variance.
        rest: Variance of one run from the rest of the residual, without the scatter of the family.
        rest_degrees_of_freedom: Of that variance; 0 without a rest.
    """

    variance: float
    degrees_of_freedom: int
    rest: float = 0.0
    rest_degrees_of_freedom: int = 0

    def is_exceeded(self, variance: float, degrees_of_freedom: int) -> bool:
        """Return True for a variance of one run that exceeds the rest's beyond chance: an F-test at 5 %."""
        from scipy.special import fdtrc

        if not self.rest_degrees_of_freedom or not self.rest:
            return False
        return float(fdtrc(degrees_of_freedom, self.rest_degrees_of_freedom, variance / self.rest)) < LEVEL


@dataclass(frozen=True)
class FactorialResult:
    """The effects of a factorial study.

    Attributes:
        design: The factors and the cells.
        effects: Main effects, then interactions; those that the completed runs determine.
        missing: Names of the effects that the design estimates and the completed runs do not.
        runs: Number of completed runs.
        lost: State -> number of runs that ended without a result.
        problem: The reason if there are no effects, else "".
        errors: The errors of main effects (key True) and of interactions (False), as far as the effects are tested with them.
    """

    design: FactorialDesign
    effects: tuple[Effect, ...] = ()
    missing: tuple[str, ...] = ()
    runs: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""
    errors: Mapping[bool, FamilyError] = field(default_factory=dict)

    @property
    def main(self) -> list[Effect]:
        """The main effects."""
        return [effect for effect in self.effects if effect.is_main]

    @property
    def interactions(self) -> list[Effect]:
        """The interactions."""
        return [effect for effect in self.effects if not effect.is_main]


def estimate_effects(cells: Sequence[CellSummary], spec: ComparisonSpec) -> FactorialResult | None:
    """Estimate and test the effects of a study's factors; None for a study without factors.

    Args:
        cells: As `attnlab.stats.compare.summarize_cells` returns them.
        spec: The comparison that the study makes.
    """
    design = spec.factorial
    if design is None:
        return None
    lost: Counter[str] = Counter()
    for cell in cells:
        lost.update({str(state): count for state, count in cell.states.items() if state in LOST_STATES})
    runs = [(point, seed, value) for cell in cells for point in _points(cell, design) for seed, value in cell.values.items()]
    if len({cell.test for cell in cells if cell.values}) > 1:
        return FactorialResult(design, runs=len(runs), lost=lost, problem="the cells are not all tested on the same data")
    if not runs:
        return FactorialResult(design, lost=lost, problem="no run has completed")
    terms, planned = design_aliases(design, design.points)
    estimable, effects = seed_effects(design, runs)
    scale = median(abs(value) for _, _, value in runs)
    withheld = _unequal_losses(cells, design, estimable, [effect.name for effect in effects])
    errors = family_errors(design, runs) if spec.moderate else {}
    judged = _judged(effects, terms, estimable, spec, scale=scale, withheld=withheld, errors=errors)
    missing = tuple(terms[i].name for i in planned.kept if i not in estimable.kept)
    problem = "" if judged else "the completed runs determine no effect"
    return FactorialResult(design, tuple(judged), missing, len(runs), lost, problem, errors)


def _unequal_losses(
    cells: Sequence[CellSummary], design: FactorialDesign, estimable: Estimable, names: Sequence[str]
) -> frozenset[str]:
    """Return the effects with two sides that lost different shares of their runs: what is missing may be the worst."""
    import numpy

    placed = [(point, cell) for cell in cells for point in _points(cell, design)]
    columns = model_columns(design, model_terms(design), [point for point, _ in placed])[:, list(estimable.kept)]
    contrasts = numpy.linalg.pinv(numpy.column_stack([numpy.ones(len(placed)), columns]))[1:]
    if TOGETHER in names:
        contrasts = numpy.vstack([contrasts, contrasts.sum(0)])
    lost = [len((cell.scores.keys() - cell.values.keys()) | cell.lost) for _, cell in placed]
    runs = [number + len(cell.values) for number, (_, cell) in zip(lost, placed, strict=True)]
    unequal = []
    for name, weights in zip(names, contrasts, strict=True):
        sides = weights > SMALLEST_WEIGHT, weights < -SMALLEST_WEIGHT
        of_side = [[int(numpy.sum(numpy.array(numbers)[side])) for side in sides] for numbers in (lost, runs)]
        if not lose_alike((of_side[0][0], of_side[0][1]), (of_side[1][0], of_side[1][1])):
            unequal.append(name)
    return frozenset(unequal)


def _points(cell: CellSummary, design: FactorialDesign) -> list[Point]:
    """Return the levels of a cell's factors; none if it is not a cell of the design."""
    try:
        return [tuple(factor.levels.index(cell.axes[factor.name]) for factor in design.factors)]
    except (KeyError, ValueError):
        return []


@dataclass(frozen=True)
class SeedEffect:
    """An effect in every seed.

    Attributes:
        name: Of the effect.
        values: Seed -> the effect. The mean over the seeds is its least-squares estimate.
        factor: Variance of a value over the variance of one run, if runs scatter independently.
    """

    name: str
    values: Mapping[int, float]
    factor: float = 1.0


def seed_effects(design: FactorialDesign, runs: Sequence[Run]) -> tuple[Estimable, list[SeedEffect]]:
    """Return the terms that the runs determine, and their effects in every seed."""
    import numpy

    seeds = sorted({seed for _, seed, _ in runs})
    points = sorted({point for point, _, _ in runs})
    terms, y = model_terms(design), numpy.array([value for _, _, value in runs])
    blocks = numpy.array([[float(seed == other) for other in seeds] for _, seed, _ in runs])
    columns = model_columns(design, terms, [point for point, _, _ in runs])
    estimable = estimable_terms(columns, blocks=blocks)
    kept = list(estimable.kept)
    names = [terms[i].name for i in kept]
    if not kept:
        return estimable, []
    # Each effect in each seed as weights of the runs: shape (seeds, effects, runs).
    at_points = model_columns(design, terms, points)[:, kept]
    contrasts = numpy.linalg.pinv(numpy.column_stack([numpy.ones(len(points)), at_points]))[1:]
    if design.name == "leave_one_out" and len(kept) == len(terms):
        contrasts = numpy.vstack([contrasts, contrasts.sum(0)])
        names.append(TOGETHER)
    completed = _completed_tables(runs, seeds, points, numpy.column_stack([blocks, columns[:, kept]]), at_points)
    weights = contrasts @ completed
    mean = weights.mean(0)
    estimates = weights @ y
    if len(seeds) > 1:
        center = estimates.mean(0)
        own = ((weights - mean) ** 2).sum((0, 2)) / (len(seeds) * (len(seeds) - 1))  # expected square of the standard error
        known = own > 1e-9 * (mean**2).sum(1)
        scale = numpy.sqrt((mean**2).sum(1) / numpy.where(known, own, 1.0))
        estimates = center + scale * (estimates - center)
        seeds_of = [seeds if ok else seeds[:1] for ok in known]  # no spread is known: one value, without a test
        estimates = numpy.where(known, estimates, center)
    else:
        seeds_of = [seeds] * len(names)
    factors = len(seeds) * (mean**2).sum(1)
    values = [{seed: float(estimates[s, e]) for s, seed in enumerate(known)} for e, known in enumerate(seeds_of)]
    return estimable, [
        SeedEffect(name, of_effect, float(factor)) for name, of_effect, factor in zip(names, values, factors, strict=True)
    ]


def family_errors(design: FactorialDesign, runs: Sequence[Run]) -> dict[bool, FamilyError]:
    """Return the errors of main effects (key True) and of interactions (False) that the runs determine.

    Three linear models leave ever smaller residuals: cells and seeds; main effects in every seed as well; and all effects in
    every seed. The differences of their sums of squares are the scatter of main effects and of interactions over the seeds.
    """
    import numpy

    terms = model_terms(design)
    points, seeds = sorted({point for point, _, _ in runs}), sorted({seed for _, seed, _ in runs})
    y = numpy.array([value for _, _, value in runs])
    cells = numpy.array([[float(point == other) for other in points] for point, _, _ in runs])
    blocks = numpy.array([[float(seed == other) for other in seeds] for _, seed, _ in runs])
    columns = model_columns(design, terms, [point for point, _, _ in runs])
    is_main = numpy.array([term.is_main for term in terms])

    def residual(chosen: numpy.ndarray) -> tuple[float, int]:
        """Return the sum of squares and the degrees of freedom that a model with these terms in every seed leaves."""
        in_seeds = [blocks * column[:, None] for column in columns[:, chosen].T]
        model = numpy.column_stack([cells, blocks, *in_seeds])
        solution, _, rank, _ = numpy.linalg.lstsq(model, y, rcond=None)
        return float(((y - model @ solution) ** 2).sum()), len(y) - int(rank)

    left = [residual(chosen) for chosen in (numpy.zeros(len(terms), bool), is_main, numpy.ones(len(terms), bool))]
    errors = {main: _family_error(*pair) for main, pair in ((True, left[:2]), (False, left[1:]))}
    return {main: error for main, error in errors.items() if error is not None}


def _family_error(every: tuple[float, int], rest: tuple[float, int]) -> FamilyError | None:
    """Return the error of a family from the sums of squares, with their degrees of freedom, with and without its scatter."""
    squares, degrees_of_freedom = every[0] - rest[0], every[1] - rest[1]
    if degrees_of_freedom <= 0 or every[0] <= 0:
        return None
    residual, of_family = every[0] / every[1], squares / degrees_of_freedom
    without = (rest[0] / rest[1], rest[1]) if rest[1] else (0.0, 0)
    if of_family > residual:
        return FamilyError(of_family, degrees_of_freedom, *without)
    return FamilyError(residual, every[1], *without)


def _completed_tables(
    runs: Sequence[Run], seeds: Sequence[int], points: Sequence[Point], model: numpy.ndarray, at_points: numpy.ndarray
) -> numpy.ndarray:
    """Return the values of all points in all seeds as weights of the runs: shape (seeds, points, runs).

    A run has weight 1 on itself; a missing one has the weights of its least-squares prediction.
    """
    import numpy

    solve = numpy.linalg.pinv(model)
    tables = numpy.zeros((len(seeds), len(points), len(runs)))
    for s in range(len(seeds)):
        block = numpy.zeros((len(points), len(seeds)))
        block[:, s] = 1
        tables[s] = numpy.column_stack([block, at_points]) @ solve
    for i, (point, seed, _) in enumerate(runs):
        tables[seeds.index(seed), points.index(point)] = 0
        tables[seeds.index(seed), points.index(point), i] = 1
    return tables


def _judged(
    found: Sequence[SeedEffect],
    terms: Sequence[Term],
    estimable: Estimable,
    spec: ComparisonSpec,
    *,
    scale: float,
    withheld: frozenset[str],
    errors: Mapping[bool, FamilyError],
) -> list[Effect]:
    """Return the effects with their tests, corrected over the main effects and over the interactions."""
    contained: dict[str, list[tuple[float, str]]] = {}
    for term, kept in estimable.aliases.items():
        for i, weight in kept.items():
            contained.setdefault(terms[i].name, []).append((weight, terms[term].name))
    main = {term.name for term in terms if term.is_main} | {TOGETHER}
    effects = []
    for is_main in (True, False):
        family = [effect for effect in found if (effect.name in main) is is_main]
        without_test = [effect.name in withheld for effect in family]
        differences = judge_family(family, spec, scale=scale, withheld=without_test, error=errors.get(is_main))
        for effect, difference in zip(family, differences, strict=True):
            verdict = judge(difference, direction=spec.direction)
            if verdict.kind is VerdictKind.EQUIVALENT and is_wide(spec.margin, [scale], metric=spec.metric):
                verdict = replace(verdict, sensitivity=Sensitivity.WIDE_MARGIN)
            aliases = tuple(contained.get(effect.name, ()))
            effects.append(Effect(effect.name, is_main, effect.values, difference, verdict, aliases))
    return effects


def judge_family(
    family: Sequence[SeedEffect],
    spec: ComparisonSpec,
    *,
    scale: float,
    withheld: Sequence[bool] = (),
    error: FamilyError | None = None,
) -> list[paired.Difference]:
    """Test effects, corrected over all of them, in the order given.

    Args:
        family: The effects in every seed.
        spec: The comparison that the study makes.
        scale: Size of the metric, which decides what is noise.
        withheld: True for each effect if its sides lost different shares of their runs; default: none.
        error: The error of the family; None: each effect has a separate one.
    """
    differences: list[paired.Difference | None] = []
    for i, effect in enumerate(family):
        zero, scales = dict.fromkeys(effect.values, 0.0), dict.fromkeys(effect.values, scale)
        difference = paired.difference(effect.values, zero, margin=spec.margin, looks=spec.looks, scales=scales)
        if difference is not None and len(effect.values) > 1 and withheld and withheld[i]:
            difference = paired.withhold(difference, paired.NoTest.LOSSES)
        if difference is not None and error is not None and difference.p is not None and difference.interval.sd:
            prior = _prior(difference.interval, error, effect.factor)
            difference = paired.moderated_t_test(difference, prior) if prior else difference
        differences.append(difference)
    return [difference for difference in paired.correct(differences) if difference is not None]


def _prior(mean: paired.Interval, error: FamilyError, factor: float) -> VariancePrior | None:
    """Return the prior with which the moderated variance of an effect is the error of its family.

    It is the part of the error that the scatter of the effect itself does not contribute, with less weight for an effect that
    scatters beyond chance.
    """
    own, every = mean.n - 1, error.degrees_of_freedom
    if every <= own:
        return None
    assert mean.sd is not None
    variance = max(0.0, (every * factor * error.variance - own * mean.sd**2) / (every - own))
    most = MAX_PRIOR if _scatters(mean, error, factor) else every
    return VariancePrior(min(most, every - own), variance)


def _scatters(mean: paired.Interval, error: FamilyError, factor: float) -> bool:
    """Return True for an effect that scatters over the seeds more than the rest of the residual, beyond chance."""
    return bool(mean.sd) and error.is_exceeded((mean.sd or 0.0) ** 2 / factor, mean.n - 1)
