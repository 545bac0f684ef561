"""Tests of predicted verdicts: against simulation, at their limits, and their calibration."""

from dataclasses import replace

import numpy
import pytest

from attnlab.stats import paired
from attnlab.stats.predict import POWER, predict, predicted_seeds
from attnlab.stats.sequential import Looks
from attnlab.stats.variance_prior import VariancePrior

VALUES = [0.01, 0.03, -0.01, 0.02, 0.015]


def difference(values: list[float], *, margin: float | None = None, looks: Looks | None = None) -> paired.Difference:
    zero = dict.fromkeys(range(len(values)), 0.0)
    (corrected,) = paired.correct([paired.difference(dict(enumerate(values)), zero, margin=margin, looks=looks)])
    assert corrected is not None
    return corrected


@pytest.mark.parametrize("added", [1, 4, 20])
def test_a_prediction_is_the_share_of_verdicts_over_draws_from_the_posterior(added: int) -> None:
    from scipy.stats import t

    random, n, studies, margin = numpy.random.RandomState(0), len(VALUES), 40_000, 0.02
    variance = (n - 1) * numpy.var(VALUES, ddof=1) / random.chisquare(n - 1, studies)
    truth = numpy.mean(VALUES) + numpy.sqrt(variance / n) * random.standard_normal(studies)
    new = truth[:, None] + numpy.sqrt(variance)[:, None] * random.standard_normal((studies, added))
    values = numpy.hstack([numpy.tile(VALUES, (studies, 1)), new])
    mean, error = abs(values.mean(1)), values.std(1, ddof=1) / (n + added) ** 0.5
    differs = mean / error > t.ppf(0.975, n + added - 1)
    equivalent = (margin - mean) / error > t.ppf(0.95, n + added - 1)
    prediction = predict(difference(VALUES, margin=margin), n + added)
    assert prediction.seeds == n + added
    assert prediction.differs == pytest.approx(differs.mean(), abs=0.012)
    assert prediction.equivalent == pytest.approx((equivalent & ~differs).mean(), abs=0.012)
    assert prediction.conclusive == pytest.approx((equivalent | differs).mean(), abs=0.012)


def test_a_moderated_variance_counts_with_its_degrees_of_freedom() -> None:
    """The draws come from the posterior with the prior; later tests are moderated by it, and need the pairs' t-test, too."""
    from scipy.stats import t

    random, n, studies, added = numpy.random.RandomState(1), 3, 40_000, 2
    prior = VariancePrior(4, 0.0004)
    values, freedom = numpy.array(VALUES[:n]) + 0.01, 4 + n - 1
    plain = difference(values.tolist())
    moderated = replace(plain, interval=replace(plain.interval, prior=prior), levels=(0.02, 0.02))
    squares = 4 * prior.variance + ((values - values.mean()) ** 2).sum()
    variance = squares / random.chisquare(freedom, studies)
    truth = values.mean() + numpy.sqrt(variance / n) * random.standard_normal(studies)
    new = truth[:, None] + numpy.sqrt(variance)[:, None] * random.standard_normal((studies, added))
    every = numpy.hstack([numpy.tile(values, (studies, 1)), new])
    later = (4 * prior.variance + ((every - every.mean(1, keepdims=True)) ** 2).sum(1)) / (freedom + added)
    of_table = abs(every.mean(1)) / numpy.sqrt(later / (n + added)) > t.ppf(0.99, freedom + added)
    alone = abs(every.mean(1)) / numpy.sqrt(every.var(1, ddof=1) / (n + added)) > t.ppf(0.975, n + added - 1)
    differs = of_table & alone
    assert 0.2 < differs.mean() < min(of_table.mean(), alone.mean()) - 0.02, "either test decides in some studies"
    assert predict(moderated, n + added).differs == pytest.approx(differs.mean(), abs=0.012)


def test_without_a_margin_nothing_is_predicted_to_be_equivalent() -> None:
    with_margin, without = predict(difference(VALUES, margin=1.0), 6), predict(difference(VALUES), 6)
    assert without.equivalent is None and without.conclusive == without.differs == with_margin.differs
    assert with_margin.equivalent == pytest.approx(1 - with_margin.differs), "the margin is far wider than the spread"


def test_what_is_left_of_the_level_decides() -> None:
    alone = difference(VALUES)
    in_a_table = replace(alone, levels=(0.05 / 4, 0.05))
    often = difference(VALUES, looks=Looks(3, 12))
    assert predict(in_a_table, 8).differs < predict(alone, 8).differs
    assert predict(often, 8).differs < predict(alone, 8).differs


@pytest.mark.parametrize("margin", [None, 0.02])
def test_the_predicted_number_of_seeds_is_the_first_that_reaches_the_probability(margin: float | None) -> None:
    close = difference(VALUES, margin=margin)
    seeds = predicted_seeds(close)
    assert seeds is not None and seeds > len(VALUES) + 1
    assert predict(close, seeds - 1).conclusive < POWER <= predict(close, seeds).conclusive
    assert predicted_seeds(close, 0.5) < seeds  # type: ignore[operator]


def test_a_number_of_seeds_beyond_the_limit_is_none() -> None:
    assert predicted_seeds(difference([1.0, -1.0, 2.0, -2.0]), probability=0.999) is None


def test_a_prediction_does_not_depend_on_the_unit_or_on_earlier_calls() -> None:
    small = predict(difference(VALUES, margin=0.02), 7)
    large = predict(difference([1e3 * value for value in VALUES], margin=20.0), 7)
    assert large.differs == pytest.approx(small.differs, abs=2e-3) and small == predict(difference(VALUES, margin=0.02), 7)
    mirrored = predict(difference([-value for value in VALUES], margin=0.02), 7)
    assert mirrored.differs == pytest.approx(small.differs, abs=0.01)


@pytest.mark.parametrize(("values", "seeds"), [([0.1] * 5, 6), ([0.1], 2), (VALUES, 5)])
def test_only_a_t_test_with_fewer_pairs_has_a_prediction(values: list[float], seeds: int) -> None:
    with pytest.raises(ValueError, match="t-test"):
        predict(difference(values), seeds)
