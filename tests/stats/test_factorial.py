"""Tests of the effects of factorial studies, against a textbook's figures and least squares written out."""

import dataclasses
from collections.abc import Callable, Collection

import numpy
import pytest

from attnlab.config.design import BEYOND_SUM, FactorialDesign, Point, model_terms
from attnlab.stats.compare import ComparisonSpec, summarize_cells
from attnlab.stats.factorial import TOGETHER, Effect, FactorialResult, estimate_effects, seed_effects
from attnlab.stats.verdict import Reason, VerdictKind
from tests.config.test_design import two_level
from tests.support.specs import comparison_spec

# Box, Hunter and Hunter, 2nd edition, section 5.4: yield of a pilot plant, runs in duplicate, in standard order (A fastest).
YIELD = [(59, 61), (74, 70), (50, 58), (69, 67), (50, 54), (81, 85), (46, 44), (79, 81)]


def spec_of(design: FactorialDesign, *, margin: float | None = None, direction: str = "max") -> ComparisonSpec:
    axes = tuple(factor.name for factor in design.factors)
    return comparison_spec("s", axes, "score", direction, margin=margin, factorial=design)


def result_of(
    design: FactorialDesign,
    value: Callable[[Point, int], float],
    *,
    seeds: int = 3,
    lost: Collection[tuple[int, int]] = (),
    margin: float | None = None,
    tests: Callable[[Point], str] = lambda point: "",
) -> FactorialResult:
    """Return the effects of a made-up study; `lost` has (number of the cell, seed) of diverged runs."""
    runs = []
    for i, point in enumerate(design.points):
        axes = {factor.name: factor.levels[level] for factor, level in zip(design.factors, point, strict=True)}
        for seed in range(seeds):
            ended = {"state": "diverged", "reason": "nan"} if (i, seed) in lost else {"state": "completed"}
            score = {} if (i, seed) in lost else {"score": value(point, seed)}
            runs.append({**axes, "cell": str(point), "seed": seed, "test": tests(point), **ended, **score})
    spec = spec_of(design, margin=margin)
    result = estimate_effects(summarize_cells(runs, spec), spec)
    assert result is not None
    return result


def means(result: FactorialResult) -> dict[str, float]:
    return {effect.name: effect.difference.interval.mean for effect in result.effects}


def noise(seed: int = 0) -> Callable[[Point, int], float]:
    """Return values with a shift of each seed, the same for the same arguments."""
    random = numpy.random.RandomState(seed)
    table: dict[tuple[Point, int], float] = {}
    shifts: dict[int, float] = {}

    def value(point: Point, seed: int) -> float:
        shift = shifts.setdefault(seed, random.normal(0, 5))
        return shift + table.setdefault((point, seed), 3 * point[0] - point[1] + random.normal())

    return value


def test_the_pilot_plant_of_the_textbook() -> None:
    design = two_level(3)
    order = {(a, b, c): YIELD[a + 2 * b + 4 * c] for a, b, c in design.points}
    result = result_of(design, lambda point, seed: order[(point[0], point[1], point[2])][seed], seeds=2)
    expected = {"A": 23.0, "B": -5.0, "C": 1.5, "A × B": 1.5, "A × C": 10.0, "B × C": 0.0}
    assert means(result) == pytest.approx(expected)
    assert not result.missing and not result.problem and result.runs == 16


@pytest.mark.parametrize(
    ("factors", "cells", "lost"), [(3, 0, []), (3, 0, [(0, 1), (5, 2)]), (4, 8, [(1, 0)]), (8, 16, [(3, 1)])]
)
def test_estimates_are_least_squares_with_seeds_as_blocks(factors: int, cells: int, lost: list[tuple[int, int]]) -> None:
    design = two_level(factors, "fractional", cells) if cells else two_level(factors)
    value = noise()
    result = result_of(design, value, lost=lost)
    runs = [(point, seed) for i, point in enumerate(design.points) for seed in range(3) if (i, seed) not in lost]
    names = [effect.name for effect in result.effects]
    columns = [[float(seed == block) for _, seed in runs] for block in range(3)]
    letters = [factor.name for factor in design.factors]
    for name in names:
        members = [letters.index(letter) for letter in name.split(" × ")]
        columns.append([numpy.prod([2 * point[i] - 1 for i in members]) / 2 for point, _ in runs])
    solution = numpy.linalg.lstsq(numpy.array(columns).T, [value(*run) for run in runs], rcond=None)[0]
    assert means(result) == pytest.approx(dict(zip(names, solution[3:], strict=True)), abs=1e-9)


