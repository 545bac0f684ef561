"""Tests of trends: how a difference from the baseline changes over levels."""

from math import log2
from typing import Any

import numpy
import pytest
from scipy import stats

from attnlab.stats.compare import summarize_cells
from attnlab.stats.sequential import Looks
from attnlab.stats.trend import Trend, TrendKind, TrendReason, summarize_trends
from tests.support.levels import LEVELS, made_up_levels, swept
from tests.support.specs import changed


def trends_of(gaps: dict[str, list[float]], **options: Any) -> dict[str, Trend]:
    runs, spec = made_up_levels(gaps, **options)
    return {trend.name: trend for trend in summarize_trends(summarize_cells(runs, spec), spec)}


@pytest.mark.parametrize(
    ("gaps", "kind"),
    [
        ([-0.05, -0.03, -0.01], TrendKind.SHRINKS),
        ([0.05, 0.03, 0.01], TrendKind.SHRINKS),
        ([0.0, 0.02, 0.05], TrendKind.GROWS),
        ([0.0, -0.02, -0.05], TrendKind.GROWS),
        ([0.05, 0.0, -0.05], TrendKind.REVERSES),
        ([0.03, 0.03, 0.03], TrendKind.STEADY),
    ],
)
def test_a_trend_in_words(gaps: list[float], kind: TrendKind) -> None:
    assert trends_of({"no_wo": gaps}, margin=0.02)["no_wo"].kind is kind


@pytest.mark.parametrize(
    ("gaps", "margin"),
    [
        ([0.50, 0.80, 0.30, 0.10, 0.58], None),  # the line falls, the ends rise
        ([0.49, 0.20, 0.50, 0.60, 0.44], None),  # the line rises, the ends fall
        ([0.01, 0.50, 0.01], 0.05),  # the line is level, the differences are not
        ([-0.50, -0.90, -0.30, -0.20, -0.58], None),
    ],
)
def test_a_line_that_the_differences_contradict_says_nothing(gaps: list[float], margin: float | None) -> None:
    levels = [500 * 2**i for i in range(len(gaps))]
    trend = trends_of({"no_wo": gaps}, levels=levels, margin=margin)["no_wo"]
    assert trend.slope is not None and trend.slope.p is not None
    assert trend.kind is TrendKind.INCONCLUSIVE and trend.reason is TrendReason.NOT_A_LINE


def test_lost_seeds_cannot_turn_a_trend_around() -> None:
    """The line is that of the seeds of every level, the differences are those of all seeds."""
    runs, spec = made_up_levels({"no_wo": [0.50, 0.40]}, levels=(500, 1000), seeds=6)
    for run in runs:
        if run["variant"] == "no_wo" and run["seed"] > 2:
            run["state"] = "diverged" if run["train.steps"] == 500 else run["state"]
            run["bits_per_byte"] += 0.5 * (run["train.steps"] == 1000)
    trend = summarize_trends(summarize_cells(runs, spec), spec)[0]
    assert trend.slope is not None and trend.slope.interval.n == 3 and trend.slope.interval.mean < 0
    assert trend.kind is TrendKind.INCONCLUSIVE and trend.reason is TrendReason.LOSSES


def test_no_trend_is_steady_without_a_margin() -> None:
    trend = trends_of({"no_wo": [0.03] * 3})["no_wo"]
    assert trend.kind is TrendKind.INCONCLUSIVE and trend.slope is not None and trend.slope.p_equivalent is None


def test_a_significant_slope_around_zero_neither_shrinks_nor_grows() -> None:
    """The ends do not differ from zero, so that the size of the difference may be the same at both."""
    trend = trends_of({"no_wo": [0.05, 0.0, -0.05]}, seeds=12, noise=0.08)["no_wo"]
    assert trend.slope is not None and trend.slope.p is not None and trend.slope.p < 0.05
    assert trend.kind is TrendKind.CHANGES and trend.mean_changes_sign
    assert trend.p_size is not None and trend.p_size >= 0.05


def test_slopes_are_those_of_least_squares_and_their_test_that_of_scipy() -> None:
    runs, spec = made_up_levels({"no_wo": [-0.05, -0.03, -0.01]}, noise=0.02)
    trend = summarize_trends(summarize_cells(runs, spec), spec)[0]
    values = {(run["variant"], run["train.steps"], run["seed"]): run["bits_per_byte"] for run in runs}
    gaps = numpy.array([[values["no_wo", n, seed] - values["dense", n, seed] for n in LEVELS] for seed in range(5)])
    slopes, starts = numpy.polyfit(numpy.log2(LEVELS), gaps.T, 1)
    assert trend.slope is not None and trend.middle is not None and trend.change is not None
    assert trend.slope.interval.mean == pytest.approx(slopes.mean())
    tested = stats.ttest_1samp(slopes, 0)
    assert trend.slope.p == pytest.approx(tuple(tested)[1])
    interval = tested.confidence_interval()
    assert (trend.slope.interval.low, trend.slope.interval.high) == pytest.approx((interval.low, interval.high))
    assert trend.middle.interval.mean == pytest.approx((starts + slopes * log2(1500)).mean())
    assert trend.change.mean == pytest.approx(slopes.mean() * log2(9)) and trend.doublings == pytest.approx(log2(9))


