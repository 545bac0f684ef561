"""Estimators with exact tests: the median, the solve rate, and the probability of superiority.

On tasks such as recall, one seed of a configuration solves the task and the next does not. The mean over
seeds is then the score of no run, and its t-test assumes a distribution that the scores do not have.

    median       the median of the paired differences: the sign test, with the interval between two order statistics. The
                 signed-rank test would need fewer seeds, and symmetric differences
    solve_rate   the difference of the shares of seeds that reach a threshold: the exact test of Barnard and Chan
                 (`attnlab.stats.exact`)
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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, ClassVar

from attnlab._util.run_state import RunState
from attnlab._util.text import count
from attnlab.stats import paired
from attnlab.stats.estimators import CellSummary, Ends, Estimator, Runs, Scores, Words
from attnlab.stats.exact import (
    ExactInterval,
    clopper_pearson,
    interval_of_difference,
    median_interval,
    p_above,
    predicted_solved,
    sign_test_p,
)
from attnlab.stats.paired import LEVEL, Difference, Interval, describe_level
from attnlab.stats.records import OUTCOMELESS_STATES, state_of
from attnlab.stats.sequential import Looks, adjusted_p, level_at, levels_at

UNLIKELY = 1e-5  # outcomes of further seeds that a prediction leaves out
FARTHEST = 200  # largest number of seeds that `Exact.fewest_seeds` considers
WIDE_RATE = 0.5  # margin of solve rates from which on it is noted: few seeds tell small differences apart
EXACT = Words(
    noun="median",
    heading="median {metric}",
    summary="median over {{seeds}}",
    compared_by="{description}",
    caption="compared by {description}; exact 95 % intervals in brackets",
)


@dataclass(frozen=True, kw_only=True)
class ExactDifference(Difference):
    """A cell compared with its baseline by an exact test, over the seeds of which both completed or diverged.

    It has no standard deviation and no effect size. Equal scores at the limits of a task do not make two cells identical.
    `interval` has the median of the differences, in the metric's unit; the solve rate of the cell minus the baseline's;
    or the probability of superiority, between 0 and 1.

    Attributes:
        estimator: The estimator.
        pairs: (score of the cell, score of the baseline) of each seed; infinite for a diverged run.
    """

    estimator: Exact
    pairs: tuple[tuple[float, float], ...]

    @property
    def has_equal_scores(self) -> bool:
        return not any(self.gaps)

    @property
    def wins(self) -> tuple[int, int]:
        """Numbers of seeds in which the cell and the baseline are better than the other."""
        lower, higher = sum(gap < 0 for gap in self.gaps), sum(gap > 0 for gap in self.gaps)
        return (lower, higher) if self.estimator.direction == "min" else (higher, lower)

    @property
    def gaps(self) -> list[float]:
        """The score of the cell minus the baseline's in each seed: 0 for a tie, infinite if one of them diverged."""
        return [_gap(cell, baseline) for cell, baseline in self.pairs]

    @property
    def may_be_repeated(self) -> bool:
        gaps = self.gaps
        if self.estimator.takes_threshold:
            return False  # that all seeds reach it, or none, is an ordinary result
        if len(gaps) < 2 or not any(gaps) or not all(map(math.isfinite, gaps)):
            return False
        return paired.agree(gaps, [paired.noise(*pair) for pair in self.pairs])

    def test_margins(self, pairs: Sequence[tuple[float, float]]) -> ExactDifference:
        beyond = (sum(margin + sign * gap > 0 for margin, gap in pairs) for sign in (-1, 1))
        near = max(sign_test_p(count, len(pairs)) for count in beyond)
        return replace(self, p_equivalent=adjusted_p(near, self.looks, len(pairs)))

    def ends_at(self, level: float) -> Ends:
        return self.estimator.estimate(self, level_at(level / 2, self.looks, len(self.pairs)))[1]

    def verdict_probability(self, seeds: int) -> float | None:
        """Return the predicted probability of a verdict with more seeds; None for an estimator without predictions."""
        return self.estimator.verdict_probability(self, seeds)

    def fewest_seeds(self, numbers: Iterable[int]) -> int | None:
        return self.estimator.fewest_seeds(comparisons=self.comparisons, looks=self.looks, numbers=numbers)

    def format(self, *, short: bool = False) -> str:
        return self.estimator.format_difference(self)

    def format_ends(self, interval: Interval) -> str:
        return interval.format_ends(digits=self.estimator.digits, sign=self.estimator.has_sign)

    def format_size(self) -> str:
        return f", {self.format()}"  # which has a sign