def test_an_effect_has_the_interval_of_its_scatter_over_the_seeds() -> None:
    """A constant difference between seeds cancels, and the scatter of other effects does not count."""
    value = noise()
    design = two_level(3)
    result = result_of(design, lambda point, seed: value(point, seed) + (20 * seed if point[2] else 0))
    a, c = result.main[0], result.main[2]
    at = [[numpy.mean([value(p, s) for p in design.points if p[0] == on]) for on in (0, 1)] for s in range(3)]
    assert list(a.values.values()) == pytest.approx([on - off for off, on in at])
    assert a.difference.interval.sd is not None and c.difference.interval.sd is not None
    assert a.difference.interval.sd < 2 < 15 < c.difference.interval.sd


def test_holm_counts_main_effects_and_interactions_separately() -> None:
    result = result_of(two_level(3), noise(), seeds=6)
    for family in (result.main, result.interactions):
        smallest = min(family, key=lambda effect: effect.difference.p or 1)
        assert smallest.difference.p_moderated is not None
        assert smallest.difference.p_table == pytest.approx(min(1, 3 * smallest.difference.p_moderated))


def test_effects_are_tested_with_the_residual_of_the_linear_model() -> None:
    """The textbook's variance of a run: differences of duplicates, here without the mean difference of the two seeds."""
    design = two_level(3)
    order = {(a, b, c): YIELD[a + 2 * b + 4 * c] for a, b, c in design.points}
    result = result_of(design, lambda point, seed: order[(point[0], point[1], point[2])][seed], seeds=2)
    gaps = numpy.array([second - first for first, second in YIELD])
    residual = ((gaps - gaps.mean()) ** 2).sum() / 2 / 7
    error = result.errors[True]
    assert (error.variance, error.degrees_of_freedom) == (pytest.approx(residual), 7)
    a, b, c = (effect.difference for effect in result.main)
    for interval in (a.interval, c.interval):
        assert interval.degrees_of_freedom == 7 and interval.moderated_sd is not None
        assert interval.moderated_sd**2 / 2 == pytest.approx(residual / 4), "(standard error)^2 = residual x (1/8 + 1/8)"
    assert b.interval.sd == 0 and b.p is None, "the effect of B is -5 with both seeds"


def test_main_effects_that_scatter_more_than_the_residual_have_their_mean_variance() -> None:
    value = noise(2)
    design = two_level(3)
    result = result_of(design, lambda point, seed: value(point, seed) + (20 * seed**2 if point[2] else 0))
    error, others = result.errors[True], result.errors[False]
    own = numpy.mean([numpy.var([*effect.values.values()], ddof=1) for effect in result.main])
    assert error.degrees_of_freedom == 6 and error.variance == pytest.approx(own / (4 / 8))
    assert result.main[2].difference.interval.degrees_of_freedom == 2 + 2
    rest = [numpy.var([*effect.values.values()], ddof=1) for effect in result.interactions]
    assert others.variance < 10 < own and others.degrees_of_freedom in (6, 8)
    if others.degrees_of_freedom == 6:
        assert others.variance == pytest.approx(numpy.mean(rest) / (4 / 8))


def test_a_verdict_on_an_effect_needs_its_own_scatter_too() -> None:
    """One factor changes the initial values: the residual, to which the others contribute most, is too small for its effect."""
    value, shift = noise(4), (3.0, 6.0, 3.5)
    result = result_of(two_level(4), lambda point, seed: value(point, seed) + (shift[seed] if point[3] else 0))
    d = result.main[3].difference
    assert d.p is not None and d.p_table is not None and d.p_table < 0.05 < d.p == (d.p_holm or 0) / d.alone[0]
    assert result.main[3].verdict.kind is VerdictKind.INCONCLUSIVE
    assert d.interval.low is not None and d.interval.high is not None and d.interval.low < 0 < d.interval.high


def test_without_moderation_each_effect_has_its_own_error() -> None:
    design, value = two_level(3), noise()
    spec = dataclasses.replace(spec_of(design), moderate=False)
    runs = [
        {**{f.name: f.levels[v] for f, v in zip(design.factors, p, strict=True)}, "seed": s, "state": "completed", "test": ""}
        | {"cell": str(p), "score": value(p, s)}
        for p in design.points
        for s in range(3)
    ]
    result = estimate_effects(summarize_cells(runs, spec), spec)
    assert result is not None and not result.errors
    assert {effect.difference.interval.prior for effect in result.effects} == {None}


