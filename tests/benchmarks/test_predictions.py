"""Tests of the calibration of predicted verdicts in a few thousand simulated studies."""

import pytest

from attnlab.stats import paired
from attnlab.stats.predict import Prediction
from benchmarks import predictions
from benchmarks.power import power
from benchmarks.predictions import Decile, calibrate, kept_predictions

STUDIES = 5_000


@pytest.mark.parametrize("pairs", [4, 8])
def test_verdicts_come_about_as_often_as_predicted(pairs: int) -> None:
    """Over true differences of all sizes, each tenth of the predictions holds within 10 points, and all within 3."""
    for deciles in calibrate("all sizes", pairs, 1, studies=STUDIES, seed=5).values():
        assert sum(decile.cases for decile in deciles if decile.predicted > 0.1) > 200
        for decile in deciles:
            assert decile.cases == 0 or abs(decile.happened - decile.predicted) < 0.1 + 3 * (0.25 / decile.cases) ** 0.5
        assert abs(_bias(deciles)) < 0.03


def test_the_check_catches_predictions_that_take_the_estimate_for_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(difference: paired.Difference, seeds: int) -> Prediction:
        """Predict as if mean and spread stayed as observed."""
        mean = difference.interval
        assert mean.sd is not None
        return Prediction(seeds, power(seeds, mean.mean, sd=mean.sd), 0.0)

    assert abs(_bias(calibrate("all sizes", 4, 1, studies=STUDIES, seed=5)["differs"])) < 0.03
    monkeypatch.setattr(predictions, "predict", careless)
    assert abs(_bias(calibrate("all sizes", 4, 1, studies=STUDIES, seed=5)["differs"])) > 0.06


def test_a_study_is_conclusive_with_the_predicted_number_of_seeds() -> None:
    share, median = kept_predictions("all sizes", 5, most=100, studies=2_000, seed=1)
    assert share.of > 50 and share.value > 0.8 - 3 * share.error and median > 6


def test_where_many_cells_do_not_differ_fewer_differ_than_predicted() -> None:
    """The page names this limit; if it disappears, so must the sentence."""
    assert _bias(calibrate("half are zero", 8, 1, studies=STUDIES, seed=5)["differs"]) < -0.01


def _bias(deciles: list[Decile]) -> float:
    """Return by how much verdicts come about more often than predicted."""
    return sum((d.happened - d.predicted) * d.cases for d in deciles) / sum(d.cases for d in deciles)
