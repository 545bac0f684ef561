"""Tests of seeds that diverged, or ended without a score for another reason: they are not absent from a comparison."""

from collections.abc import Mapping
from typing import Any

import numpy
import pytest

from attnlab.config.comparability import PROGRAM
from attnlab.config.question import EstimandConfig
from attnlab.stats.cells import CellSummary
from attnlab.stats.compare import lose_alike, summarize_cells
from attnlab.stats.factorial import estimate_effects
from attnlab.stats.trend import TrendKind, TrendReason, summarize_trends
from attnlab.stats.verdict import Reason, VerdictKind
from attnlab.study.adaptive import can_be_conclusive
from examples.my_analysis.validity import summarize_agreement
from tests.config.test_design import two_level
from tests.support.levels import made_up_levels
from tests.support.specs import comparison_spec

RATE = EstimandConfig(name="solve_rate", threshold=0.95)

Score = float | str  # a text is the state of a run without a score


def compared(
    stable: Mapping[int, Score], fragile: Mapping[int, Score], *, metric: str = "bits_per_byte", **options: Any
) -> tuple[CellSummary, CellSummary]:
    spec = comparison_spec("s", ("kind",), metric, options.pop("direction", "max"), {"kind": "stable"}, **options)
    runs = [
        {
            "kind": kind,
            "cell": kind,
            "seed": seed,
            **({"state": score} if isinstance(score, str) else {"state": "completed", metric: score}),
        }
        for kind, scores in (("stable", stable), ("fragile", fragile))
        for seed, score in scores.items()
    ]
    first, second = summarize_cells(runs, spec)
    return first, second


def scattered(n: int, mean: float = 0.5, *, seed: int = 0) -> dict[int, Score]:
    return dict(enumerate(numpy.random.RandomState(seed).normal(mean, 0.02, n).tolist()))


def test_a_diverged_seed_is_not_solved() -> None:
    stable, fragile = compared(
        {seed: 0.1 if seed < 8 else 1.0 for seed in range(20)},
        {seed: 1.0 if seed < 8 else "diverged" for seed in range(20)},
        estimand=RATE,
    )
    assert stable.estimate and fragile.estimate and (stable.estimate.solved, fragile.estimate.solved) == (12, 8)
    assert fragile.estimate.n == 20 and fragile.difference and fragile.difference.interval.mean == pytest.approx(-0.2)
    assert fragile.verdict and fragile.verdict.kind is VerdictKind.INCONCLUSIVE


@pytest.mark.parametrize("direction", ["max", "min"])
def test_a_cell_that_always_diverges_is_worse(direction: str) -> None:
    sign = 1 if direction == "max" else -1
    chosen = EstimandConfig(name="solve_rate", threshold=sign * 0.95)
    stable = {seed: sign * (1.0 + seed / 1000) for seed in range(10)}
    base, cell = compared(stable, dict.fromkeys(range(10), "diverged"), estimand=chosen, direction=direction)
    assert cell.verdict and cell.verdict.kind is VerdictKind.WORSE
    assert not cell.value and cell.has_result and not cell.lost
    back, other = compared(dict.fromkeys(range(10), "diverged"), stable, estimand=chosen, direction=direction)
    assert other.verdict and other.verdict.kind is VerdictKind.BETTER and back.is_baseline


@pytest.mark.parametrize("state", ["failed", "timed_out", "out_of_memory"])
def test_a_run_without_an_outcome_is_no_score(state: str) -> None:
    stable = {seed: 0.5 + seed / 100 for seed in range(8)}
    fragile = {seed: 0.7 + seed / 90 if seed < 7 else state for seed in range(8)}
    _, cell = compared(stable, fragile, estimand=RATE)
    assert cell.difference and cell.difference.interval.n == 7 and cell.lost == {7}
    assert cell.verdict and cell.verdict.reason is Reason.LOSSES


@pytest.mark.parametrize("state", ["diverged", "failed", "out_of_memory"])
@pytest.mark.parametrize("loser", ["cell", "baseline"])
def test_a_mean_over_what_is_left_is_no_verdict(state: str, loser: str) -> None:
    full, partial = scattered(10), {**scattered(10, 0.8, seed=1), 0: state, 1: state, 2: state}
    _, cell = compared(full, partial) if loser == "cell" else compared(partial, full)
    assert cell.verdict and (cell.verdict.kind, cell.verdict.reason) == (VerdictKind.INCONCLUSIVE, Reason.LOSSES)
    assert cell.difference and cell.difference.p is None and cell.difference.interval.low is None


@pytest.mark.parametrize(
    ("lost", "runs", "alike"), [((1, 0), (20, 20), True), ((1, 0), (19, 19), False), ((2, 0), (60, 60), False)]
)
def test_the_share_that_may_be_lost(lost: tuple[int, int], runs: tuple[int, int], alike: bool) -> None:
    assert lose_alike(lost, runs) is lose_alike((lost[1], lost[0]), runs) is alike


