"""Intervals over seeds, and differences paired by seed.

Two cells that are trained with the same seed see the same batches from the same initialization, so they are compared seed by
seed and the variation that they share cancels. The tests are the paired t-test (against "no difference") and two one-sided
t-tests against a margin that the study states in advance (Schuirmann 1987); only the latter can show that two cells are
equivalent. Both are corrected over the table by Holm's step-down method (1979), each kind separately, and for repeated looks
where seeds are added until the verdict is conclusive (`attnlab.stats.sequential`). Few seeds estimate a spread poorly, so
`attnlab.stats.joint` lets the comparisons of one table borrow from each other in this test of the table. The effect size
is Cohen's d of the paired differences with Hedges' correction (1981).

A comparison that scatters more than those it borrows from would be called different too often: in tables in which all others
really differ, 10 to 23 % of simulated comparisons without a difference are (`reports/validity`). A verdict therefore needs two
tests below 5 %: the one of the table, and the comparison's paired t-test by itself, which borrows nothing. Its p-value counts
twice, except for the last comparison that Holm's method tests: so false verdicts on any two comparisons are limited to 5 %,
whatever the spreads. The interval behind the ± is that of the second test, so that no verdict of a difference stands next to an
interval that contains zero.

A t-test estimates the spread from the seeds. It has none to estimate where all pairs have the same difference. Such runs are
often one run repeated, because the program ignores its seed. Values are identical if they are equal up to the rounding of the
numbers that were printed, so that a constant added to all scores makes no cells identical. Differences count as one, and have
no test, if they scatter by no more than sums in single precision, and by less than a twentieth of their mean.

A verdict of the t-test is fragile if a test corrected for skewness does not share it. The t-test of a mean assumes differences
that scatter symmetrically. Where they are skewed, as when one or two seeds lie far to one side, it makes more false verdicts
than it promises. Johnson (1978) corrects the t-statistic for the skewness g of the sample; Hall (1992) makes his transformation
monotone, so that a larger difference never has a larger p-value:

    S = mean / sd        S' = S + g S^2 / 3 + g^2 S^3 / 27 + g / (6 n)        t' = sqrt(n) S'

With few seeds, g is uncertain, and a test with it has less power. It therefore decides no verdict: a
verdict of the t-test that it does not share, at the same level, is called fragile. In a moderated t-test,
sd is the moderated standard deviation, with its degrees of freedom, and g is the skewness of the comparison's
differences. Without Hall's cubic term, many large differences would be called fragile, too.
`benchmarks.estimands` has the shares of false and of sound verdicts that are.

References:
    Johnson, N. J. (1978). Modified t tests and confidence intervals for asymmetrical populations. Journal of the American
    Statistical Association 73, 536-544.
    Hall, P. (1992). On the removal of skewness by transformation. Journal of the Royal Statistical Society B 54, 221-228.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean
from types import MappingProxyType
from typing import ClassVar

from attnlab._util.metrics import format_metric, rounded
from attnlab.stats.sequential import Looks, adjusted_p, level_at
from attnlab.stats.variance_prior import VariancePrior

SKEWNESS_SEEDS = 5  # with fewer pairs the skewness is too uncertain

LEVEL = 0.05
ALONE = 2  # number of comparisons on which the tests of comparisons alone limit false verdicts together
MIN_SEEDS_FOR_ESTIMATE = 4  # with fewer pairs the spread is too uncertain to name a number of seeds
ROUNDING = 8 * 2.0**-52  # relative error of a difference of two printed numbers
SINGLE = 32 * 2.0**-23  # the same of sums in single precision, in whatever order a GPU adds up
REPEATED = 0.05  # of a difference: a smaller scatter over seeds, within `SINGLE`, is that of one run repeated
NO_SCALES: Mapping[int, float] = MappingProxyType({})
SEEDS_OF_IDENTICAL = 5  # if two cells differed in half of their seeds, so many would all be equal in less than 5 % of cases


def sample_skewness(values: Sequence[float]) -> float | None:
    """Return the third central moment over the cubed standard deviation; None for fewer than `SKEWNESS_SEEDS` values.

    Args:
        values: Not all equal.
    """
    n = len(values)
    if n < SKEWNESS_SEEDS:
        return None
    mean = math.fsum(values) / n
    second, third = (math.fsum((value - mean) ** power for value in values) / n for power in (2, 3))
    return third / second**1.5


def skewness_corrected_p(size: float, n: int, *, skewness: float, degrees_of_freedom: int) -> float:
    """Return the one-sided p-value of Hall's test that a mean lies above a tested value.

    Args:
        size: The mean minus the tested value, in standard deviations of one difference.
        n: Number of pairs.
        skewness: Of the differences.
        degrees_of_freedom: Of the t-test.
    """
    from scipy.special import stdtr

    transformed = size + skewness * size**2 / 3 + skewness**2 * size**3 / 27 + skewness / (6 * n)
    return float(stdtr(degrees_of_freedom, -math.sqrt(n) * transformed))


class NoTest(StrEnum):
    """The reason why a difference of several pairs has no test."""

    CONSTANT = "the difference is the same in all seeds"
    LOSSES = "the two cells lost different numbers of seeds"
    CHOICE = "the verdict depends on the seeds that choose the best values tried"


@dataclass(frozen=True)
class Interval:
    """A mean over `n` values with its 95 % t-interval; `sd`, `low` and `high` are None below two values.

    `sd`, `low` and `high` use nothing but the values. The test of a table uses `moderated_sd`, which differs from `sd` if there
    is a `prior`.
    """

    n: int
    mean: float
    sd: float | None = None
    low: float | None = None
    high: float | None = None
    prior: VariancePrior | None = None
    is_exact: ClassVar[bool] = False

    @property
    def degrees_of_freedom(self) -> int:
        """The degrees of freedom of the values and of the prior together."""
        return self.n - 1 + (self.prior.degrees_of_freedom if self.prior else 0)

    @property
    def moderated_sd(self) -> float | None:
        """The standard deviation of the values, shrunk toward the prior's."""
        if self.prior is None or self.sd is None:
            return self.sd
        borrowed = self.prior.degrees_of_freedom * self.prior.variance
        return math.sqrt((borrowed + (self.n - 1) * self.sd**2) / self.degrees_of_freedom)

    @property
    def half_width(self) -> float | None:
        """Half of the interval's width: the number behind the ±."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    def format(self, *, sign: bool = False) -> str:
        """Format as in "2.113 ± 0.020"; `sign`: with "+" before a positive mean.

        Two significant digits of the half-width decide all digits.
        """
        mean = self._rounded(self.mean)
        mean = f"+{mean}" if sign and float(mean) > 0 else mean
        ends = self.format_ends(sign=sign) if self.half_width is None else f"± {self.format_half_width()}"
        return f"{mean} {ends}".rstrip()

    def format_half_width(self) -> str:
        """Format the number behind the ±, as in "0.020"; "" without one."""
        return "" if self.half_width is None else self._rounded(self.half_width)

    def format_size(self) -> str:
        """Format the mean without its sign, with the half-width if there is one."""
        return f"{self._rounded(abs(self.mean))} ± {self.format_half_width()}".removesuffix(" ± ")

    def _rounded(self, value: float) -> str:
        return rounded(value, self.half_width, mean=self.mean)

    def format_ends(self, *, digits: int = 4, sign: bool = False) -> str:
        """Format the ends as in "[0.28, 0.99]", with signs for a difference; "" without ends."""
        if self.low is None or self.high is None:
            return ""
        ends = [f"{'+' if sign and end > 0 else ''}{format_metric(end, digits)}" for end in (self.low, self.high)]
        return f"[{', '.join(ends)}]"


@dataclass(frozen=True)
class Difference:
    """A cell minus its baseline, over the seeds that both completed.

    Attributes:
        interval: The mean difference and its interval; `interval.n` is the number of pairs. Without ends if all pairs have the
            same difference.
        p: Two-sided p-value of the paired t-test, corrected for `looks`; None with fewer than two pairs, or fewer than the
            first look has, or if there is a reason in `no_test`.
        p_equivalent: P-value of the two one-sided tests against `margin`, likewise; None without a margin.
        p_moderated, p_equivalent_moderated: The same with the moderated variance; None without a prior.
        p_table, p_equivalent_table: P-values of the table's tests: the moderated ones, or without a prior `p` and
            `p_equivalent`, corrected over all differences of one table by `correct`.
        margin: Largest difference that counts as equivalent, in the metric's unit.
        looks: Looks that the p-values and the interval are corrected for.
        alone: Factors on `p` and `p_equivalent` in a verdict: `ALONE`, or 1 if no other p-value of its table is larger.
        levels: Levels below which the table's tests would be significant after Holm's correction, given the rest of the table.
        comparisons: Number of comparisons with a test in its table, this one included.
        skewness: Of the paired differences; None with fewer than `SKEWNESS_SEEDS` pairs or without a t-test.
        no_test: The reason why several pairs have no test; None when they have one.
        like_metric: A positive difference is one of larger scores, rather than of better ones.
    """

    interval: Interval
    p: float | None = None
    p_equivalent: float | None = None
    p_moderated: float | None = None
    p_equivalent_moderated: float | None = None
    p_table: float | None = None
    p_equivalent_table: float | None = None
    margin: float | None = None
    looks: Looks | None = None
    alone: tuple[int, int] = (1, 1)
    levels: tuple[float, float] = (LEVEL, LEVEL)
    comparisons: int = 1
    skewness: float | None = None
    no_test: NoTest | None = None
    like_metric: bool = True

    @property
    def p_holm(self) -> float | None:
        """P-value of a verdict of a difference, the larger one of both tests; None before `correct`."""
        return None if self.p_table is None or self.p is None else max(min(1.0, self.alone[0] * self.p), self.p_table)

    @property
    def p_equivalent_holm(self) -> float | None:
        """P-value of a verdict of equivalence, likewise."""
        own, table = self.p_equivalent, self.p_equivalent_table
        return None if table is None or own is None else max(min(1.0, self.alone[1] * own), table)

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
        """`lower`, `higher` (scores), `equivalent`, `identical` (the same in each of enough seeds), or "" if inconclusive."""
        if self.p is None:
            return ""
        if self.identical:
            return "identical" if self.interval.n >= SEEDS_OF_IDENTICAL else ""
        if self.is_significant:
            return "higher" if (self.interval.mean > 0) == self.like_metric else "lower"
        return "equivalent" if self.within_margin else ""

    @property
    def is_significant(self) -> bool:
        """True when the test for a difference is significant, by itself and after the correction over the table."""
        return _corrected(self.p_holm, self.p) < LEVEL

    @property
    def identical(self) -> bool:
        """True when the cell and its baseline have the same value in each seed, to within `NOISE`."""
        return self.interval.mean == 0 == self.interval.sd

    @property
    def has_equal_scores(self) -> bool:
        """True when the cell and its baseline have the same score in each seed."""
        return self.identical

    @property
    def may_be_repeated(self) -> bool:
        """True when all of several seeds have the same difference, which is not zero: the runs may be one run repeated."""
        return self.no_test is NoTest.CONSTANT

    @property
    def within_margin(self) -> bool:
        """True when the two one-sided tests place the difference within the margin, likewise."""
        return _corrected(self.p_equivalent_holm, self.p_equivalent) < LEVEL

    @property
    def fragile(self) -> bool:
        """True when tests corrected for skewness, at the same levels, do not share the conclusion of the t-tests.

        They have the corrections of the t-tests' p-values for comparisons and looks.
        """
        if self.skewness is None or self.conclusion in ("", "identical"):
            return False
        equivalent = self.conclusion == "equivalent"
        p = self.p_equivalent if equivalent else self.p
        before, after = (
            (self.p_equivalent_moderated, self.p_equivalent_table) if equivalent else (self.p_moderated, self.p_table)
        )
        before = _known(before, p)
        factor = after / before if before and after else self.comparisons
        alone, moderated = (self._skewness_corrected(mean) for mean in (without_prior(self.interval), self.interval))
        return max(self.alone[equivalent] * alone, factor * moderated) >= LEVEL

    def _skewness_corrected(self, mean: Interval) -> float:
        """Return the p-value of the conclusion, corrected for skewness and looks."""
        if self.conclusion != "equivalent":
            return 2 * self._one_sided_skewness_p(mean, abs(mean.mean), 1 if mean.mean > 0 else -1)
        assert self.margin is not None
        return max(self._one_sided_skewness_p(mean, self.margin - side * mean.mean, -side) for side in (1, -1))

    def _one_sided_skewness_p(self, mean: Interval, distance: float, sign: int) -> float:
        """Return the one-sided p-value of a mean at a distance from the tested value, on the side of `sign`, at all looks."""
        assert self.skewness is not None and mean.moderated_sd
        options = {"skewness": sign * self.skewness, "degrees_of_freedom": mean.degrees_of_freedom}
        return adjusted_p(skewness_corrected_p(distance / mean.moderated_sd, mean.n, **options), self.looks, mean.n)

    def ends_at(self, level: float) -> tuple[float, float] | tuple[None, None]:
        """Return the ends of the interval of the table's test that misses the true difference with probability `level`.

        It is at least as wide as the one of the test of the comparison alone. None without an interval.
        """
        mean = self.interval
        if not mean.sd or mean.low is None or mean.high is None:
            return (None, None)
        low, high = interval_ends(mean, level, looks=self.looks)
        alone = interval_ends(without_prior(mean), max(level, LEVEL / ALONE), looks=self.looks)
        return min(low, alone[0]), max(high, alone[1])

    def verdict_probability(self, seeds: int) -> float | None:
        """Return None: without a t-test, there is no prediction of a verdict with more seeds."""
        return None

    def fewest_seeds(self, numbers: Iterable[int]) -> int | None:
        """Return the first of these numbers of seeds with which some result would be conclusive: for a t-test, the first."""
        return next(iter(numbers), None)

    def format(self, *, short: bool = False) -> str:
        """Format the difference with its sign and interval, as in "+0.0100 ± 0.0020"; `short`: without the interval."""
        mean = self.interval.mean
        return f"{'+' if mean >= 0 else ''}{format_metric(mean)}" if short else self.interval.format(sign=True)

    def format_ends(self, interval: Interval) -> str:
        """Format another interval of this difference, as in "± 0.0459"; "" without one."""
        return "" if interval.half_width is None else f"± {interval.format_half_width()}"

    def format_size(self) -> str:
        """Format the size after the name of a cell, as in " by 0.0120 ± 0.0030"."""
        return f" by {self.interval.format_size()}"


def describe_level(margin: float | None) -> str:
    """Return the level of verdicts as text; with a margin, better or worse and equivalent each have their own."""
    return "the 5 % level" if margin is None else "a level of 5 % each for better or worse and for equivalent"


def _known(first: float | None, second: float | None) -> float | None:
    """Return the first p-value if there is one, else the second."""
    return second if first is None else first


def _corrected(corrected: float | None, p: float | None) -> float:
    """Return the corrected p-value if there is one, else the uncorrected one, else 1."""
    p = _known(corrected, p)
    return 1.0 if p is None else p


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
    # The mean of equal values, as rounded, can differ from them: their standard deviation would be tiny instead of zero.
    mean = float(values[0]) if min(values) == max(values) else math.fsum(values) / n
    if n == 1:
        return Interval(1, mean)
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    low, high = interval_ends(Interval(n, mean, sd), LEVEL, looks=looks)
    return Interval(n, mean, sd, low, high)


def interval_ends(mean: Interval, level: float, *, looks: Looks | None = None) -> tuple[float, float]:
    """Return the ends of the t-interval that misses the true mean with probability `level`, at all of the looks together.

    With a prior, it is the interval of the moderated t-test.
    """
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
    scales: Mapping[int, float] = NO_SCALES,
) -> Difference | None:
    """Compare a cell with its baseline seed by seed.

    Args:
        cell: Seed -> value.
        baseline: Seed -> value.
        margin: Largest difference that counts as equivalent, in the metric's unit.
        looks: Looks at which the study is judged. There is no test before the first of several announced ones.
        scales: Seed -> size of the scores that the values are computed from, when it is larger than the scale of the values.

    Returns:
        The difference, not yet corrected over its table; None when the two share no seed.
    """
    shared = sorted(cell.keys() & baseline.keys())
    if not shared:
        return None
    looks = looks and looks.extend_to(len(shared))
    errors = [noise(cell[seed], baseline[seed], scales.get(seed, 0.0)) for seed in shared]
    differences = without_noise([cell[seed] - baseline[seed] for seed in shared], errors)
    mean = interval(differences, looks=looks)
    if mean.sd == 0:
        mean = replace(mean, low=None, high=None)
        constant = NoTest.CONSTANT if mean.mean else None
        untested = Difference(mean, margin=margin, looks=looks, no_test=constant)
    else:
        untested = Difference(mean, margin=margin, looks=looks, skewness=sample_skewness(differences) if mean.sd else None)
    before_first = bool(looks and looks.announced and mean.n < looks.first)
    return untested if mean.sd is None or untested.no_test or before_first else t_test(untested)


def withhold(difference: Difference, reason: NoTest) -> Difference:
    """Return a difference without its test and without the ends of its interval, for a reason."""
    interval = replace(difference.interval, low=None, high=None)
    return replace(difference, interval=interval, p=None, p_equivalent=None, skewness=None, no_test=reason)


def t_test(difference: Difference) -> Difference:
    """Return the difference with the p-values of its pairs alone, not yet corrected over its table."""
    p, p_equivalent = _p_values(difference, without_prior(difference.interval))
    return replace(difference, p=p, p_equivalent=p_equivalent)


def moderated_t_test(difference: Difference, prior: VariancePrior) -> Difference:
    """Return the difference with the p-values of the moderated t-test as well, not yet corrected over its table."""
    mean = replace(difference.interval, prior=prior)
    p, p_equivalent = _p_values(difference, mean)
    return replace(difference, interval=mean, p_moderated=p, p_equivalent_moderated=p_equivalent)


def without_prior(mean: Interval) -> Interval:
    """Return a mean that borrows from no other comparison."""
    return replace(mean, prior=None)


def _p_values(difference: Difference, mean: Interval) -> tuple[float, float | None]:
    """Return the p-values of the test for a difference and of that for equivalence, with the spread of a mean."""
    margin, looks = difference.margin, difference.looks
    p = min(1.0, 2 * adjusted_p(_one_sided_p(mean, abs(mean.mean)), looks, mean.n))
    if margin is None:
        return p, None
    return p, adjusted_p(_one_sided_p(mean, margin - abs(mean.mean)), looks, mean.n)


def noise(*values: float) -> float:
    """Return the distance up to which a difference of two of these values can be rounding."""
    return ROUNDING * max(map(abs, values))


def is_constant(values: Sequence[float], *, relative: float = SINGLE) -> bool:
    """Return True for at least two values that are equal to within a relative error; default: of single precision."""
    return len(values) > 1 and max(values) - min(values) <= relative * max(map(abs, values))


def without_noise(differences: Sequence[float], errors: Sequence[float]) -> list[float]:
    """Return differences without a scatter that says nothing about seeds: all zero, or all like their mean.

    Args:
        differences: Of each seed.
        errors: Rounding errors of each (`noise`).
    """
    if all(abs(difference) <= error for difference, error in zip(differences, errors, strict=True)):
        return [0.0] * len(differences)
    mean, spread, rounding = fmean(differences), max(differences) - min(differences), max(errors)
    is_repeated = spread <= rounding * SINGLE / ROUNDING and spread < REPEATED * abs(mean)
    return [mean] * len(differences) if spread <= 2 * rounding or is_repeated else [*differences]


def correct(differences: Sequence[Difference | None]) -> list[Difference | None]:
    """Fill in the Holm-corrected p-values and levels of one table, in the order given.

    A comparison without its test counts in the table like one with a p-value of 1.
    """
    p_values = [d and (1.0 if d.no_test else _known(d.p_moderated, d.p)) for d in differences]
    p_equivalent = [
        d and (1.0 if d.no_test and d.margin is not None else _known(d.p_equivalent_moderated, d.p_equivalent))
        for d in differences
    ]
    corrected, corrected_near = holm(p_values), holm(p_equivalent)
    levels = (_holm_level(corrected), _holm_level(corrected_near))
    tests = max(1, sum(p is not None for p in p_values))
    rows = zip(differences, corrected, corrected_near, _alone(p_values), _alone(p_equivalent), strict=True)
    return [
        d
        and replace(
            d,
            alone=(factor, factor_near),
            levels=levels,
            comparisons=tests,
            **({} if d.no_test else {"p_table": p, "p_equivalent_table": p_near}),
        )
        for d, p, p_near, factor, factor_near in rows
    ]


def _alone(p_values: Sequence[float | None]) -> list[int]:
    """Return the factors on the p-values of the comparisons alone, given those of the table before its correction."""
    last = max((p for p in p_values if p is not None), default=0.0)
    return [1 if p is None or p >= last else ALONE for p in p_values]


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

    if mean.sd == 0:  # identical: if equal values were as likely as a difference, all would be equal with this probability
        return 0.5**mean.n if distance > 0 else 1.0
    assert mean.moderated_sd is not None
    return float(stdtr(mean.degrees_of_freedom, -distance / (mean.moderated_sd / math.sqrt(mean.n))))


def t_quantile(probability: float, degrees_of_freedom: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, probability))
