"""Tests of many simulated tables at once, as `attnlab.stats.paired` computes them for one.

`tests/benchmarks/test_table_tests.py` compares them with those of a report. Arrays of differences have the shape (tables,
comparisons, seeds), and all other arrays (tables, comparisons). Where the numbers of pairs differ within a table, each
comparison has the first `counts` of its differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy

from attnlab.stats.paired import ALONE, LEVEL
from attnlab.stats.sequential import Looks
from attnlab.stats.variance_prior import MAX_DEGREES_OF_FREEDOM, ODD, prior_degrees_of_freedom


@dataclass(frozen=True)
class TableTests:
    """The t-tests of many tables.

    Attributes:
        mean: Mean differences.
        error: Their standard errors, each from its pairs alone.
        pairs: Number of pairs of each comparison.
        p: Two-sided p-values of each comparison alone, corrected for looks.
        p_equivalent: P-values of the two one-sided tests against the margin, likewise; 1 without a margin.
        table_error, table_degrees_of_freedom: Of the table's tests, which are moderated if the tables are.
        p_table, p_equivalent_table: P-values of the table's tests before Holm's correction.
        tail: One-sided nominal level of the 95 % intervals.
    """

    mean: numpy.ndarray
    error: numpy.ndarray
    pairs: numpy.ndarray
    p: numpy.ndarray
    p_equivalent: numpy.ndarray
    table_error: numpy.ndarray
    table_degrees_of_freedom: numpy.ndarray
    p_table: numpy.ndarray
    p_equivalent_table: numpy.ndarray
    tail: float = LEVEL / 2

    @property
    def differs(self) -> numpy.ndarray:
        """True for verdicts of better or worse."""
        return self.differs_in_table & (self.p * _alone(self.p_table) < LEVEL)

    @property
    def differs_in_table(self) -> numpy.ndarray:
        """True where the test of the table alone shows a difference."""
        return holm(self.p_table) < LEVEL

    @property
    def within_margin(self) -> numpy.ndarray:
        """True where the two one-sided tests place the difference within the margin."""
        return self.within_margin_in_table & (self.p_equivalent * _alone(self.p_equivalent_table) < LEVEL)

    @property
    def within_margin_in_table(self) -> numpy.ndarray:
        """True where the test of the table alone places the difference within the margin."""
        return holm(self.p_equivalent_table) < LEVEL

    def covers(self, truth: float | numpy.ndarray) -> numpy.ndarray:
        """Return True where the 95 % interval of the comparison contains the true difference."""
        from scipy.special import stdtrit

        return abs(self.mean - truth) <= stdtrit(self.pairs - 1, 1 - self.tail) * self.error

    def half_width(self, level: float) -> numpy.ndarray:
        """Return half the width of the table's intervals that miss the truth with probability `level`, at one look.

        Each is at least as wide as the one of the test of its comparison alone.
        """
        from scipy.special import stdtrit

        alone = max(level, LEVEL / ALONE)

        of_table = stdtrit(self.table_degrees_of_freedom, 1 - level / 2) * self.table_error
        return numpy.maximum(of_table, stdtrit(self.pairs - 1, 1 - alone / 2) * self.error)


def _alone(p_table: numpy.ndarray) -> numpy.ndarray:
    """Return the factor on the p-value of each comparison alone, as in `attnlab.stats.paired.correct`."""
    return numpy.where(p_table >= p_table.max(1, keepdims=True), 1, ALONE)


def join(tables: Sequence[TableTests]) -> TableTests:
    """Return tests that are corrected together by Holm's method; all have the same looks."""
    names = [field.name for field in fields(TableTests) if field.name != "tail"]
    arrays = {name: numpy.concatenate([getattr(table, name) for table in tables], axis=1) for name in names}
    return TableTests(**arrays, tail=tables[0].tail)


