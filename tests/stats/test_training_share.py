"""Tests of differences as a share of training."""

import math
from typing import Any

import pandas
import pytest
from numpy.random import RandomState
from scipy import stats

from attnlab.report.training_share import share_notes
from attnlab.stats.compare import summarize_cells
from attnlab.stats.training_share import Curve, ShareSource, running_mean, share_of, summarize_shares, training_share
from attnlab.stats.trend import summarize_trends
from tests.support.levels import made_up_levels, swept
from tests.support.specs import changed, comparison_spec

STEPS = range(100, 1001, 100)


def power_law(speed: float = 1.0, *, steps: range = STEPS, shift: float = 0.0) -> Curve:
    """Return a curve that falls as a power of the steps, as that of a cell which needs 1 / `speed` as many."""
    return [(step, 2 + 5 * (speed * step) ** -0.5 + shift) for step in steps]


def test_the_share_is_that_of_a_curve_that_is_run_through_faster() -> None:
    steps = range(1, 1001)
    cell, baseline = ({seed: power_law(speed, steps=steps, shift=seed / 10) for seed in range(3)} for speed in (1 / 0.8, 1.0))
    share = training_share(cell, baseline, direction="min", flops=1.5, seconds={0: 1.0, 1: 2.0, 2: 4.0})
    assert share is not None and not share.reversed and not share.bounded
    steps_share, flops, seconds = share.shares()
    assert steps_share is not None and flops is not None and seconds is not None
    assert steps_share.mean == pytest.approx(0.8, abs=1e-4) and flops.mean == pytest.approx(1.2, abs=1e-3)
    assert seconds.mean == pytest.approx(0.8 * 2, abs=1e-3), "the geometric mean over seeds"
    opposite = training_share(baseline, cell, direction="min", flops=1 / 1.5)
    assert opposite is not None and opposite.reversed
    assert opposite.shares()[0] == pytest.approx(steps_share) and opposite.shares()[1].mean == pytest.approx(1.2, abs=1e-3)  # type: ignore[union-attr]


def test_a_score_that_grows_is_reached_from_below() -> None:
    cell, baseline = {0: [(10, 0.4), (20, 0.8), (30, 0.9)]}, {0: [(10, 0.2), (20, 0.4), (30, 0.6)]}
    share = training_share(cell, baseline, direction="max")
    assert share is not None and share.shares()[0].mean == pytest.approx(15 / 30)  # type: ignore[union-attr]
    assert share.log_ratio.low is None, "one seed has no interval"


def test_the_interval_is_that_of_the_logarithms() -> None:
    cell = {seed: [(10, 3.0), (part, 2.0), (100, 1.0)] for seed, part in enumerate((40, 50, 80))}
    baseline = {seed: [(10, 3.0), (100, 2.0)] for seed in range(3)}
    share = training_share(cell, baseline, direction="min")
    assert share is not None
    expected = stats.ttest_1samp([math.log(part) for part in (0.4, 0.5, 0.8)], 0).confidence_interval()
    (steps, _, _) = share.shares()
    assert steps is not None and (steps.low, steps.high) == pytest.approx((math.exp(expected.low), math.exp(expected.high)))
    assert steps.mean == pytest.approx(0.16 ** (1 / 3))
    reverse = share_of(share.log_ratio, reverse=True)
    assert (reverse.low, reverse.high) == pytest.approx((1 / steps.high, 1 / steps.low))  # type: ignore[operator]


def test_exchanging_cell_and_baseline_turns_the_share_round_however_noisy_the_curves_are() -> None:
    random = RandomState(0)
    noisy = [
        {seed: [(step, value + random.normal(0, 0.05)) for step, value in power_law()] for seed in range(20)} for _ in range(2)
    ]
    one, other = training_share(*noisy, direction="min"), training_share(*reversed(noisy), direction="min")
    assert one is not None and other is not None
    assert one.log_ratio.mean == pytest.approx(-other.log_ratio.mean)
    assert one.log_ratio.low == pytest.approx(-other.log_ratio.high)  # type: ignore[operator]


def test_a_score_that_is_reached_before_the_first_point_gives_a_bound() -> None:
    share = training_share({0: [(10, 1.0), (20, 0.5)]}, {0: [(10, 3.0), (20, 2.0)]}, direction="min")
    assert share is not None and share.bounded and share.shares()[0].mean == 0.5  # type: ignore[union-attr]