def test_the_margin_of_a_slope_is_that_of_the_study_over_the_range() -> None:
    trend = trends_of({"no_wo": [0.03] * 3}, margin=0.01, noise=0.02)["no_wo"]
    assert trend.slope is not None and trend.slope.margin == pytest.approx(0.01 / log2(9))


def test_p_values_are_corrected_over_the_trends_of_the_table() -> None:
    one = trends_of({"a": [0.0, 0.006, 0.012]}, noise=0.002)["a"]
    several = trends_of({"a": [0.0, 0.006, 0.012], "b": [0.0] * 3, "c": [0.0] * 3}, noise=0.002)["a"]
    assert one.slope is not None and several.slope is not None and one.slope.p == several.slope.p == one.slope.p_holm
    assert several.slope.p_holm == pytest.approx(3 * several.slope.p)  # type: ignore[operator]


def test_only_seeds_of_every_level_count() -> None:
    runs, spec = made_up_levels({"no_wo": [-0.05, -0.03, -0.01]})
    runs = [run for run in runs if (run["cell"], run["seed"]) != ("no_wo steps=1500", 2)]
    runs = [run | ({"state": "diverged"} if (run["cell"], run["seed"]) == ("dense steps=4500", 4) else {}) for run in runs]
    trend = summarize_trends(summarize_cells(runs, spec), spec)[0]
    assert trend.slope is not None and trend.slope.interval.n == 3 and len(trend.levels) == 3


def test_a_level_without_a_comparison_is_left_out() -> None:
    runs, spec = made_up_levels({"no_wo": [-0.05, -0.03, -0.01]})
    without = [run for run in runs if run["train.steps"] != 4500 or run["variant"] == "dense"]
    trend = summarize_trends(summarize_cells(without, spec), spec)[0]
    assert trend.levels == (500, 1500) and trend.kind is TrendKind.SHRINKS
    alone = [run for run in without if run["train.steps"] != 1500 or run["variant"] == "dense"]
    trend = summarize_trends(summarize_cells(alone, spec), spec)[0]
    assert (trend.kind, trend.reason) == (TrendKind.INCONCLUSIVE, TrendReason.ONE_LEVEL) and trend.slope is None


def test_seeds_that_no_two_levels_share_have_no_trend() -> None:
    runs, spec = made_up_levels({"no_wo": [-0.05, -0.01]}, levels=(500, 1500), seeds=4)
    runs = [run for run in runs if (run["seed"] < 2) == (run["train.steps"] == 500)]
    trend = summarize_trends(summarize_cells(runs, spec), spec)[0]
    assert trend.reason is TrendReason.NO_SHARED_SEED and trend.change is None


def test_one_seed_and_too_few_for_the_first_look() -> None:
    assert trends_of({"no_wo": [-0.05, -0.03, -0.01]}, seeds=1)["no_wo"].reason is TrendReason.ONE_SEED
    runs, spec = made_up_levels({"no_wo": [-0.05, -0.03, -0.01]}, seeds=2)
    spec = changed(spec, looks=Looks(3, 12))
    assert summarize_trends(summarize_cells(runs, spec), spec)[0].reason is TrendReason.BEFORE_FIRST_LOOK


def test_looks_count_for_trends() -> None:
    runs, spec = made_up_levels({"no_wo": [-0.05, -0.04, -0.03]}, noise=0.01)
    cells = summarize_cells(runs, spec)
    plain = summarize_trends(cells, spec)[0].slope
    looked = summarize_trends(cells, changed(spec, looks=Looks(3, 12)))[0].slope
    assert plain is not None and looked is not None and plain.p is not None and looked.p is not None
    assert looked.p > plain.p and looked.interval.half_width > plain.interval.half_width  # type: ignore[operator]


def test_the_same_difference_at_every_level_is_steady_and_rounding_is_no_trend() -> None:
    trend = trends_of({"no_wo": [0.1, 0.1, 0.1]}, noise=0.0)["no_wo"]
    assert trend.kind is TrendKind.STEADY and trend.slope is not None and trend.slope.identical
    assert trends_of({"no_wo": [0.1] * 3}, noise=0.0, seeds=3)["no_wo"].kind is TrendKind.INCONCLUSIVE


def test_each_baseline_and_each_other_axis_has_trends_of_its_own() -> None:
    runs, spec = made_up_levels({"no_wo": [-0.05, -0.03, -0.01], "gru": [0.05, 0.05, 0.05]})
    spec = changed(spec, further_baselines=({"variant": "gru"},))
    trends = summarize_trends(summarize_cells(runs, spec), spec)
    assert [(trend.name, trend.baseline) for trend in trends] == [("no_wo", "dense"), ("no_wo", "gru"), ("gru", "dense")]
    assert {trend.kind for trend in trends[:2]} == {TrendKind.SHRINKS}


def test_swept_cells_are_compared_at_their_best_rates() -> None:
    runs, spec = made_up_levels({"no_wo": [-0.05, -0.03, -0.01]})
    (plain,) = summarize_trends(summarize_cells(runs, spec), spec)
    spec = changed(spec, sweep="train.lr")
    (trend,) = summarize_trends(summarize_cells(swept(runs), spec), spec)
    assert trend.kind is TrendKind.SHRINKS and trend.slope is not None and plain.slope is not None
    assert trend.slope.interval.mean == pytest.approx(plain.slope.interval.mean)
