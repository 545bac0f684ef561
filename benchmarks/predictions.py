"""Calibration of predicted verdicts: simulated studies are predicted when they are inconclusive, continued, and judged again.

True differences are drawn from a population, in standard deviations of the pairs' differences. A prediction of 70 % is
calibrated if the predicted verdict comes about in 70 of 100 such studies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy

from attnlab.stats.predict import predict, predicted_seeds
from benchmarks.simulate import Share, judge

EVERY_SIZE = "all sizes"
MARGIN = 1.0
DECILES = [f"{10 * i} to {10 * i + 10} %" for i in range(10)]
POPULATIONS: dict[str, Callable[[numpy.random.RandomState, int], numpy.ndarray]] = {
    EVERY_SIZE: lambda random, n: random.normal(0, 2, n),
    "half are zero": lambda random, n: random.normal(0, 2, n) * (random.random_sample(n) < 0.5),
}


@dataclass(frozen=True)
class Decile:
    """The predictions in one tenth of the unit interval.

    Attributes:
        predicted: Their mean; 0 without cases.
        happened: Share in which the predicted verdict came about; 0 without cases.
        cases: Number of predictions.
    """

    predicted: float
    happened: float
    cases: int


def calibrate(population: str, pairs: int, added: int, *, studies: int, seed: int) -> dict[str, list[Decile]]:
    """Predict studies of one comparison that are inconclusive with `pairs` seeds, add seeds, and judge them again.

    Returns:
        For "differs" and "equivalent", the predictions by tenths of the unit interval.
    """
    forecasts: dict[str, list[tuple[float, bool]]] = {"differs": [], "equivalent": []}
    random = numpy.random.RandomState(seed)
    truth = POPULATIONS[population](random, studies)
    for values in (truth[:, None] + random.standard_normal((studies, pairs + added))).tolist():
        (present,) = judge([values[:pairs]], margin=MARGIN)
        if present.conclusion:
            continue
        prediction = predict(present, pairs + added)
        (later,) = judge([values], margin=MARGIN)
        forecasts["differs"].append((prediction.differs, later.conclusion in ("lower", "higher")))
        forecasts["equivalent"].append((prediction.equivalent or 0, later.conclusion == "equivalent"))
    return {verdict: _deciles(pairs) for verdict, pairs in forecasts.items()}


def _deciles(forecasts: Sequence[tuple[float, bool]]) -> list[Decile]:
    groups: list[list[tuple[float, bool]]] = [[] for _ in DECILES]
    for predicted, happened in forecasts:
        groups[min(9, int(10 * predicted))].append((predicted, happened))
    means = [numpy.mean(group, axis=0) if group else (0.0, 0.0) for group in groups]
    return [Decile(float(mean[0]), float(mean[1]), len(group)) for mean, group in zip(means, groups, strict=True)]


def kept_predictions(population: str, pairs: int, *, most: int, studies: int, seed: int) -> tuple[Share, float]:
    """Continue inconclusive studies to the number of seeds that is predicted to be conclusive with probability `power.POWER`.

    Studies with a number above `most` are left out.

    Returns:
        The share of conclusive studies, and the median of the numbers of seeds.
    """
    random, numbers, conclusive = numpy.random.RandomState(seed), [], 0
    for truth in POPULATIONS[population](random, studies).tolist():
        values = random.normal(truth, 1, pairs).tolist()
        (present,) = judge([values], margin=MARGIN)
        if present.conclusion:
            continue
        seeds = predicted_seeds(present)
        if seeds is not None and seeds <= most:
            numbers.append(seeds)
            (later,) = judge([[*values, *random.normal(truth, 1, seeds - pairs).tolist()]], margin=MARGIN)
            conclusive += bool(later.conclusion)
    return Share(conclusive, len(numbers)), float(numpy.median(numbers))