def _gap(cell: float, baseline: float) -> float:
    if cell == baseline or abs(cell - baseline) <= paired.noise(cell, baseline) < math.inf:
        return 0.0
    return cell - baseline


class Exact(Estimator):
    """Base class of estimators with exact tests. A diverged run has the worst score.

    Attributes:
        null: Value of the estimate without a difference.
        digits: Decimals of the ends of an interval of differences.
        has_sign: Differences are written with a sign.
    """

    is_exact, is_mean = True, False
    lost_states = OUTCOMELESS_STATES
    null: ClassVar[float] = 0.0
    digits: ClassVar[int] = 2
    has_sign: ClassVar[bool] = True

    def evaluate(self, cells: Sequence[CellSummary], runs: Runs, looks: Looks | None) -> list[CellSummary]:
        """Fill in the scores of each cell and their estimate; the mean is kept without an interval."""
        evaluated, worst = [], math.inf if self.direction == "min" else -math.inf
        for cell in super().evaluate(cells, runs, None):
            diverged = {int(run["seed"]) for run in runs[cell.name] if state_of(run, self.metric) == RunState.DIVERGED}
            scores = {**cell.values, **dict.fromkeys(sorted(diverged - cell.values.keys()), worst)}
            estimate = self.summarize([*scores.values()], looks=looks) if scores else None
            value = cell.value and replace(cell.value, low=None, high=None)
            evaluated.append(replace(cell, value=value, scores=scores, estimate=estimate))
        return evaluated

    def summarize(self, scores: Sequence[float], *, looks: Looks | None = None) -> ExactInterval:
        """Return the number of a single cell with its exact 95 % interval: by default the median.

        Args:
            scores: One per seed, infinite for one that diverged; at least one.
            looks: Widen the interval so that it covers the true value at all of these looks together.
        """
        tail = level_at(LEVEL / 2, looks, len(scores))
        return ExactInterval(len(scores), median(scores), None, *(median_interval(scores, tail) or (None, None)))

    def compare(
        self, cell: Scores, baseline: Scores, *, margin: float | None = None, looks: Looks | None = None
    ) -> ExactDifference | None:
        pairs = tuple((cell[seed], baseline[seed]) for seed in sorted(cell.keys() & baseline.keys()))
        if not pairs:
            return None
        n = len(pairs)
        looks = looks and looks.extend_to(n)
        options = {"null": self.null, "like_metric": self.difference_direction == self.direction}
        untested = ExactDifference(ExactInterval(n, 0.0), **options, margin=margin, looks=looks, estimator=self, pairs=pairs)
        estimate, ends = self.estimate(untested, level_at(LEVEL / 2, looks, n))
        untested = replace(untested, interval=ExactInterval(n, estimate, None, *ends))
        if n < 2 or (looks and looks.announced and n < looks.first):
            return replace(untested, interval=replace(untested.interval, low=None, high=None))
        p = min(self.one_sided_p(untested, self.null, above=above) for above in (True, False))
        p = min(1.0, 2 * adjusted_p(p, looks, n))
        if margin is None or not self.has_equivalence:
            return replace(untested, p=p)
        near = max(self.one_sided_p(untested, -margin, above=True), self.one_sided_p(untested, margin, above=False))
        return replace(untested, p=p, p_equivalent=adjusted_p(near, looks, n))

    def estimate(self, difference: ExactDifference, tail: float) -> tuple[float, Ends]:
        """Return the estimate of a difference and the ends of its interval, each missed with probability `tail`."""
        raise NotImplementedError

    def one_sided_p(self, difference: ExactDifference, limit: float, *, above: bool) -> float:
        """Return the one-sided p-value against a difference beyond a limit, not corrected for looks.

        Args:
            difference: The tested difference, by its `pairs`.
            limit: The tested value.
            above: Test whether the true difference lies above the limit, rather than below it.
        """
        raise NotImplementedError

    def verdict_probability(self, difference: ExactDifference, seeds: int) -> float | None:
        """Return the predicted probability that a difference has a verdict with more seeds; None without a prediction."""
        return None

    def smallest_p(self, n: int) -> float:
        """Return the smallest two-sided p-value that any scores of `n` seeds can have."""
        return min(1.0, 2 * sign_test_p(n, n))

    def smallest_equivalent_p(self, n: int, margin: float) -> float:
        """Return the p-value of the equivalence test of `n` seeds with equal results."""
        return sign_test_p(n, n)

    def fewest_seeds(
        self, *, comparisons: int = 1, looks: Looks | None = None, numbers: Iterable[int] | None = None
    ) -> int | None:
        """Return the smallest number of seeds with which any comparison of a table can be better or worse.

        Args:
            comparisons: Number of comparisons in the table; Holm's correction divides the level of its smallest p-value by it.
            looks: Looks at which the table is judged.
            numbers: The numbers of seeds to consider, increasing; default: 2 to `FARTHEST`.

        Returns:
            A number of seeds; None when none of them suffices.
        """
        for n in range(2, FARTHEST + 1) if numbers is None else numbers:
            p = self.smallest_p(n)
            if looks is not None and comparisons * p < LEVEL:  # a correction for looks only increases it
                p = min(1.0, 2 * adjusted_p(p / 2, looks, n))
            if comparisons * p < LEVEL:
                return n
        return None

    def fewest_equivalent(self, margin: float, *, comparisons: int = 1) -> int | None:
        """Return the smallest number of seeds with which equal results can be equivalent; None beyond `FARTHEST`.

        Args:
            margin: Largest difference that counts as equivalent.
            comparisons: Number of comparisons with a test for equivalence.
        """
        numbers = range(2, FARTHEST + 1)
        index = bisect_left(numbers, True, key=lambda n: comparisons * self.smallest_equivalent_p(n, margin) < LEVEL)
        return numbers[index] if index < len(numbers) else None

    def format_difference(self, difference: ExactDifference) -> str:
        """Format a difference with its interval and sign, as in "+0.80 [+0.11, +0.99]"."""
        return f"{difference.interval.mean:+.{self.digits}f} {difference.format_ends(difference.interval)}".rstrip()

    def columns(self, cell: CellSummary) -> dict[str, Any]:
        """Return the estimand and the estimate with its interval; the columns of the metric have the mean."""
        estimate = cell.estimate
        ends = (estimate.mean, estimate.low, estimate.high) if estimate else (None, None, None)
        return {"estimand": self.name, **dict(zip(("estimate", "estimate_low", "estimate_high"), ends, strict=True))}

    def notes(
        self, cells: Sequence[CellSummary], *, margin: float | None, looks: Looks | None, family: str = "the table"
    ) -> list[str]:
        texts = [f"Seeds are summarized by {self.words.description}. Brackets are exact 95 % intervals over seeds."]
        texts += self.warnings(cells)
        if any(cell.scores.keys() - cell.values.keys() for cell in cells):
            texts.append(f"A diverged run is an outcome of its cell: {self.words.diverged}.")
        if self.words.noun not in self.words.description:
            texts.append(f"The figure of a single cell is the {self.words.noun} of its seeds.")
        if not any(comparison.difference for cell in cells for comparison in (cell, *cell.further)):
            return texts
        texts.append(
            f"Verdicts are at {describe_level(margin)}, corrected by Holm's method over all comparisons of {family}: "
            f"{self.words.test_note}. Variances are not borrowed, and no distribution of the scores is assumed. “Inconclusive” "
            "means that these seeds do not decide between the cells, not that the cells are equal."
        )
        if not self.has_equivalence:
            texts.append("No verdict of equivalent: there is no test for it.")
        elif margin is not None:
            texts.append(f"Equivalent: two one-sided tests of the same kind place the difference within ±{margin:g} of zero.")
        if looks is not None and looks.count > 1:
            numbers = [*range(looks.first, looks.last + 1), *looks.further]
            texts.append(
                f"The study is judged at {len(numbers)} numbers of seeds, from {numbers[0]} to {numbers[-1]}. Intervals, "
                "p-values and verdicts are corrected for these looks at the levels of t-tests; at the same level, the error of "
                "an exact test is smaller."
            )
        return texts


