"""Calibration of predicted verdicts: simulated studies are predicted when they are inconclusive, continued, and judged again.

True differences are drawn from a population, in standard deviations of the pairs' differences. A prediction of 70 % is
calibrated if the predicted verdict comes about in 70 of 100 such studies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy

from attnlab.stats.paired import MIN_SEEDS_FOR_ESTIMATE
from attnlab.stats.predict import POWER, predict, predicted_seeds
from benchmarks.simulate import judge
from benchmarks.simulation import Kind, Quantity, Setting, Share, Simulation

EVERY_SIZE = "all sizes"
HALF_ZERO = "populations in which half of the differences are zero"
MARGIN = 1.0
MAX_SEEDS = 200  # largest predicted number of seeds that is simulated
SIZES = (MIN_SEEDS_FOR_ESTIMATE, 5, 8)
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
    """Continue inconclusive studies to the number of seeds that is predicted to be conclusive with probability `POWER`.

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


def reliability(population: str, pairs: int, studies: int, seed: int) -> Mapping[str, Share]:
    """Return the shares in which verdicts with one more seed come about that were predicted with 40 to 60 % and 70 to 80 %."""
    shares = {}
    for verdict, deciles in calibrate(population, pairs, 1, studies=studies, seed=seed).items():
        for name, chosen in (("40 to 60", deciles[4:6]), ("70 to 80", deciles[7:8])):
            shares[f"{verdict} {name}"] = Share(sum(d.happened * d.cases for d in chosen), sum(d.cases for d in chosen))
    return shares


def continued(population: str, pairs: int, studies: int, seed: int) -> Mapping[str, Share | float]:
    """Return the share of conclusive studies with the predicted number of seeds, and the median of these numbers."""
    share, median = kept_predictions(population, pairs, most=MAX_SEEDS, studies=studies, seed=seed)
    return {"conclusive": share, "seeds": median}


PREDICTIONS = Simulation(
    "predictions",
    "Predicted verdicts",
    f"""\
Studies of one comparison that are inconclusive are continued with one more seed: how often does a verdict come about that was
predicted with a probability of 40 to 60 %, or of 70 to 80 %? True differences are normal with a standard deviation of twice
that of the pairs' differences, in all studies or in half of them, and zero in the others; the margin is {MARGIN:g} such
standard deviation. Reports predict no verdict below {MIN_SEEDS_FOR_ESTIMATE} pairs.""",
    settings=[
        Setting(population, f"{pairs} seeds", partial(reliability, population, pairs), reason)
        for population, reason in ((EVERY_SIZE, ""), ("half are zero", HALF_ZERO))
        for pairs in SIZES
    ],
    quantities=tuple(
        Quantity(f"{verdict} {name}", f"“{verdict}”, predicted with {name} %", Kind.POWER, level=level, limit=limit)
        for verdict in ("differs", "equivalent")
        for name, level, limit in (("40 to 60", 0.5, 0.4), ("70 to 80", 0.75, 0.6))
    ),
    studies=12_000,
    conclusion="""\
If half of the differences are zero, “differs” comes about less often than predicted, and “equivalent” more often.""",
)

PREDICTED_SEEDS = Simulation(
    "predicted-seeds",
    "The predicted number of seeds",
    f"""\
The same studies, continued with the number of seeds that is predicted to be conclusive with probability {100 * POWER:g} %. More
than {MAX_SEEDS} seeds are not simulated. The table has the median of the predicted numbers.""",
    settings=[
        Setting(population, f"{pairs} seeds so far", partial(continued, population, pairs))
        for population in POPULATIONS
        for pairs in SIZES
    ],
    quantities=(
        Quantity("conclusive", "conclusive with the predicted number", Kind.POWER, level=POWER, limit=POWER),
        Quantity("seeds", "median predicted seeds", Kind.NUMBER),
    ),
    studies=2_000,
)
