"""Tests of margins in per cent of training steps."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnlab import load_runs
from attnlab.config.question import EstimandConfig
from attnlab.config.reader import read_study
from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.report import methods
from attnlab.report.notes import margin_notes
from attnlab.report.page import make_page
from attnlab.stats import paired
from attnlab.stats.compare import summarize_cells
from attnlab.stats.question import with_margin
from attnlab.stats.variance_prior import VariancePrior
from attnlab.stats.verdict import Sensitivity, VerdictKind
from attnlab.study.run import run
from attnlab.tracking.runs import load_curves
from attnlab.training.selection import final_slopes
from tests.study.test_study import QUIET, study
from tests.support.specs import changed, comparison_spec

SPEC = comparison_spec("s", ("variant",), "bits_per_byte", "min", {"variant": "dense"})


def runs_of(slopes: dict[str, list[float]], metric: str = "bits_per_byte") -> list[dict[str, Any]]:
    return [
        {"variant": variant, "state": "completed", "seed": seed, f"valid_{metric}_slope": slope}
        for variant, numbers in slopes.items()
        for seed, slope in enumerate(numbers)
    ]


def test_the_slope_of_a_power_law_gives_the_difference_that_more_steps_make() -> None:
    """Of the curve 2 - 0.3 log(steps), 5 % more steps take off 0.3 log(1.05)."""
    history = [(step, {"valid/bits_per_byte": 2 - 0.3 * math.log(step), "train/loss": 1.0}) for step in range(100, 1_001, 100)]
    slopes = final_slopes(history, 1_000)
    assert slopes == {"valid_bits_per_byte_slope": pytest.approx(-0.3)}
    spec = with_margin(SPEC, "5 % of steps", runs_of({"dense": list(slopes.values())}))
    assert spec.margin == pytest.approx(0.3 * math.log(1.05)) and spec.goal.margin_share == 0.05


def test_only_the_second_half_counts_and_three_points_are_needed() -> None:
    early = [(step, {"valid/loss": 100.0}) for step in (10, 20, 49)]
    late = [(step, {"valid/loss": -math.log(step)}) for step in (50, 75, 100)]
    assert final_slopes(early + late, 100) == {"valid_loss_slope": pytest.approx(-1.0)}
    assert final_slopes(early + late[1:], 100) == {}


def test_the_margin_is_the_mean_over_the_seeds_of_the_baseline() -> None:
    runs = runs_of({"dense": [-0.1, -0.2, -0.6], "no_wo": [-5.0]})
    spec = with_margin(SPEC, "10 % of steps", runs)
    assert spec.margin == pytest.approx(0.3 * math.log(1.1))
    assert spec.goal.margin_by_seed == pytest.approx({0: 0.1 * math.log(1.1), 1: 0.2 * math.log(1.1), 2: 0.6 * math.log(1.1)})
    better_is_higher = comparison_spec("s", ("variant",), "accuracy", "max", {"variant": "dense"})
    assert with_margin(better_is_higher, "10 % of steps", runs_of({"dense": [0.2]}, "accuracy")).margin == pytest.approx(
        0.2 * math.log(1.1)
    )


@pytest.mark.parametrize("slopes", [{"dense": [0.1, 0.2]}, {"no_wo": [-0.1]}, {"dense": [math.nan]}])
def test_a_baseline_that_does_not_improve_gives_no_margin(slopes: dict[str, list[float]]) -> None:
    spec = with_margin(SPEC, "5 % of steps", runs_of(slopes))
    (note,) = margin_notes([], spec)
    assert spec.margin is None and "has no value" in note


def test_an_estimated_margin_is_tested_seed_by_seed() -> None:
    """Against scipy: paired t-tests of the margin minus the difference, and of both added."""
    from scipy.stats import ttest_1samp

    gaps, margins = {0: 0.02, 1: 0.05, 2: -0.01, 3: 0.03}, {0: 0.10, 1: 0.16, 2: 0.11, 3: 0.15}
    plain = paired.difference(gaps, dict.fromkeys(gaps, 0.0), margin=0.13)
    tested = paired.with_estimated_margin(plain, gaps, margins)
    expected: list[Any] = [
        ttest_1samp([m + s * d for m, d in zip(margins.values(), gaps.values(), strict=True)], 0) for s in (1, -1)
    ]
    assert plain is not None and tested is not None and tested.p_equivalent is not None
    assert tested.p_equivalent == pytest.approx(max(test.pvalue / 2 for test in expected))
    assert tested.p == plain.p and tested.interval == plain.interval
    assert paired.with_estimated_margin(plain, gaps, {}) is plain, "a constant margin"


def test_a_median_is_tested_by_the_signs_of_margin_and_difference() -> None:
    """In one of six seeds the difference exceeds the margin of that seed, though not the mean margin."""
    from scipy.stats import binomtest

    runs = runs_of({"dense": [-1.0, -1.0, -1.0, -1.0, -1.0, -0.1]})
    spec = with_margin(replace(SPEC, estimand=EstimandConfig(name="median")), "50 % of steps", runs)
    rows = [
        {"variant": variant, "seed": seed, "state": "completed", "bits_per_byte": 2.0 + gap}
        for variant, gaps in (("dense", [0.0] * 6), ("no_wo", [0.01, 0.02, -0.01, 0.03, 0.015, 0.1]))
        for seed, gap in enumerate(gaps)
    ]
    for compared, count in ((spec, 5), (changed(spec, margin_by_seed={}), 6)):
        difference = summarize_cells(rows, compared)[1].difference
        assert difference is not None and difference.interval.is_exact
        assert difference.p_equivalent == pytest.approx(binomtest(count, 6, alternative="greater").pvalue)


def test_a_moderated_test_adds_the_variance_of_the_margin() -> None:
    from scipy.stats import t

    gaps, margins = {0: 0.02, 1: 0.05, 2: -0.01}, {0: 0.10, 1: 0.16, 2: 0.13}
    plain = paired.with_estimated_margin(paired.difference(gaps, dict.fromkeys(gaps, 0.0), margin=0.13), gaps, margins)
    assert plain is not None
    moderated = paired.moderated_t_test(plain, VariancePrior(2, 0.0016, 4))
    own, of_margin = (2 * 0.0016 + 2 * 0.0009) / 4 / 3, 0.0009 / 3  # squared standard errors, with 4 and 2 degrees of freedom
    freedom = (own + of_margin) ** 2 / (own**2 / 4 + of_margin**2 / 2)
    assert moderated.p_equivalent_moderated == pytest.approx(t.sf((0.13 - 0.02) / (own + of_margin) ** 0.5, freedom))


def test_a_margin_in_the_metric_s_unit_stays() -> None:
    spec = with_margin(SPEC, 0.01, [])
    assert (spec.margin, spec.goal.margin_share) == (0.01, None) and margin_notes([], spec) == []


def steps_study(**changes: Any) -> dict[str, Any]:
    base = {**study()["base"], "train": {"steps": 40, "batch_size": 2, "lr": 3e-3, "eval_every": 10}}
    return {**study(), "base": base, "baseline": {"variant": "dense"}, "margin": "5 % of steps", **changes}


def test_terminal_and_page_have_the_same_margin(root: Path) -> None:
    result = run(steps_study(), root=root, display=QUIET)
    spec, runs = result.comparison(), load_runs("small", root)
    source = methods.load_study_info(runs, root=root)
    assert spec.margin is not None and spec.margin > 0 and source.spec == spec
    slopes = sorted(-runs[runs["variant"] == "dense"]["valid_bits_per_byte_slope"])
    assert spec.margin == pytest.approx(sum(slopes) / 2 * math.log(1.05))
    page = make_page(source, runs=runs, curves=load_curves("small", root))
    assert [cell.verdict for cell in page.cells] == [cell.verdict for cell in summarize_cells(result.records(), spec)]
    assert any(f"{spec.margin:.3g} in bits_per_byte" in note for note in page.notes)


@pytest.mark.parametrize(
    ("margin", "read"),
    [("5 % of steps", "5 % of steps"), ("2.50% of steps", "2.5 % of steps"), (0.5, 0.5), (2, 2.0), (None, None)],
)
def test_a_margin_is_a_number_or_a_share(margin: Any, read: Any) -> None:
    assert read_study(steps_study(margin=margin)).margin == read


@pytest.mark.parametrize("margin", ["5 %", "0 % of steps", "100 % of steps", "-5 % of steps", "a lot", 0, -1, True, [1]])
def test_another_margin_is_refused(margin: Any) -> None:
    with pytest.raises(UserError, match="margin"):
        read_study(steps_study(margin=margin))


@pytest.mark.parametrize(
    ("train", "points"),
    [({"steps": 40}, 1), ({"steps": 40, "eval_every": 20}, 2), ({"steps": 40, "eval_every": 15}, 2)],
)
def test_a_curve_with_too_few_points_is_refused_in_the_plan(train: dict[str, Any], points: int) -> None:
    base = {**study()["base"], "train": {"batch_size": 2, **train}}
    with pytest.raises(UserError, match=f"got {points} of 'dense.*set train.eval_every to at most 10"):
        plan(steps_study(base=base))
    plan(steps_study())
    with pytest.raises(UserError, match="expected a 'baseline'"):
        plan(steps_study(baseline=None))


def judged(scores: dict[str, list[float]], margin: float, **spec: Any) -> Any:
    """Return the verdict on `cell`, compared with `base`."""
    comparison = comparison_spec("s", ("kind",), **{"metric": "accuracy", "direction": "max", **spec})
    comparison = changed(comparison, baseline={"kind": "base"}, margin=margin)
    runs = [
        {"kind": kind, "seed": seed, "state": "completed", comparison.metric: value}
        for kind, values in scores.items()
        for seed, value in enumerate(values)
    ]
    cells = summarize_cells(runs, comparison)
    return next(cell.verdict for cell in cells if cell.name == "cell"), margin_notes(cells, comparison)


HIGH, LOW = [0.85, 0.76, 0.9, 0.8, 0.83], [0.76, 0.82, 0.7, 0.84, 0.72]
NEAR = [0.851, 0.759, 0.901, 0.799, 0.831]


@pytest.mark.parametrize(
    ("scores", "margin", "metric", "wide"),
    [
        ({"base": HIGH, "cell": LOW}, 0.5, "accuracy", True),
        ({"base": HIGH, "cell": LOW}, 1.0, "score", True),
        ({"base": HIGH, "cell": LOW}, 0.5, "score", False),
        ({"base": HIGH, "cell": NEAR}, 0.02, "accuracy", False),
        ({"base": [100 * x for x in HIGH], "cell": [100 * x for x in NEAR]}, 0.5, "accuracy", False),
    ],
)
def test_an_equivalence_within_a_margin_that_is_too_wide_is_marked(
    scores: dict[str, list[float]], margin: float, metric: str, wide: bool
) -> None:
    verdict, notes = judged(scores, margin, metric=metric)
    assert verdict.kind is VerdictKind.EQUIVALENT
    assert (verdict.sensitivity is Sensitivity.WIDE_MARGIN) == verdict.is_unsupported == bool(notes) == wide


def test_a_control_that_is_worse_by_more_supports_a_wide_margin() -> None:
    scores = {"base": HIGH, "cell": NEAR, "none": [0.2, 0.21, 0.22, 0.2, 0.21]}
    verdict, _ = judged(scores, 0.6, metric="accuracy", control={"kind": "none"})
    assert verdict.sensitivity is Sensitivity.SHOWN