def test_what_has_no_curve_has_no_share() -> None:
    assert training_share({0: power_law()}, {1: power_law()}, direction="min") is None
    assert training_share({0: [(10, 1.0)]}, {0: power_law()}, direction="min") is None
    assert training_share({0: [(10, float("nan")), (20, 1.0)]}, {0: power_law()}, direction="min") is None


def test_points_far_apart_are_interpolated_over_the_logarithm_of_the_steps() -> None:
    curves = {0: [(100, 3.0), (1600, 1.0)]}, {0: [(100, 4.0), (1600, 2.0)]}
    linear, logarithmic = (training_share(*curves, direction="min", log_steps=log) for log in (False, True))
    assert linear is not None and logarithmic is not None
    assert linear.shares()[0].mean == pytest.approx(850 / 1600)  # type: ignore[union-attr]
    assert logarithmic.shares()[0].mean == pytest.approx(400 / 1600)  # type: ignore[union-attr]


def test_the_running_mean_is_centred() -> None:
    smooth = running_mean([(step, 2.0 * step) for step in range(10, 101, 10)])
    assert list(smooth) == [(step, pytest.approx(2.0 * step)) for step in range(20, 91, 10)]
    assert len(running_mean([(step, 1.0) for step in range(100)])) == 91


SPEC = comparison_spec("s", ("variant",), "bits_per_byte", "min", {"variant": "dense"})