def test_equal_losses_keep_the_verdict() -> None:
    stable, fragile = scattered(10), scattered(10, 0.8, seed=1)
    _, cell = compared({**stable, 0: "diverged"}, {**fragile, 4: "diverged"})
    assert cell.verdict and cell.verdict.kind is VerdictKind.BETTER and cell.verdict.pairs == 8


def test_runs_that_were_never_started_are_not_lost() -> None:
    _, cell = compared(scattered(10), scattered(4, 0.8, seed=1))
    assert cell.verdict and cell.verdict.kind is VerdictKind.BETTER


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_the_worst_runs_of_one_cell_diverge_without_false_verdicts(lost: int) -> None:
    """Nothing differs; without the rule, 6 to 14 % of these tables have a verdict of better."""
    wrong = 0
    for study in range(200):
        base, cell = scattered(10, seed=2 * study), scattered(10, seed=2 * study + 1)
        worst = sorted(cell, key=lambda seed, of=cell: of[seed])[:lost]
        _, summary = compared(base, {**cell, **dict.fromkeys(worst, "diverged")})
        wrong += bool(summary.verdict and summary.verdict.kind is not VerdictKind.INCONCLUSIVE)
    assert wrong == 0


def test_a_trend_and_the_agreement_of_levels_leave_out_unequal_losses() -> None:
    gaps = {name: [shift, shift / 2, shift / 4] for name, shift in zip("abcde", (0.1, 0.2, 0.3, 0.4, 0.5), strict=True)}
    runs, spec = made_up_levels(gaps)
    whole = {trend.name: trend.kind for trend in summarize_trends(summarize_cells(runs, spec), spec)}
    lossy = [
        run | ({"state": "diverged", "bits_per_byte": None} if run["variant"] == "a" and run["seed"] == 0 else {})
        for run in runs
    ]
    cells = summarize_cells(lossy, spec)
    trends = {trend.name: trend for trend in summarize_trends(cells, spec)}
    assert whole["a"] is TrendKind.SHRINKS and trends["b"].kind is whole["b"]
    assert (trends["a"].kind, trends["a"].reason) == (TrendKind.INCONCLUSIVE, TrendReason.LOSSES)
    assert {agreement.pairs for agreement in summarize_agreement(cells, spec)} == {10}, "of the 15 pairs, 5 have the cell"


def test_effects_of_a_factor_that_diverges_have_no_test() -> None:
    design = two_level(3)
    axes = tuple(factor.name for factor in design.factors)
    spec = comparison_spec("s", axes, "score", "max", factorial=design)
    noise = numpy.random.RandomState(0).normal(0, 0.1, (8, 6)).tolist()
    runs: list[dict[str, Any]] = []
    for i, point in enumerate(design.points):
        for seed in range(6):
            levels = {factor.name: factor.levels[level] for factor, level in zip(design.factors, point, strict=True)}
            lost = point[0] == 1 and seed == i % 6
            score = (
                {"state": "diverged"} if lost else {"state": "completed", "score": 5 * point[0] + 5 * point[1] + noise[i][seed]}
            )
            runs.append({**levels, "cell": str(point), "seed": seed, **score})
    result = estimate_effects(summarize_cells(runs, spec), spec)
    assert result is not None
    verdicts = {effect.name: effect.verdict for effect in result.effects}
    assert verdicts["A"].reason is Reason.LOSSES and verdicts["B"].kind is VerdictKind.BETTER


def test_seeds_are_not_added_where_they_cannot_decide() -> None:
    lossy = {**scattered(5, 0.8, seed=1), 0: "diverged", 1: "diverged"}
    base, cell = compared(scattered(5), lossy)
    assert not can_be_conclusive(cell, base, 12)
    base, cell = compared(dict.fromkeys(range(3), 0.5), dict.fromkeys(range(3), 0.6))
    assert not can_be_conclusive(cell, base, 12), "the program ignores its seed"
    base, cell = compared({0: 0.5, 1: 0.55}, {0: 0.6, 1: 0.65})
    assert can_be_conclusive(cell, base, 12), "two equal differences may be chance"


@pytest.mark.parametrize("test", [PROGRAM, ""])
def test_a_program_that_ignores_its_seed_has_no_verdict(test: str) -> None:
    noise = numpy.random.RandomState(0).uniform(-1e-7, 1e-7, (2, 10))
    spec = comparison_spec("s", ("kind",), "loss", "min", {"kind": "a"})
    runs = [
        {"kind": kind, "cell": kind, "seed": seed, "state": "completed", "test": test, "loss": value + noise[i, seed]}
        for i, (kind, value) in enumerate({"a": 1.93, "b": 1.9297}.items())
        for seed in range(10)
    ]
    cell = summarize_cells(runs, spec)[1]
    assert cell.verdict and cell.verdict.kind is VerdictKind.INCONCLUSIVE
    assert cell.verdict.reason is Reason.CONSTANT
