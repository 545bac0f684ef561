"""Tests of the simulations of exact tests and of fragile verdicts: they judge as a report does, and the limits hold."""

from functools import partial

import numpy
import pytest

from attnlab.config.question import EstimandConfig
from attnlab.stats import paired
from attnlab.stats.joint import moderate
from benchmarks.estimands import (
    EXACT_TESTS,
    SOLVING,
    bimodal,
    fragile,
    solve_rate_p,
)

RATE = EstimandConfig(name="solve_rate", threshold=SOLVING)


def test_the_simulated_tests_are_those_of_a_report() -> None:
    cell, baseline = bimodal(0.8, 0.3, 0.3, (40, 6), seed=3)
    estimator = RATE.estimator("recall", "max")
    for i, one in enumerate(solve_rate_p(cell, baseline)):
        pair = (dict(enumerate(scores[i].tolist())) for scores in (cell, baseline))
        difference = estimator.compare(*pair)
        assert difference is not None and difference.p == pytest.approx(min(1.0, 2 * one))


@pytest.mark.parametrize("moderated", [False, True])
def test_fragile_verdicts_are_those_of_a_report(moderated: bool) -> None:
    differences = numpy.random.RandomState(2).gamma(1, 1, (60, 4, 6)) - 1.0
    differences[:, 0] -= 1.5
    called, weak = fragile(differences, moderated=moderated)
    zero = dict.fromkeys(range(6), 0.0)
    for i, table in enumerate(differences.tolist()):
        tested = [paired.difference(dict(enumerate(gaps)), zero) for gaps in table]
        judged = paired.correct(moderate(tested) if moderated else tested)
        assert [bool(d and d.conclusion) for d in judged] == called[i].tolist()
        assert [bool(d and d.fragile) for d in judged] == weak[i].tolist()
    assert 0 < weak.sum() < called.sum()


@pytest.mark.parametrize("setting", EXACT_TESTS.settings, ids=lambda setting: f"{setting.group}, {setting.name}")
def test_exact_tests_keep_their_level(setting) -> None:  # type: ignore[no-untyped-def]
    shares = setting.run(10_000, 11)
    assert shares["false"].value < 0.05 + 3 * 0.0022


def test_false_verdicts_of_skewed_seeds_are_called_fragile_more_often_than_sound_ones() -> None:
    random = numpy.random.RandomState(0)
    skewed = partial(fragile, moderated=False)
    nothing = random.gamma(1, 1, (4_000, 4, 8)) - 1
    shifted = random.standard_normal((4_000, 4, 8)) + 3.0
    (false, caught), (sound, alarms) = skewed(nothing), skewed(shifted)
    assert caught.sum() / false.sum() > 0.45 > 0.15 > alarms.sum() / sound.sum()
    far = fragile(shifted + 5.0, moderated=False)[1].mean()
    assert far < 0.001 < 0.2 < fragile(shifted + 5.0, moderated=False, cubic=False)[1].mean()
