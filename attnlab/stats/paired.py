"""Intervals over seeds, and differences paired by seed.

Two cells that are trained with the same seed see the same batches from the same initialization, so they are compared seed by
seed and the variation that they share cancels. The tests are the paired t-test (against "no difference") and two one-sided
t-tests against a margin that the study states in advance (Schuirmann 1987); only the latter can show that two cells are
equivalent. Both are corrected over the table by Holm's step-down method (1979), each kind separately, and for repeated looks
where seeds are added until the verdict is conclusive (`attnlab.stats.sequential`). Few seeds estimate a spread poorly, so
`attnlab.stats.moderation` lets the comparisons of one table borrow from each other. The effect size is Cohen's d
of the paired differences with Hedges' correction (1981).

A t-test estimates the spread from the seeds. It has none to estimate where all pairs have the same difference, which happens
by chance for metrics with few values (the accuracy on 200 reviews has 201), most often with few seeds. Such a difference is
tested by its sign: if both directions were equally likely, n seeds would all agree on a given one with probability 2^-n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from attnlab.stats.sequential import Looks, adjusted_p, level_at, levels_at
from attnlab.stats.skewness import sample_skewness, skewness_corrected_p
from attnlab.stats.variance_prior import VariancePrior

LEVEL = 0.05
MIN_SEEDS_FOR_ESTIMATE = 4  # with fewer pairs the spread is too uncertain to name a number of seeds
ROUNDING = 1e-12  # relative to the values: differences closer than this are equal


@dataclass(frozen=True)
class Interval:
    """A mean over `n` values with its 95 % t-interval; `sd`, `low` and `high` are None below two values.

    `sd` is that of the values; tests and intervals use `moderated_sd`, which differs from it if there is a `prior`.
    """

    n: int
    mean: float
    sd: float | None = None
    low: float | None = None
    high: float | None = None
    prior: VariancePrior | None = None

    @property
    def degrees_of_freedom(self) -> int:
        """Those of the values and of the prior."""
        return self.n - 1 + (self.prior.degrees_of_freedom if self.prior else 0)

    @property
    def moderated_sd(self) -> float | None:
        """The standard deviation of the values, shrunk toward that of the prior."""
        if self.prior is None or self.sd is None:
            return self.sd
        borrowed = self.prior.degrees_of_freedom * self.prior.variance
        return math.sqrt((borrowed + (self.n - 1) * self.sd**2) / self.degrees_of_freedom)

    @property
    def half_width(self) -> float | None:
        """Half of the interval's width: the number behind the ±."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True)