def test_verdicts_follow_direction_and_margin() -> None:
    random = numpy.random.RandomState(1)
    result = result_of(two_level(3), lambda p, s: 4 * p[0] - 4 * p[1] + 0.1 * random.normal(), seeds=6, margin=0.5)
    kinds = {effect.name: effect.verdict.kind for effect in result.effects}
    assert (kinds["A"], kinds["B"], kinds["C"]) == (VerdictKind.BETTER, VerdictKind.WORSE, VerdictKind.EQUIVALENT)
    assert {kinds[name] for name in ("A × B", "A × C", "B × C")} == {VerdictKind.EQUIVALENT}


def test_lost_runs_widen_the_standard_error_and_keep_the_effects() -> None:
    design, value = two_level(3), noise(3)
    whole, part = result_of(design, value), result_of(design, value, lost=[(0, 0), (7, 1)])
    assert part.lost == {"diverged": 2} and part.runs == 22 and not part.missing
    assert [effect.name for effect in part.effects] == [effect.name for effect in whole.effects]
    assert means(part) != pytest.approx(means(whole))


def test_the_spread_of_effects_with_lost_runs_is_not_understated() -> None:
    """Over many studies, the squared standard error agrees with the variance of the estimate."""
    design, random = two_level(3), numpy.random.RandomState(5)
    lost = {((0, 0, 0), 0), ((1, 1, 1), 0), ((1, 0, 1), 1)}
    estimates, squares = [], []
    for _ in range(400):
        runs = [(p, s, random.normal()) for p in design.points for s in range(3) if (p, s) not in lost]
        values = seed_effects(design, runs)[1][0].values.values()
        estimates.append(numpy.mean(list(values)))
        squares.append(numpy.var(list(values), ddof=1) / 3)
    assert numpy.mean(squares) == pytest.approx(numpy.var(estimates), rel=0.2)
    assert numpy.mean(squares) > 4 / 24 * 1.05, "a complete study has 4/24"


def test_a_lost_cell_names_the_effects_that_are_gone() -> None:
    design = two_level(4, "fractional", 8)
    result = result_of(design, noise(), lost=[(0, seed) for seed in range(3)])
    assert [effect.name for effect in result.main] == ["A", "B", "C", "D"]
    assert len(result.missing) == 1 and result.missing[0] in {term.name for term in model_terms(design)}
    assert any(result.missing[0] in [name for _, name in effect.aliases] for effect in result.effects)


def test_leave_one_out_effects_are_those_with_all_others_on() -> None:
    """A is worth 1 alone and 3 with B: leaving A out costs 3, and both single effects exceed the effect of both."""
    design = two_level(2, "leave_one_out")

    def value(point: Point, seed: int) -> float:
        return point[0] + 2 * point[0] * point[1] + 0.5 * point[1] + 10 * seed

    result = result_of(design, value)
    assert means(result) == pytest.approx({"A": 3.0, "B": 2.5, TOGETHER: 3.5, BEYOND_SUM: -2.0})
    assert [effect.name for effect in result.main] == ["A", "B", TOGETHER]


def test_one_seed_has_estimates_without_a_test() -> None:
    result = result_of(two_level(3), noise(), seeds=1)
    assert len(result.effects) == 6
    assert {effect.verdict.reason for effect in result.effects} == {Reason.ONE_SEED}


def test_factors_without_any_effect_are_exactly_zero() -> None:
    result = result_of(two_level(3), lambda point, seed: 0.1 * (seed + 1) + (0.3 + seed / 100) * point[0], seeds=8)
    kinds = {effect.name: effect.verdict.kind for effect in result.effects}
    assert kinds["A"] is VerdictKind.BETTER and kinds["B"] is kinds["B × C"] is VerdictKind.IDENTICAL


def test_cells_with_other_tests_are_not_compared() -> None:
    result = result_of(two_level(3), noise(), tests=lambda point: f'{{"length": {point[0]}}}')
    assert not result.effects and "tested" in result.problem


def test_an_aliased_main_effect_says_so() -> None:
    result = result_of(two_level(3, "fractional", 4), noise())
    assert {effect.name: effect.aliases for effect in result.effects} == {
        "A": ((1.0, "B × C"),),
        "B": ((1.0, "A × C"),),
        "C": ((1.0, "A × B"),),
    }
    assert all(isinstance(effect, Effect) and effect.is_main for effect in result.effects)
