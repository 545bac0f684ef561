"""Effects of a factorial study: main effects and interactions, estimated by least squares with seeds as blocks.

Each effect is estimated from all runs (`attnlab.config.linear_model` defines the terms), and tested over the seeds: it is
computed in every seed, and its standard error comes from its scatter over them, like that of a paired difference. The residual
of the linear model, pooled over all effects, has more degrees of freedom, but assumes that every factor changes the runs of a
seed equally much. A factor that changes the initial values, and another one that hardly changes a run, violate that: with a
pooled residual, 11 to 45 % of simulated designs without any effect then have a false verdict (`benchmarks/factorial.py`). Main
effects, and interactions, borrow from each other's variances (`attnlab.stats.moderation`) and are corrected by Holm's method
each; this and the correction for looks are those of `attnlab.stats.paired`.

Runs that are lost leave the design unbalanced. A lost run is then replaced by its least-squares prediction, which does not
change the least-squares estimates (Yates 1933), and the standard errors are increased to what they are for the completed runs.
An effect one of whose sides lost a larger share of its runs than the other (`compare.MAX_LOST_SHARE`) has no test.
Effects that the completed runs do not determine are named.

References:
    Box, G. E. P., Hunter, J. S. and Hunter, W. G. (2005). Statistics for Experimenters, 2nd edition. Wiley.
    Yates, F. (1933). The analysis of replicated experiments when the field results are incomplete. Empire Journal of
    Experimental Agriculture 1, 129-142.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from attnlab.config.design import FactorialDesign, Point
from attnlab.config.linear_model import Estimable, Term, design_aliases, estimable_terms, model_columns, model_terms
from attnlab.stats import paired
from attnlab.stats.compare import CellSummary, ComparisonSpec, lose_alike
from attnlab.stats.margin import is_wide
from attnlab.stats.moderation import moderate
from attnlab.stats.records import LOST_STATES
from attnlab.stats.verdict import Sensitivity, Verdict, VerdictKind, judge

if TYPE_CHECKING:
    import numpy

# Degrees of freedom of the prior in a moderated t-test. The variances of effects differ more than those of a table's
# comparisons, which share their baseline: with 4, 7 % of simulated fractions have a false verdict if one factor changes the
# runs of a seed.
MAX_PRIOR = 3
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
            to that of an estimate from the completed runs.
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
class FactorialResult:
    """The effects of a factorial study.

    Attributes:
        design: The factors and the cells.
        effects: Main effects, then interactions; those that the completed runs determine.
        missing: Names of the effects that the design estimates and the completed runs do not.
        runs: Number of completed runs.
        lost: State -> number of runs that ended without a result.
        problem: The reason if there are no effects, else "".
    """

    design: FactorialDesign
    effects: tuple[Effect, ...] = ()
    missing: tuple[str, ...] = ()
    runs: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""

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
    estimable, names, values = seed_effects(design, runs)
    scale = median(abs(value) for _, _, value in runs)
    withheld = _unequal_losses(cells, design, estimable, names)
    effects = _judged(names, values, terms, estimable, spec, scale=scale, withheld=withheld)
    missing = tuple(terms[i].name for i in planned.kept if i not in estimable.kept)
    problem = "" if effects else "the completed runs determine no effect"
    return FactorialResult(design, tuple(effects), missing, len(runs), lost, problem)


def _unequal_losses(
    cells: Sequence[CellSummary], design: FactorialDesign, estimable: Estimable, names: Sequence[str]
) -> frozenset[str]:
    """Return the effects whose two sides lost different shares of their runs: what is missing may be the worst."""
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


def seed_effects(design: FactorialDesign, runs: Sequence[Run]) -> tuple[Estimable, list[str], list[dict[int, float]]]:
    """Return the terms that the runs determine, the names of their effects, and for each effect its value in every seed.

    The mean of an effect over the seeds is its least-squares estimate.
    """
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
        return estimable, [], []
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
    return (
        estimable,
        names,
        [{seed: float(estimates[s, e]) for s, seed in enumerate(known_seeds)} for e, known_seeds in enumerate(seeds_of)],
    )


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
    names: Sequence[str],
    values: Sequence[Mapping[int, float]],
    terms: Sequence[Term],
    estimable: Estimable,
    spec: ComparisonSpec,
    *,
    scale: float,
    withheld: frozenset[str],
) -> list[Effect]:
    """Return the effects with their tests, corrected over the main effects and over the interactions."""
    contained: dict[str, list[tuple[float, str]]] = {}
    for term, kept in estimable.aliases.items():
        for i, weight in kept.items():
            contained.setdefault(terms[i].name, []).append((weight, terms[term].name))
    main = {term.name for term in terms if term.is_main} | {TOGETHER}
    effects = []
    for is_main in (True, False):
        family = [i for i, name in enumerate(names) if (name in main) is is_main]
        without_test = [names[i] in withheld for i in family]
        differences = judge_family([values[i] for i in family], spec, scale=scale, withheld=without_test)
        for i, difference in zip(family, differences, strict=True):
            verdict = judge(difference, direction=spec.direction)
            if verdict.kind is VerdictKind.EQUIVALENT and is_wide(spec.margin, [scale], metric=spec.metric):
                verdict = replace(verdict, sensitivity=Sensitivity.WIDE_MARGIN)
            effects.append(Effect(names[i], is_main, values[i], difference, verdict, tuple(contained.get(names[i], ()))))
    return effects


def judge_family(
    family: Sequence[Mapping[int, float]], spec: ComparisonSpec, *, scale: float, withheld: Sequence[bool] = ()
) -> list[paired.Difference]:
    """Test effects over the seeds, corrected over all of them, in the order given.

    Args:
        family: For each effect, seed -> its value.
        spec: The comparison that the study makes.
        scale: Size of the metric, which decides what is noise.
        withheld: True for each effect whose sides lost different shares of their runs; default: none.
    """
    differences: list[paired.Difference | None] = []
    for i, values in enumerate(family):
        zero, scales = dict.fromkeys(values, 0.0), dict.fromkeys(values, scale)
        difference = paired.difference(values, zero, margin=spec.margin, looks=spec.looks, scales=scales)
        if difference is not None and len(values) > 1 and withheld and withheld[i]:
            difference = paired.withhold(difference, paired.NoTest.LOSSES)
        differences.append(difference)
    most = min([MAX_PRIOR, *(difference.interval.n for difference in differences if difference)])
    moderated = moderate(differences, most=most) if spec.moderate else differences
    return [difference for difference in paired.correct(moderated) if difference is not None]


def half_normal_scores(effects: Iterable[Effect]) -> list[tuple[Effect, float]]:
    """Return the effects by size, each with its half-normal score: the expected size of this rank if no effect is real."""
    from scipy.special import ndtri

    ranked = sorted(effects, key=lambda effect: abs(effect.difference.interval.mean))
    return [(effect, float(ndtri(0.5 + 0.5 * (i + 0.5) / len(ranked)))) for i, effect in enumerate(ranked)]
