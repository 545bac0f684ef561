"""Estimands other than the mean, with exact tests: the median, the solve rate, and the probability of superiority.

On tasks such as recall, one seed of a configuration solves the task and the next does not. The mean over
seeds is then the score of no run, and its t-test assumes a distribution that the scores do not have.

    median       the median of the paired differences: the sign test, with the interval between two order statistics. The
                 signed-rank test would need fewer seeds, and symmetric differences
    solve_rate   the difference of the shares of seeds whose score reaches a threshold: the exact test of Barnard and Chan
                 (`attnlab.stats.solve_rates`)
    superiority  the probability that a run beats the baseline's run with the same seed, where the two differ: the sign test,
                 with the interval of Clopper and Pearson (1934). The test of Mann and Whitney would need fewer seeds; it
                 also calls cells different of which neither beats the other more often, if one of them is bimodal

A diverged run is an outcome of its cell and counts in all three: it does not solve the task, it loses against a run that
completed, and as a score it is worse than any other. A median that falls on a diverged run is infinite. Runs that failed, timed
out or ran out of memory have no score. Scores that differ by no more than `attnlab.stats.paired.NOISE` are ties.

`benchmarks.estimands` has the simulations behind these choices. The tests are discrete, so that their error
rates lie below their levels. The correction for looks was calibrated for t-tests; `benchmarks.estimands`
also simulates these tests with it.

Reference:
    Clopper, C. J. and Pearson, E. S. (1934). The use of confidence or fiducial limits illustrated in the case of the binomial.
    Biometrika 26, 404-413.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from attnlab.config.estimand import EstimandConfig
from attnlab.stats import paired
from attnlab.stats.exact import clopper_pearson, median_interval, sign_test_p
from attnlab.stats.paired import LEVEL, NO_SCALES, Difference, Interval
from attnlab.stats.sequential import Looks, adjusted_p, level_at
from attnlab.stats.solve_rates import interval_of_difference, p_above

FARTHEST = 200  # largest number of seeds that `fewest_seeds` considers


@dataclass(frozen=True)
class ExactInterval(Interval):
    """An estimate with its exact interval, whose ends are not symmetric; without ends if there are too few values.

    `solved` is the number of seeds that solve the task, for the solve rate of a cell.
    """

    solved: int | None = None

    @property
    def half_width(self) -> None:
        """None: the ends do not lie at one distance from the estimate."""
        return None


@dataclass(frozen=True)
class ExactDifference(Difference):
    """A cell compared with its baseline by an exact test, over the seeds of which both completed or diverged.

    `interval` has the median of the differences, in the metric's unit; the solve rate of the cell minus that of the baseline;
    or the probability of superiority, between 0 and 1.

    Attributes:
        estimand: The estimand, not the mean.
        direction: "min" where smaller scores are better, else "max".
        pairs: (score of the cell, score of the baseline) of each seed; infinite for a diverged run (`worst_score`).
    """

    estimand: EstimandConfig = field(default_factory=EstimandConfig)
    direction: str = "min"
    pairs: tuple[tuple[float, float], ...] = ()

    @property
    def null(self) -> float:
        """The value of the estimate without a difference."""
        return 0.5 if self.estimand.name == "superiority" else 0.0

    @property
    def effect_size(self) -> None:
        """None: Hedges' g is defined for means."""
        return None

    @property
    def identical(self) -> bool:
        """False: equal scores at the limits of a task do not show that two cells agree."""
        return False

    @property
    def solved(self) -> tuple[int, int]:
        """Numbers of seeds in which the cell and the baseline solve the task."""
        first, second = (sum(self.estimand.solves(pair[i], self.direction) for pair in self.pairs) for i in (0, 1))
        return first, second

    @property
    def wins(self) -> tuple[int, int]:
        """Numbers of seeds in which the cell and the baseline are better than the other."""
        lower, higher = sum(gap < 0 for gap in self.gaps), sum(gap > 0 for gap in self.gaps)
        return (lower, higher) if self.direction == "min" else (higher, lower)

    @property
    def gaps(self) -> list[float]:
        """The score of the cell minus that of the baseline in each seed: 0 for a tie, infinite if one of them diverged."""
        return [_gap(cell, baseline) for cell, baseline in self.pairs]

    @property
    def is_constant(self) -> bool:
        """True if all of several seeds have the same finite difference, to within the noise, and it is not zero."""
        gaps = self.gaps
        if len(gaps) < 2 or not any(gaps) or not all(map(math.isfinite, gaps)):
            return False
        return paired.agree(gaps, [paired.noise(*pair) for pair in self.pairs])

    @property
    def conclusion(self) -> str:
        """`lower`, `higher` or `equivalent`, in the direction of the metric, or "" if inconclusive."""
        if self.p is None:
            return ""
        if self.is_significant:
            is_larger = self.interval.mean > self.null
            # A larger rate or probability is better; a median has the direction of the metric.
            return "higher" if is_larger == (self.estimand.name == "median" or self.direction == "max") else "lower"
        return "equivalent" if self.within_margin else ""

    def interval_at(self, level: float) -> ExactInterval:
        """Return the estimate with the interval that misses the truth with probability `level`, at all looks together."""
        n = len(self.pairs)
        tail = level_at(level / 2, self.looks, n)
        wins, losses = self.wins
        if self.estimand.name == "median":
            estimate, ends = _median(self.gaps), median_interval(self.gaps, tail)
        elif self.estimand.name == "solve_rate":
            cell, baseline = self.solved
            estimate, ends = (cell - baseline) / n, interval_of_difference(cell, baseline, n, tail)
        else:
            estimate = wins / (wins + losses) if wins + losses else 0.5
            ends = clopper_pearson(wins, wins + losses, tail)
        return ExactInterval(n, estimate, None, *(ends or (None, None)))

    def one_sided_p(self, limit: float, *, above: bool) -> float:
        """Return the one-sided p-value against a difference beyond a limit, not corrected for looks.

        Args:
            limit: The tested difference.
            above: Test whether the true difference lies above the limit, rather than below it.
        """
        if self.estimand.name == "solve_rate":
            (cell, baseline), n = self.solved, len(self.pairs)
            return p_above(cell, baseline, n, limit) if above else p_above(baseline, cell, n, -limit)
        if self.estimand.name == "superiority":
            wins, losses = self.wins
            return sign_test_p(wins if above else losses, wins + losses)
        beyond = sum(gap > limit if above else gap < limit for gap in self.gaps)
        return sign_test_p(beyond, len(self.pairs))