def t_tests(
    differences: numpy.ndarray,
    *,
    counts: numpy.ndarray | None = None,
    margin: float | None = None,
    looks: Looks | None = None,
    moderated: bool = False,
    most: int = MAX_DEGREES_OF_FREEDOM,
) -> TableTests:
    """Test the differences of each table.

    Args:
        differences: All differences.
        counts: Number of pairs of each comparison, at least 2; default: all of them.
        margin: Largest difference that counts as equivalent.
        looks: Looks that all tests are corrected for; with `counts`, announced ones, whose correction does not depend on the
            number of pairs.
        moderated: Let the comparisons of each table borrow from each other's variances.
        most: Largest number of degrees of freedom of the prior.
    """
    from scipy.special import stdtr

    seeds = differences.shape[2]
    n = numpy.full(differences.shape[:2], seeds) if counts is None else counts
    mean, variance = _moments(differences, n)
    kept = ~_odd(variance, n) if moderated else numpy.ones_like(n, dtype=bool)
    prior = numpy.where(kept, _prior(n, kept, most), 0) if moderated else numpy.zeros((len(n), 1), dtype=int)
    number = None if looks is None or counts is not None else seeds

    def corrected(p: numpy.ndarray) -> numpy.ndarray:
        return p if looks is None else looks.adjust(p, number)

    def tested(error: numpy.ndarray, freedom: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
        two_sided = numpy.minimum(1, 2 * corrected(stdtr(freedom, -abs(mean / error))))
        if margin is None:
            return two_sided, numpy.ones_like(mean)
        return two_sided, corrected(stdtr(freedom, -(margin - abs(mean)) / error))

    freedom, alone = prior + n - 1, numpy.sqrt(variance / n)
    common = numpy.where(kept, variance, 0).sum(1, keepdims=True) / numpy.maximum(kept.sum(1, keepdims=True), 1)
    of_table = numpy.sqrt((prior * common + (n - 1) * variance) / freedom / n)
    tests = tested(alone, n - 1)
    tail = LEVEL / 2 if looks is None else looks.nominal_level(LEVEL / 2, number)
    return TableTests(mean, alone, n, *tests, of_table, freedom, *(tested(of_table, freedom) if moderated else tests), tail)


def _moments(differences: numpy.ndarray, counts: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return mean and variance of the first differences of each comparison."""
    present = numpy.arange(differences.shape[2]) < counts[..., None]
    mean = numpy.where(present, differences, 0).sum(2) / counts
    squares = numpy.where(present, differences - mean[..., None], 0) ** 2
    return mean, squares.sum(2) / (counts - 1)


def _odd(variance: numpy.ndarray, counts: numpy.ndarray) -> numpy.ndarray:
    """Return True for comparisons that scatter too little or too much to borrow, as `are_odd` says."""
    from scipy.special import fdtr, fdtrc

    total, freedom = variance.sum(1, keepdims=True), (counts - 1).sum(1, keepdims=True)
    others = (total - variance) / max(variance.shape[1] - 1, 1)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        tails = [tail(counts - 1, freedom - (counts - 1), variance / others) for tail in (fdtr, fdtrc)]
        return numpy.fmin(*tails) < ODD / variance.shape[1]


def _prior(counts: numpy.ndarray, kept: numpy.ndarray, most: int) -> numpy.ndarray:
    """Return the degrees of freedom of the prior of each table, shape (tables, 1)."""
    fewest, comparisons = numpy.where(kept, counts, counts.max()).min(1, keepdims=True), kept.sum(1, keepdims=True)
    numbers = range(int(counts.max()) + 1), range(counts.shape[1] + 1)
    table = [[min(most, prior_degrees_of_freedom(pairs, number)) for number in numbers[1]] for pairs in numbers[0]]
    return numpy.array(table)[fewest, comparisons]


def holm(p: numpy.ndarray) -> numpy.ndarray:
    """Return the p-values corrected by Holm's method over each table."""
    order = p.argsort(1)
    steps = numpy.take_along_axis(p, order, 1) * numpy.arange(p.shape[1], 0, -1)
    corrected = numpy.empty_like(p)
    numpy.put_along_axis(corrected, order, numpy.minimum(1, numpy.maximum.accumulate(steps, 1)), 1)
    return corrected
