"""Several studies of one question: relative effects, their mean over studies, and one correction for all verdicts.

Effects are in per cent, larger is worse: the difference from the baseline over the baseline's mean score for metrics with a
natural zero that training lowers (bits per byte, loss), over its mean error rate for accuracy. Dividing by a constant changes
no p-value.

A study contributes one effect to the mean of a contrast (a cell against a baseline, without the axes that both share). Levels
of `over` count with the highest. Cells of other axes share seeds and data and are no independent studies: their effects are
averaged, with the mean of their intervals as the interval, which is right if they are perfectly correlated and too wide
otherwise. Studies on the same data with a seed in common are averaged in the same way before they enter the mean.

The mean over studies weights all of them alike, and its interval comes from a t-test of the studies' effects. Its coverage is
at least 95 % for all spreads of the effects and of their errors (Ibragimov and Müller 2010, after Bakirov and Székely
2005). With the spreads estimated from 3 to 5 seeds, the interval of Hartung and Knapp with inverse-variance weights and the
between-study variance of Paule and Mandel covers 85 to 95 % in simulations with 3 to 5 studies, and the prediction interval of
Higgins et al. (2009) 87 to 100 %. The prediction interval here is for a further effect from the same normal distribution as
the observed ones, errors included: 95 to 100 % (`reports/validity`). Two studies have no mean: with one degree of freedom its
interval is 12.7 standard errors wide on each side.

Heterogeneity is the variance of the effects beyond the mean of their squared standard errors, with an interval from the F
distribution of the ratio of the two, where the degrees of freedom of the second follow Satterthwaite (1946).

References:
    Bakirov, N. K. and Székely, G. J. (2005). Student's t-test for Gaussian scale mixtures. Zapiski Nauchnyh Seminarov POMI
    328, 5-19.
    Higgins, J. P. T., Thompson, S. G. and Spiegelhalter, D. J. (2009). A re-evaluation of random-effects meta-analysis.
    Journal of the Royal Statistical Society A 172, 137-159.
    Ibragimov, R. and Müller, U. K. (2010). t-statistic based correlation and heterogeneity robust inference. Journal of
    Business and Economic Statistics 28, 453-468.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from attnlab.stats import paired
from attnlab.stats.cells import CellSummary, ComparisonSpec
from attnlab.stats.paired import LEVEL, Difference, Interval, t_quantile
from attnlab.stats.sequential import Looks
from attnlab.stats.simultaneous import simultaneous_interval

MIN_STUDIES = 3  # with a mean and a prediction interval
SCALES = {  # metric -> the quantity that effects are per cent of
    "bits_per_byte": "bits per byte",
    "bits_per_token": "bits per token",
    "loss": "loss",
    "accuracy": "error rate",
    "bleu": "BLEU",
    "chrf": "chrF",
}


@dataclass(frozen=True)
class Effect:
    """An effect in per cent, or as the logarithm of a share of training; larger is worse.

    Attributes:
        mean: The estimate.
        low, high: Ends of its 95 % interval; None when there is none.
        outer_low, outer_high: Ends of the interval that holds together with all others of the page; likewise.
        error: Its standard error; None with one seed, or if all seeds have the same difference.
        degrees_of_freedom: Of the standard error.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    outer_low: float | None = None
    outer_high: float | None = None
    error: float | None = None
    degrees_of_freedom: int = 0


@dataclass(frozen=True)
class Heterogeneity:
    """The spread of true effects over studies.

    Attributes:
        tau: Estimated standard deviation of the true effects.
        i_squared: Its share in the variance of the observed effects, between 0 and 1.
        low, high: 95 % interval of `i_squared`.
    """

    tau: float
    i_squared: float
    low: float
    high: float


@dataclass(frozen=True)
class PooledEffect:
    """The mean of independent effects.

    Attributes:
        mean: The mean with its t-test. Its `interval.n` is the number of effects.
        prediction: Ends of the 95 % prediction interval of a further effect.
        heterogeneity: None when an effect has no standard error.
    """

    mean: Difference
    prediction: tuple[float, float]
    heterogeneity: Heterogeneity | None = None


def scale_of(spec: ComparisonSpec) -> str:
    """Return the quantity that a study's effects are per cent of; "" for a metric without a known natural zero.

    "" also for another estimand than the mean: its effects are not differences of mean scores.
    """
    return SCALES.get(spec.metric, "") if spec.estimator.is_mean else ""