def worst_score(direction: str) -> float:
    """Return the score of a diverged run: infinite, and worse than that of any other run."""
    return math.inf if direction == "min" else -math.inf


def _gap(cell: float, baseline: float) -> float:
    if cell == baseline or abs(cell - baseline) <= paired.noise(cell, baseline) < math.inf:
        return 0.0
    return cell - baseline


def _median(values: Sequence[float]) -> float:
    """Return the median; NaN halfway between a positive and a negative infinity."""
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low if low == high else (low + high) / 2


def compare_seeds(
    cell: Mapping[int, float],
    baseline: Mapping[int, float],
    *,
    estimand: EstimandConfig,
    direction: str,
    margin: float | None = None,
    looks: Looks | None = None,
    scales: Mapping[int, float] = NO_SCALES,
) -> Difference | None:
    """Compare a cell with its baseline: by a t-test for the mean, else by an exact test.

    Args:
        cell: Seed -> score; for another estimand than the mean, with `worst_score` for seeds that diverged.
        baseline: The same of the baseline.
        estimand: The number that is compared.
        direction: "min" where smaller scores are better, else "max".
        margin: Largest difference that counts as equivalent, in the metric's unit, or of solve rates; without effect for the
            probability of superiority.
        looks: Looks at which the study is judged. There is no test before the first of several announced ones.
        scales: As `attnlab.stats.paired.difference` takes them, for the mean.

    Returns:
        The difference, not yet corrected over its table; None if the two share no seed.
    """
    if estimand.is_mean:
        return paired.difference(cell, baseline, margin=margin, looks=looks, scales=scales)
    pairs = tuple((cell[seed], baseline[seed]) for seed in sorted(cell.keys() & baseline.keys()))
    if not pairs:
        return None
    n = len(pairs)
    looks = looks and looks.extend_to(n)
    options = {"estimand": estimand, "direction": direction, "pairs": pairs}
    untested = ExactDifference(ExactInterval(n, 0.0), margin=margin, looks=looks, **options)
    untested = replace(untested, interval=untested.interval_at(LEVEL))
    if n < 2 or (looks and looks.announced and n < looks.first):
        return replace(untested, interval=replace(untested.interval, low=None, high=None))
    null = untested.null
    p = min(untested.one_sided_p(null, above=True), untested.one_sided_p(null, above=False))
    p = min(1.0, 2 * adjusted_p(p, looks, n))
    if margin is None or estimand.name == "superiority":
        return replace(untested, p=p)
    near = max(untested.one_sided_p(-margin, above=True), untested.one_sided_p(margin, above=False))
    return replace(untested, p=p, p_equivalent=adjusted_p(near, looks, n))