class Difference:
    """A cell minus its baseline, over the seeds that both completed.

    Attributes:
        interval: The mean difference and its interval; `interval.n` is the number of pairs. Without ends if all pairs have the
            same difference.
        p: Two-sided p-value of the paired t-test, corrected for `looks`; None with fewer than two pairs, or fewer than the
            first look has.
        p_equivalent: P-value of the two one-sided tests against `margin`, likewise; None without a margin.
        p_holm, p_equivalent_holm: The same, corrected over all differences of one table by `correct`.
        margin: Largest difference that counts as equivalent, in the metric's unit.
        looks: Looks that the p-values and the interval are corrected for.
        levels: Levels below which `p` and `p_equivalent` would be significant after Holm's correction, given the rest of the
            table.
        comparisons: Number of comparisons with a test in its table, this one included.
        skewness: That of the paired differences; None with fewer than `skewness.MIN_SEEDS` pairs or without a t-test.
    """

    interval: Interval
    p: float | None = None
    p_equivalent: float | None = None
    p_holm: float | None = None
    p_equivalent_holm: float | None = None
    margin: float | None = None
    looks: Looks | None = None
    levels: tuple[float, float] = (LEVEL, LEVEL)
    comparisons: int = 1
    skewness: float | None = None

    @property
    def null(self) -> float:
        """The value of the estimate without a difference."""
        return 0.0

    @property
    def effect_size(self) -> float | None:
        """Hedges' g of the paired differences (g_z): the mean in standard deviations of one seed's difference.

        None with one degree of freedom, where the small-sample correction is infinite, or if all pairs have the same
        difference.
        """
        sd, half = self.interval.moderated_sd, self.interval.degrees_of_freedom / 2
        if not sd or half < 1:
            return None
        return self.interval.mean / sd * math.exp(math.lgamma(half) - math.lgamma(half - 0.5)) / math.sqrt(half)

    @property
    def conclusion(self) -> str:
        """`lower`, `higher`, `equivalent`, `identical` (the same value in each of enough seeds), or "" if inconclusive."""
        if self.p is None or self.interval.sd is None:
            return ""
        if self.identical:
            return "identical" if sign_test(self.interval.n) < LEVEL else ""
        if self.is_significant:
            return "lower" if self.interval.mean < 0 else "higher"
        return "equivalent" if self.within_margin else ""

    @property
    def is_significant(self) -> bool:
        """True if the test for a difference is significant after the correction over the table."""
        return _corrected(self.p_holm, self.p) < LEVEL

    @property
    def identical(self) -> bool:
        """True if the cell and its baseline have the same value in each seed."""
        return self.interval.mean == 0 == self.interval.sd

    @property
    def within_margin(self) -> bool:
        """True if the two one-sided tests place the difference within the margin."""
        return _corrected(self.p_equivalent_holm, self.p_equivalent) < LEVEL

    @property
    def fragile(self) -> bool:
        """True if a test corrected for skewness, at the same level, does not share the conclusion of the t-test.

        It has the corrections of the t-test's p-value for comparisons and looks.
        """
        conclusion, mean = self.conclusion, self.interval.mean
        if self.skewness is None or conclusion in ("", "identical"):
            return False
        if conclusion == "equivalent":
            assert self.margin is not None
            p = max(self._skewness_corrected_p(self.margin - side * mean, -side) for side in (1, -1))
            corrected, uncorrected = self.p_equivalent_holm, self.p_equivalent
        else:
            p = 2 * self._skewness_corrected_p(abs(mean), 1 if mean > 0 else -1)
            corrected, uncorrected = self.p_holm, self.p
        return p * (corrected / uncorrected if corrected and uncorrected else self.comparisons) >= LEVEL

    def _skewness_corrected_p(self, distance: float, sign: int) -> float:
        """Return the one-sided p-value of a mean at a distance from the tested value, on the side of `sign`, at all looks."""
        mean = self.interval
        assert self.skewness is not None and mean.moderated_sd
        options = {"skewness": sign * self.skewness, "degrees_of_freedom": mean.degrees_of_freedom}
        return adjusted_p(skewness_corrected_p(distance / mean.moderated_sd, mean.n, **options), self.looks, mean.n)


def _corrected(corrected: float | None, p: float | None) -> float:
    """Return the corrected p-value if there is one, else the uncorrected one, else 1."""
    return next((value for value in (corrected, p) if value is not None), 1.0)


def interval(values: Sequence[float], *, looks: Looks | None = None) -> Interval:
    """Return mean and 95 % t-interval of one value per seed.

    Args:
        values: One value per seed.
        looks: Widen the interval so that it covers the true value at all of these looks together.

    Raises:
        ValueError: `values` is empty.
    """
    n = len(values)
    if n == 0:
        raise ValueError("expected at least one value, got none")
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(1, mean)
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    low, high = interval_ends(Interval(n, mean, sd), LEVEL, looks=looks)
    return Interval(n, mean, sd, low, high)


def interval_ends(mean: Interval, level: float, *, looks: Looks | None = None) -> tuple[float, float]:
    """Return the ends of the t-interval that misses the true mean with probability `level`, at all of the looks together."""
    assert mean.moderated_sd is not None
    tail = level_at(level / 2, looks, mean.n)
    half_width = t_quantile(1 - tail, mean.degrees_of_freedom) * mean.moderated_sd / math.sqrt(mean.n)
    return mean.mean - half_width, mean.mean + half_width


