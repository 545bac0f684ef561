"""Tests of the contrasts of several studies."""

from dataclasses import replace

import pytest

from attnlab.stats.compare import summarize_cells
from attnlab.stats.contrasts import Effect, StudyTable, contrasts_of, relative_effect
from tests.support.levels import made_up_levels
from tests.support.several import made_up_study
from tests.support.specs import comparison_spec


def test_contrasts_differ_by_baseline_and_the_control_is_none_of_them() -> None:
    first = made_up_study("a", {"no_wo": 0.02, "none": 0.5}, control={"variant": "none"})
    further = made_up_study("b", {"no_wo": 0.02, "basic": 0.1}, further_baselines=({"variant": "basic"},))
    labels = [contrast.label for contrast in contrasts_of([first, further])]
    assert labels == ["no_wo against dense", "no_wo against basic", "basic against dense"]


def test_the_highest_level_counts() -> None:
    runs, spec = made_up_levels({"no_wo": [0.05, 0.03, 0.01]})
    cells = summarize_cells(runs, spec)
    table = StudyTable("levels", spec, cells)
    other = replace(table, name="again")
    (contrast,) = contrasts_of([table, other])
    (first, _) = contrast.studies
    assert [c.axes["train.steps"] for c in first.comparisons] == ["4500"] and len(first.lower_levels) == 2


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
        (low, high), (outer_low, _) = effect.ends, effect.outer
        assert low is not None and high is not None and outer_low is not None and low < effect.mean < high
    assert effect_of("score", 2.0, 0.1) is None  # no known natural zero
    assert effect_of("accuracy", 1.0, 0.0) is None  # no error to be a part of
    assert effect_of("loss", -3.0, 0.1) is None
    assert effect_of("loss", -1e-4, 0.1) is None  # below zero with one seed: a ratio to the mean means nothing


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_scores_of_translations_are_relative_to_the_score(metric: str) -> None:
    effect = effect_of(metric, 30.0, -0.3)
    assert effect is not None and effect.mean == pytest.approx(1.0, rel=0.01), "a lower score is worse, so positive"
    low, high = effect.ends
    assert low is not None and high is not None and low < effect.mean < high
