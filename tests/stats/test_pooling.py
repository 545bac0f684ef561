"""Tests of relative effects and their mean over studies."""

import math

import pytest
from scipy import stats

from attnlab.stats.cells import CellSummary
from attnlab.stats.compare import summarize_cells
from attnlab.stats.contrasts import Effect, average, heterogeneity, independent_groups, pool, relative_effect
from attnlab.stats.sequential import Looks
from tests.support.specs import comparison_spec


def effect_of(metric: str, base: float, gap: float) -> Effect | None:
    spec = comparison_spec(
        "s", ("variant",), metric, "max" if metric in ("accuracy", "bleu", "chrf") else "min", {"variant": "dense"}
    )
    runs = [
        {
            "variant": variant,
            "state": "completed",
            "seed": seed,
            metric: base + seed / 1e4 + (gap + base * seed**2 / 1e5) * (variant != "dense"),
        }
        for variant in ("dense", "no_wo")
        for seed in range(4)
    ]
    dense, cell = summarize_cells(runs, spec)
    return relative_effect(cell, dense, spec)


def test_a_loss_is_relative_to_the_loss_and_an_accuracy_to_the_error_rate() -> None:
    worse, better = effect_of("bits_per_byte", 2.0, 0.02), effect_of("accuracy", 0.9, 0.01)
    assert worse is not None and better is not None
    assert worse.mean == pytest.approx(1.0, rel=0.01) and better.mean == pytest.approx(-10.0, rel=0.01)
    for effect in (worse, better):
        assert effect.low is not None and effect.high is not None and effect.outer_low is not None
        assert effect.low < effect.mean < effect.high and effect.degrees_of_freedom == 3
    assert effect_of("score", 2.0, 0.1) is None  # no known natural zero
    assert effect_of("accuracy", 1.0, 0.0) is None  # no error to be a part of
    assert effect_of("loss", -3.0, 0.1) is None
    assert effect_of("loss", -1e-4, 0.1) is None  # below zero with one seed: a ratio to the mean means nothing


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_scores_of_translations_are_relative_to_the_score(metric: str) -> None:
    effect = effect_of(metric, 30.0, -0.3)
    assert effect is not None and effect.mean == pytest.approx(1.0, rel=0.01), "a lower score is worse, so positive"
    assert effect.low is not None and effect.high is not None and effect.low < effect.mean < effect.high


def test_the_mean_is_that_of_a_t_test_and_its_prediction_that_of_one_more_value() -> None:
    values = [1.0, 1.5, 0.7, 1.1]
    pooled = pool([Effect(value, error=0.1, degrees_of_freedom=4) for value in values])
    assert pooled is not None and pooled.mean.interval.low is not None
    test = stats.ttest_1samp(values, 0.0)
    assert pooled.mean.p == pytest.approx(test.pvalue)  # type: ignore[attr-defined]
    assert pooled.mean.interval.low == pytest.approx(test.confidence_interval().low)
    half_width = stats.t.ppf(0.975, 3) * stats.tstd(values) * math.sqrt(1 + 1 / 4)
    assert pooled.prediction[1] == pytest.approx(sum(values) / 4 + half_width)


def test_two_effects_have_no_mean() -> None:
    assert pool([Effect(1.0), Effect(2.0)]) is None


def test_heterogeneity_is_what_errors_do_not_explain() -> None:
    alike = heterogeneity([Effect(mean, error=1.0, degrees_of_freedom=4) for mean in (0.0, 0.9, 1.8)])
    apart = heterogeneity([Effect(mean, error=0.01, degrees_of_freedom=4) for mean in (1.0, 3.0, 5.0)])
    assert alike is not None and apart is not None
    assert alike.tau == 0 == alike.i_squared and alike.low == 0 < alike.high
    assert apart.tau == pytest.approx(2.0, rel=0.01) and apart.low > 0.9 and apart.i_squared <= apart.high
    # With equal errors, the ratio of the variances has the F distribution with k - 1 and k (n - 1) degrees of freedom.
    assert apart.low == pytest.approx(1 - 1 / (4.0 / 1e-4 / stats.f.ppf(0.975, 2, 12)))
    assert heterogeneity([Effect(1.0, error=0.1, degrees_of_freedom=4), Effect(2.0)]) is None


def test_effects_that_are_not_independent_are_averaged_with_their_intervals() -> None:
    both = average(
        [Effect(1.0, 0.5, 1.5, error=0.2, degrees_of_freedom=4), Effect(3.0, 2.9, 3.1, error=0.1, degrees_of_freedom=2)]
    )
    assert (both.mean, both.low, both.high, both.degrees_of_freedom) == (2.0, 1.7, 2.3, 2)
    assert both.error == pytest.approx(0.15)
    assert average([Effect(1.0, 0.5, 1.5), Effect(3.0)]).low is None


def test_studies_that_share_data_and_a_seed_are_one_group() -> None:
    a, b = frozenset({0, 1}), frozenset({1, 2})
    x, y, none = frozenset({"x"}), frozenset({"y"}), frozenset[str]()
    assert independent_groups([(x, a), (x, b), (y, a)]) == [[0, 1], [2]]
    assert independent_groups([(x, frozenset({0})), (x, frozenset({2})), (x, frozenset({0, 2}))]) == [[0, 1, 2]]
    assert independent_groups([(x, frozenset({0})), (x, frozenset({1})), (none, a), (none, a)]) == [[0], [1], [2], [3]]


def test_an_effect_keeps_the_correction_for_looks() -> None:
    spec = comparison_spec("s", ("variant",), "loss", "min", {"variant": "dense"}, looks=Looks(3, 6))
    runs = [
        {"variant": v, "state": "completed", "seed": s, "loss": 2.0 + 0.1 * (v != "dense") * (s + 1)}
        for v in ("dense", "no_wo")
        for s in range(5)
    ]
    cells: list[CellSummary] = summarize_cells(runs, spec)
    effect = relative_effect(cells[1], cells[0], spec)
    assert effect is not None and effect.low is not None and cells[1].difference is not None
    assert effect.low == pytest.approx(50 * cells[1].difference.interval.low)  # type: ignore[operator]