def difference(
    cell: Mapping[int, float],
    baseline: Mapping[int, float],
    *,
    margin: float | None = None,
    looks: Looks | None = None,
) -> Difference | None:
    """Compare a cell with its baseline seed by seed.

    Args:
        cell: Seed -> value.
        baseline: Seed -> value.
        margin: Largest difference that counts as equivalent, in the metric's unit.
        looks: Looks at which the study is judged. There is no test before the first of several announced ones.

    Returns:
        The difference, not yet corrected over its table; None if the two share no seed.
    """
    shared = sorted(cell.keys() & baseline.keys())
    if not shared:
        return None
    looks = looks and looks.extend_to(len(shared))
    differences = _differences([(cell[seed], baseline[seed]) for seed in shared])
    mean = interval(differences, looks=looks)
    if mean.sd == 0:
        mean = replace(mean, low=None, high=None)  # only its sign is tested, and a sign test has no such interval
    untested = Difference(mean, margin=margin, looks=looks, skewness=sample_skewness(differences) if mean.sd else None)
    return untested if mean.sd is None or (looks and looks.announced and mean.n < looks.first) else t_test(untested)


def t_test(difference: Difference) -> Difference:
    """Return the difference with its p-values, not yet corrected over its table."""
    mean, margin, looks = difference.interval, difference.margin, difference.looks
    p = min(1.0, 2 * adjusted_p(_one_sided_p(mean, abs(mean.mean)), looks, mean.n))
    p_equivalent = None if margin is None else adjusted_p(_one_sided_p(mean, margin - abs(mean.mean)), looks, mean.n)
    return replace(difference, p=p, p_equivalent=p_equivalent)


def _differences(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """Return first minus second, without spread that comes only from floating-point rounding."""
    differences = [first - second for first, second in pairs]
    tolerance = ROUNDING * max(abs(value) for pair in pairs for value in pair)
    if max(differences) - min(differences) > tolerance:
        return differences
    return [differences[0] if abs(differences[0]) > tolerance else 0.0] * len(differences)


def correct(differences: Sequence[Difference | None]) -> list[Difference | None]:
    """Fill in the Holm-corrected p-values and levels of one table, in the order given."""
    p_values = holm([d and d.p for d in differences])
    p_equivalent = holm([d and d.p_equivalent for d in differences])
    levels = (_holm_level(p_values), _holm_level(p_equivalent))
    tests = max(1, sum(p is not None for p in p_values))
    return [
        d and replace(d, p_holm=p, p_equivalent_holm=p_near, levels=levels, comparisons=tests)
        for d, p, p_near in zip(differences, p_values, p_equivalent, strict=True)
    ]


def _holm_level(corrected: Sequence[float | None]) -> float:
    """Return the level that Holm's method applies to the largest p-value that is not yet significant."""
    return LEVEL / max(1, sum(p is not None and p >= LEVEL for p in corrected))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return Holm's (1979) step-down adjusted p-values, in the order given; None stands for no test."""
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        adjusted[index] = highest
    return adjusted


def _one_sided_p(mean: Interval, distance: float) -> float:
    """Return the one-sided p-value of a mean that lies `distance` beyond the tested value (negative: on the wrong side)."""
    from scipy.special import stdtr

    if mean.sd == 0:
        return sign_test(mean.n) if distance > 0 else 1.0
    assert mean.moderated_sd is not None
    return float(stdtr(mean.degrees_of_freedom, -distance / (mean.moderated_sd / math.sqrt(mean.n))))


def sign_test(n: int) -> float:
    """Return the probability that `n` seeds all lie on a given side if both sides are equally likely."""
    return 0.5**n


def sign_test_seeds(difference: Difference) -> int:
    """Return the number of seeds for a conclusion, more than there are, if all pairs keep having the same difference."""
    mean = difference.interval
    tests = 2 if difference.margin and abs(mean.mean) < difference.margin else 1  # that can be conclusive

    def is_enough(n: int) -> bool:
        level, level_equivalent = levels_at(difference.levels, difference.looks, n)
        return sign_test(n) < (LEVEL if difference.identical else max((level / 2, level_equivalent)[:tests]))

    return next(n for n in count(mean.n + 1) if is_enough(n))


def t_quantile(probability: float, degrees_of_freedom: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, probability))