def runs_with_curves(points: int, metric: str) -> tuple[list[dict[str, object]], pandas.DataFrame]:
    """Return runs of `dense` and of a cell that needs 0.8 of the steps, each step costing 1.5 as many FLOPs."""
    runs: list[dict[str, object]] = []
    rows = []
    for variant, speed, flops in (("dense", 1.0, 2.0), ("fast", 1 / 0.8, 3.0)):
        for seed in range(3):
            run_id = f"{variant}{seed}"
            run = {"run_id": run_id, "cell": variant, "variant": variant, "seed": seed, "state": "completed", "reason": ""}
            costs = {"flops_per_token": flops, "tokens_per_s": 1_000 / flops, "tokens": 64_000.0, "steps": 1_000.0}
            runs.append({**run, **costs, "bits_per_byte": 2 - speed / 10 + seed / 10})
            steps = range(1_000 // points, 1_001, 1_000 // points)
            rows += [(run_id, metric, step, value) for step, value in power_law(speed, steps=steps, shift=seed / 10)]
    return runs, pandas.DataFrame(rows, columns=["run_id", "metric", "step", "value"])


@pytest.mark.parametrize(
    ("points", "metric", "source"),
    [(20, "valid/bits_per_byte", ShareSource.VALIDATION), (100, "train/loss", ShareSource.LOSS)],
)
def test_the_share_of_a_study_is_read_from_its_curves(points: int, metric: str, source: ShareSource) -> None:
    runs, curves = runs_with_curves(points, metric)
    (share,) = summarize_shares(summarize_cells(runs, SPEC), runs, curves, spec=SPEC)
    assert (share.name, share.baseline, share.source) == ("fast", "dense", source)
    steps, flops, seconds = share.share.shares()
    assert steps is not None and flops is not None and seconds is not None
    assert steps.n == 3 and steps.mean == pytest.approx(0.8, abs=0.01)
    assert flops.mean == pytest.approx(1.5 * steps.mean) == pytest.approx(seconds.mean)


def test_stages_count_in_the_flops_and_the_time_but_not_in_the_steps() -> None:
    cell, baseline = {0: [(10, 3.0), (40, 2.0), (80, 1.0)]}, {0: [(10, 4.0), (100, 2.0)]}
    stages: dict[str, Any] = {"stage_flops": {0: (60.0, 20.0)}, "stage_seconds": {0: (200.0, 0.0)}}
    share = training_share(cell, baseline, direction="min", flops=2.0, seconds={0: 0.5}, **stages)
    assert share is not None and share.has_stages
    expected = 40 / 100, 2 * (60 + 40) / (20 + 100), 0.5 * (200 + 40) / 100
    assert [interval and interval.mean for interval in share.shares()] == pytest.approx(expected)
    swapped: dict[str, Any] = {name: {0: of_seed[0][::-1]} for name, of_seed in stages.items()}
    opposite = training_share(baseline, cell, direction="min", flops=0.5, seconds={0: 2.0}, **swapped)
    assert opposite is not None and opposite.reversed
    assert [interval and interval.mean for interval in opposite.shares()] == pytest.approx(expected)


def test_a_chain_is_charged_with_its_stages() -> None:
    """The chain of `fast` spends as much on a stage as on its own run."""
    runs, curves = runs_with_curves(20, "valid/bits_per_byte")
    for run in runs:
        tokens, flops, speed = (float(str(run[name])) for name in ("tokens", "flops_per_token", "tokens_per_s"))
        run["train_seconds"] = tokens / speed
        if run["variant"] == "fast":
            run |= {"chain_flops": 2 * 3 * flops * tokens, "chain_seconds": 2 * tokens / speed}
    (share,) = summarize_shares(summarize_cells(runs, SPEC), runs, curves, spec=SPEC)
    steps, flops, seconds = share.share.shares()
    assert steps is not None and flops is not None and seconds is not None
    assert steps.mean == pytest.approx(0.8, abs=0.01)
    assert flops.mean == pytest.approx(1.5 * (1 + steps.mean), rel=1e-3) == pytest.approx(seconds.mean)
    assert any("stages" in note for note in share_notes([share]))
    plain, curves = runs_with_curves(20, "valid/bits_per_byte")
    (share,) = summarize_shares(summarize_cells(plain, SPEC), plain, curves, spec=SPEC)
    assert not share.share.has_stages and not any("stages" in note for note in share_notes([share]))


@pytest.mark.parametrize(("points", "metric"), [(2, "valid/bits_per_byte"), (8, "train/loss")])
def test_too_few_points_give_no_share(points: int, metric: str) -> None:
    runs, curves = runs_with_curves(points, metric)
    assert summarize_shares(summarize_cells(runs, SPEC), runs, curves, spec=SPEC) == []


@pytest.mark.parametrize(("points", "metric", "count"), [(20, "valid/bits_per_byte", 1), (100, "train/loss", 0)])
def test_losses_per_token_of_different_tokens_give_no_share(points: int, metric: str, count: int) -> None:
    runs, curves = runs_with_curves(points, metric)
    for run in runs:
        run["data"] = "the text" if run["variant"] == "dense" else "the text byte_bpe:1024:1"
    assert len(summarize_shares(summarize_cells(runs, SPEC), runs, curves, spec=SPEC)) == count


def test_trainings_of_several_lengths_are_preferred_to_curves() -> None:
    """From 500 to 4,500 steps `dense` loses 0.2; a cell that is 0.1 better all along needs a third of the steps."""
    runs, spec = made_up_levels({"no_wo": [-0.1] * 3, "wide": [0.1] * 3}, noise=1e-6)
    cells = summarize_cells(runs, spec)
    curves = pandas.DataFrame(columns=["run_id", "name", "metric", "step", "value"])
    shares = summarize_shares(cells, runs, curves, spec=spec, trends=summarize_trends(cells, spec))
    assert [(share.name, share.source, share.share.reversed) for share in shares] == [
        ("no_wo", ShareSource.LEVELS, False),
        ("wide", ShareSource.LEVELS, True),
    ]
    for share in shares:
        steps, flops, _ = share.share.shares()
        assert steps is not None and flops is not None and steps.mean == pytest.approx(1 / 3, rel=1e-3)
        assert flops.mean == pytest.approx(steps.mean) and share.levels == (500, 1500, 4500)


def test_every_comparison_has_a_share_if_no_level_is_a_length_of_training() -> None:
    runs, spec = made_up_levels({"no_wo": [-0.1] * 3})
    rows = [(run["run_id"], "valid/bits_per_byte", step, v + run["bits_per_byte"]) for run in runs for step, v in power_law()]
    curves = pandas.DataFrame(rows, columns=["run_id", "metric", "step", "value"])
    shares = summarize_shares(summarize_cells(runs, spec), runs, curves, spec=changed(spec, over=""))
    assert [share.name for share in shares] == [f"no_wo steps={level}" for level in (500, 1500, 4500)]


def test_a_sweep_has_the_shares_at_the_best_value_tried() -> None:
    runs, spec = made_up_levels({"no_wo": [-0.1] * 3})
    runs, spec = swept(runs), changed(spec, over="", sweep="train.lr")
    rows = [(run["run_id"], "valid/bits_per_byte", step, v + run["bits_per_byte"]) for run in runs for step, v in power_law()]
    curves = pandas.DataFrame(rows, columns=["run_id", "metric", "step", "value"])
    best = [run for run in runs if run["train.lr"] == 10**-2.5]
    cells = summarize_cells(runs, spec)
    assert cells[0].curve is not None and cells[0].curve.best == 10**-2.5
    shares = summarize_shares(cells, runs, curves, spec=spec)
    assert shares == summarize_shares(cells, best, curves, spec=spec) and shares[0].share.log_ratio.n == 5