class Median(Exact):
    """The median of the paired differences."""

    name = "median"
    digits = 4
    templates = replace(
        EXACT,
        description="the median of the differences in {metric} between runs with the same seed",
        measure="the median of {quantity}",
        test="sign test",
        test_note="the sign test of the paired differences. Their median has the interval between two order statistics",
        diverged="its score is worse than any other, and a median that falls on diverged runs is no number",
    )

    def estimate(self, difference: ExactDifference, tail: float) -> tuple[float, Ends]:
        return median(difference.gaps), median_interval(difference.gaps, tail) or (None, None)

    def one_sided_p(self, difference: ExactDifference, limit: float, *, above: bool) -> float:
        beyond = sum(gap > limit if above else gap < limit for gap in difference.gaps)
        return sign_test_p(beyond, len(difference.pairs))

    def format_difference(self, difference: ExactDifference) -> str:
        """Format a difference like a score, as in "+0.0100 [-0.0200, +0.0300]"."""
        return difference.interval.format(sign=True)


class SolveRate(Exact):
    """The share of seeds that reach the threshold."""

    name = "solve_rate"
    takes_threshold = is_rate = True
    in_unit = False
    references = ("barnard1947", "chan1998", "clopper1934")
    templates = replace(
        EXACT,
        noun="solve rate",
        heading="{metric} {sign} {threshold:g}",
        summary="share of solved seeds over {{seeds}}",
        description="the solve rate, the share of seeds with {metric} of {limit} {threshold:g}",
        measure="the share of seeds with {heading}",
        difference_heading="difference in solve rate from",
        test="exact test of Barnard and Chan",
        test_note="the exact test of Barnard and Chan. The rate of a cell has the interval of Clopper and Pearson, the "
        "difference of two rates the interval that agrees with the test. The runs of a pair count as independent, which is "
        "cautious if seeds that solve one cell tend to solve the other",
        diverged="it does not solve the task",
    )

    def solves(self, score: float) -> bool:
        """Return True when the score of a run reaches the threshold."""
        assert self.threshold is not None
        return score <= self.threshold if self.direction == "min" else score >= self.threshold

    def solved(self, difference: ExactDifference) -> tuple[int, int]:
        """Return the numbers of seeds in which the cell and the baseline solve the task."""
        first, second = (sum(self.solves(pair[i]) for pair in difference.pairs) for i in (0, 1))
        return first, second

    def summarize(self, scores: Sequence[float], *, looks: Looks | None = None) -> ExactInterval:
        n, solved = len(scores), sum(map(self.solves, scores))
        ends = clopper_pearson(solved, n, level_at(LEVEL / 2, looks, n))
        return ExactInterval(n, solved / n, None, *ends, solved=solved)

    def estimate(self, difference: ExactDifference, tail: float) -> tuple[float, Ends]:
        (cell, baseline), n = self.solved(difference), len(difference.pairs)
        return (cell - baseline) / n, interval_of_difference(cell, baseline, n, tail)

    def one_sided_p(self, difference: ExactDifference, limit: float, *, above: bool) -> float:
        (cell, baseline), n = self.solved(difference), len(difference.pairs)
        return p_above(cell, baseline, n, limit) if above else p_above(baseline, cell, n, -limit)

    def verdict_probability(self, difference: ExactDifference, seeds: int) -> float:
        (cell, baseline), n = self.solved(difference), len(difference.pairs)
        added = seeds - n
        two_sided, one_sided = levels_at(difference.levels, difference.looks, seeds)
        margin = difference.margin if self.has_equivalence else None

        def is_conclusive(a: int, b: int) -> bool:
            if p_above(max(a, b), min(a, b), seeds) <= two_sided / 2:
                return True
            return margin is not None and max(p_above(a, b, seeds, -margin), p_above(b, a, seeds, -margin)) <= one_sided

        of_cell, of_baseline = (predicted_solved(count, n, added) for count in (cell, baseline))
        outcomes = [(a, b, float(of_cell[a] * of_baseline[b])) for a in range(added + 1) for b in range(added + 1)]
        likely = [outcome for outcome in outcomes if outcome[2] > UNLIKELY]
        return sum(probability for a, b, probability in likely if is_conclusive(cell + a, baseline + b))

    def smallest_p(self, n: int) -> float:
        return min(1.0, 2 * p_above(n, 0, n))

    def smallest_equivalent_p(self, n: int, margin: float) -> float:
        return p_above(n, n, n, -margin)

    def format(self, cell: CellSummary) -> str:
        """Format the number of solved seeds, as in "solved 4 of 5 [0.28, 0.99]"."""
        rate = cell.estimate
        return super().format(cell) if rate is None else f"solved {rate.solved} of {rate.n} {rate.format_ends(digits=2)}"

    def warnings(self, cells: Iterable[CellSummary]) -> list[str]:
        """Return a warning about a threshold in another unit than the scores: per cent, or a share."""
        threshold, scores = self.threshold, [value for cell in cells for value in cell.values.values()]
        if threshold is None or not scores:
            return []
        if min(scores) >= 0 and max(scores) <= 1 < threshold <= 100:
            limits, advice = "0 and 1", f"if it is meant in per cent, write {threshold / 100:g}"
        elif 0 < threshold <= 1 < min(scores) and max(scores) <= 100:
            limits, advice = "1 and 100", f"if the scores are in per cent, write {100 * threshold:g}"
        else:
            return []
        about = f"All scores in {self.metric} lie between {limits}, and the threshold of the solve rate is {threshold:g}"
        return [f"{about}: {advice}."]

    def margin_problem(self, margin: Any) -> str:
        if isinstance(margin, str):
            return f"expected a difference of solve rates, such as 0.3, got {margin}"
        too_wide = isinstance(margin, float) and margin >= 1
        return f"expected a difference of solve rates below 1, got {margin:g}" if too_wide else ""

    def margin_notes(self, margin: float | str | None) -> list[str]:
        if not isinstance(margin, float) or margin < WIDE_RATE:
            return []
        return [f"margin: {margin:g} of a solve rate, which is between 0 and 1, calls cells equivalent that differ greatly"]

    def stop_note(self, score: str, stop_at: float, *, compared: bool) -> str:
        if score != self.metric or self.solves(stop_at):
            return ""
        return (
            f"train.stop_at ends runs at {score} {stop_at:g}, before they reach the threshold of the solve rate, "
            f"{self.threshold:g}"
        )