def relative_effect(comparison: CellSummary, baseline: CellSummary, spec: ComparisonSpec) -> Effect | None:
    """Return a cell's difference from its baseline in per cent of the baseline's score or error rate.

    Args:
        comparison: The cell, with a difference.
        baseline: Its baseline.
        spec: The comparison that the study makes.

    Returns:
        None without a difference, if the two cells lost different numbers of seeds, for a metric without a known natural zero,
        if the baseline's score or error rate is 0, or if it is negative with a seed, which has no natural zero either.
    """
    difference = comparison.difference
    if difference is None or difference.no_test is paired.NoTest.LOSSES or not scale_of(spec):
        return None
    scores = [baseline.values[seed] for seed in baseline.values.keys() & comparison.values.keys()]
    sizes = [1 - score for score in scores] if spec.metric == "accuracy" else scores
    quantity = fmean(sizes)
    if quantity <= 0 or min(sizes) < 0:
        return None
    sign = -1 if spec.direction == "max" else 1
    return scaled_effect(difference.interval, sign * 100 / quantity, outer=simultaneous_interval(difference))


def scaled_effect(interval: Interval, factor: float = 1.0, *, outer: Interval | None = None) -> Effect:
    """Return an interval over seeds as an effect in another unit; a negative factor exchanges its ends."""
    low, high = _scaled(interval, factor)
    outer_low, outer_high = _scaled(outer, factor) if outer else (None, None)
    error = abs(factor) * interval.moderated_sd / math.sqrt(interval.n) if interval.moderated_sd else None
    return Effect(interval.mean * factor, low, high, outer_low, outer_high, error, interval.degrees_of_freedom)


def _scaled(interval: Interval, factor: float) -> tuple[float | None, float | None]:
    ends = [None if end is None else end * factor for end in (interval.low, interval.high)]
    return (ends[1], ends[0]) if factor < 0 else (ends[0], ends[1])


def average(effects: Sequence[Effect]) -> Effect:
    """Return the mean of effects that are not independent, with the mean of their intervals and of their errors."""
    if len(effects) == 1:
        return effects[0]
    return Effect(
        fmean(effect.mean for effect in effects),
        *(_mean([getattr(effect, name) for effect in effects]) for name in ("low", "high", "outer_low", "outer_high", "error")),
        degrees_of_freedom=min(effect.degrees_of_freedom for effect in effects),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def independent_groups(studies: Sequence[tuple[frozenset[str], frozenset[int]]]) -> list[list[int]]:
    """Return the indices of studies by groups: those with data and a seed in common are in one group.

    Args:
        studies: The data of each study, as identities of their parts, and its seeds. Unknown data are empty, and are taken to
            be those of no other study.
    """
    groups: list[list[int]] = []
    for i, (data, seeds) in enumerate(studies):
        linked = [group for group in groups if any(studies[j][0] & data and studies[j][1] & seeds for j in group)]
        merged = sorted([*(j for group in linked for j in group), i])
        groups = [*(group for group in groups if group not in linked), merged]
    return sorted(groups)


def pool(effects: Sequence[Effect], *, tries: int = 0) -> PooledEffect | None:
    """Return the mean of independent effects; None for fewer than `MIN_STUDIES`, or if all are the same.

    Args:
        effects: One of each study.
        tries: Number of earlier configurations that the test of the mean is corrected for.
    """
    if len(effects) < MIN_STUDIES:
        return None
    values: Mapping[int, float] = {i: effect.mean for i, effect in enumerate(effects)}
    looks = Looks(len(effects), len(effects), tries=tries) if tries else None
    mean = paired.difference(values, dict.fromkeys(values, 0.0), looks=looks)
    assert mean is not None and mean.interval.sd is not None
    n, sd = mean.interval.n, mean.interval.sd
    if not sd:
        return None
    half_width = t_quantile(1 - LEVEL / 2, n - 1) * sd * math.sqrt(1 + 1 / n)
    prediction = (mean.interval.mean - half_width, mean.interval.mean + half_width)
    return PooledEffect(mean, prediction, heterogeneity(effects))


def heterogeneity(effects: Sequence[Effect]) -> Heterogeneity | None:
    """Return the spread of the true effects; None when there is one effect only, or one has no standard error."""
    from scipy.special import fdtri

    squares = [(effect.error**2, effect.degrees_of_freedom) for effect in effects if effect.error]
    if len(effects) < 2 or len(squares) < len(effects):
        return None
    within = fmean(square for square, _ in squares)
    total = paired.interval([effect.mean for effect in effects]).sd or 0.0
    ratio, degrees = total**2 / within, sum(s for s, _ in squares) ** 2 / sum(s**2 / df for s, df in squares)
    # ratio / (1 + tau^2 / within) has the F distribution
    ends = [ratio / float(fdtri(len(effects) - 1, degrees, p)) for p in (1 - LEVEL / 2, LEVEL / 2)]
    low, high = (max(0.0, 1 - 1 / end) if end else 0.0 for end in ends)
    excess = max(0.0, total**2 - within)
    return Heterogeneity(math.sqrt(excess), excess / total**2 if total else 0.0, low, high)
