"""Tests of the error rates of factorial studies in a few thousand simulated ones (``benchmarks.validity`` simulates more)."""

import pytest

from attnlab.stats.compare import summarize_cells
from attnlab.stats.factorial import TOGETHER, estimate_effects
from benchmarks import factorial
from benchmarks.factorial import LETTERS, design_of, draw, simulate
from tests.support.specs import comparison_spec

STUDIES = 4_000
MOST = 0.05 + 3 * (0.05 * 0.95 / STUDIES) ** 0.5  # 5 % plus three standard errors in this many studies


@pytest.mark.parametrize(("name", "factors", "cells"), [("full", 3, 8), ("fractional", 8, 16), ("leave_one_out", 4, 6)])
@pytest.mark.parametrize("seeds", [3, 5])
def test_at_most_one_study_in_twenty_has_a_false_main_effect(name: str, factors: int, cells: int, seeds: int) -> None:
    rates = simulate(design_of(name, factors, cells), "equal", seeds, STUDIES, seed=1)
    assert rates["false"].value <= MOST and rates["false interactions"].value <= MOST
    assert rates["covered"].value >= 1 - MOST


@pytest.mark.parametrize("noise", ["x2", "x5", "one 0.6", "three 0.3", "as committed"])
def test_a_factor_that_changes_the_runs_of_a_seed_breaks_the_residual_alone_only(noise: str) -> None:
    rates = simulate(design_of("fractional", 8, 16), noise, 3, STUDIES, seed=2)
    assert rates["false"].value <= 0.06 + 3 * rates["false"].error
    assert max(rates[name].value for name in ("false, others differ", "false equivalence")) <= MOST
    assert rates["false if pooled"].value > 0.07 and rates["covered"].value >= 1 - MOST
    assert rates["power"].value > rates["power alone"].value


@pytest.mark.parametrize(("name", "factors", "cells"), [("full", 3, 8), ("fractional", 8, 16), ("leave_one_out", 4, 6)])
def test_the_tests_are_those_of_a_report(name: str, factors: int, cells: int) -> None:
    design = design_of(name, factors, cells)
    families = factorial.Families.of(design)
    spec = comparison_spec("simulated", tuple(LETTERS[:factors]), "metric", "min", factorial=design, margin=1.0)
    for study in draw(design, "one 0.6", seeds=4, studies=6, seed=3):
        runs = [
            {"seed": seed, "state": "completed", "metric": float(value), "test": "", "cell": str(point)}
            | {factor.name: factor.levels[level] for factor, level in zip(design.factors, point, strict=True)}
            for point, values in zip(design.points, study, strict=True)
            for seed, value in enumerate(values)
        ]
        result = estimate_effects(summarize_cells(runs, spec), spec)
        assert result is not None
        for is_main, effects in ((True, result.main), (False, result.interactions)):
            tests = families.test(study[None], main=is_main, margin=1.0)
            effects = [effect for effect in effects if effect.name != TOGETHER]
            assert [effect.difference.p for effect in effects] == pytest.approx(list(tests.p[0]))
            differences = [effect.difference for effect in effects]
            assert [d.p_moderated or d.p for d in differences] == pytest.approx(list(tests.p_table[0]))
            near = [d.p_equivalent_moderated or d.p_equivalent for d in differences]
            assert near == pytest.approx(list(tests.p_equivalent_table[0]))