class Superiority(Exact):
    """The probability that a run beats the baseline's run with the same seed; a single cell has a median."""

    name = "superiority"
    in_unit = has_equivalence = has_sign = False
    null = 0.5
    references = ("clopper1934",)
    templates = replace(
        EXACT,
        summary="median over {{seeds}} of the metric",
        description="the probability of superiority, that a run has better {metric} than the baseline's run with the same seed",
        difference="probability of superiority over the baseline",
        difference_heading="probability above one half of beating",
        test="sign test",
        test_note="the sign test of the seeds in which the two runs differ. The share of these in which the cell is better "
        "has the interval of Clopper and Pearson",
        diverged="it loses against a run that completed",
    )

    def estimate(self, difference: ExactDifference, tail: float) -> tuple[float, Ends]:
        wins, losses = difference.wins
        return wins / (wins + losses) if wins + losses else 0.5, clopper_pearson(wins, wins + losses, tail)

    def one_sided_p(self, difference: ExactDifference, limit: float, *, above: bool) -> float:
        wins, losses = difference.wins
        return sign_test_p(wins if above else losses, wins + losses)

    def format_difference(self, difference: ExactDifference) -> str:
        """Format the counts, as in "better in 5 of 6 seeds [0.36, 1.00]"."""
        wins, losses = difference.wins
        ties = len(difference.pairs) - wins - losses
        ends = difference.format_ends(difference.interval)
        text = f"better in {wins} of {count(wins + losses, 'seed')} {ends}".rstrip()
        return text + (f", {count(ties, 'tie')}" if ties else "")