def summarize_seeds(
    values: Sequence[float], *, estimand: EstimandConfig, direction: str, looks: Looks | None = None
) -> ExactInterval | None:
    """Return the solve rate or the median of a cell with its exact 95 % interval; None for the mean, or without a score.

    Args:
        values: One score per seed, `worst_score` for one that diverged.
        estimand: The median is also returned for the probability of superiority, which belongs to two cells.
        direction: "min" where smaller scores are better, else "max".
        looks: Widen the interval so that it covers the true value at all of these looks together.
    """
    if estimand.is_mean or not values:
        return None
    n = len(values)
    tail = level_at(LEVEL / 2, looks, n)
    if estimand.name == "solve_rate":
        solved = sum(estimand.solves(value, direction) for value in values)
        return ExactInterval(n, solved / n, None, *clopper_pearson(solved, n, tail), solved=solved)
    return ExactInterval(n, _median(values), None, *(median_interval(values, tail) or (None, None)))


def smallest_p(estimand: EstimandConfig, n: int) -> float:
    """Return the smallest two-sided p-value that any scores of `n` seeds can have."""
    return min(1.0, 2 * (p_above(n, 0, n) if estimand.name == "solve_rate" else sign_test_p(n, n)))


def fewest_seeds(
    estimand: EstimandConfig, *, comparisons: int = 1, looks: Looks | None = None, numbers: Iterable[int] | None = None
) -> int | None:
    """Return the smallest number of seeds with which any comparison of a table can be better or worse.

    Args:
        estimand: Not the mean.
        comparisons: Number of comparisons in the table; Holm's correction divides the level of its smallest p-value by it.
        looks: Looks at which the table is judged.
        numbers: The numbers of seeds to consider, increasing; default: 2 to `FARTHEST`.

    Returns:
        A number of seeds; None if none of them suffices.
    """
    for n in range(2, FARTHEST + 1) if numbers is None else numbers:
        p = smallest_p(estimand, n)
        if looks is not None and comparisons * p < LEVEL:  # a correction for looks only increases it
            p = min(1.0, 2 * adjusted_p(p / 2, looks, n))
        if comparisons * p < LEVEL:
            return n
    return None


def fewest_equivalent(estimand: EstimandConfig, margin: float, *, comparisons: int = 1) -> int | None:
    """Return the smallest number of seeds with which equal results can be equivalent; None beyond `FARTHEST`.

    Args:
        estimand: Not the mean.
        margin: Largest difference that counts as equivalent.
        comparisons: Number of comparisons with a test for equivalence.
    """

    def is_enough(n: int) -> bool:
        best = p_above(n, n, n, -margin) if estimand.name == "solve_rate" else sign_test_p(n, n)
        return comparisons * best < LEVEL

    numbers = range(2, FARTHEST + 1)
    index = bisect_left(numbers, True, key=is_enough)
    return numbers[index] if index < len(numbers) else None
