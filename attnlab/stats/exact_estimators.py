"""The solve rate: the share of seeds that reach a threshold, with exact tests.

On tasks such as recall, one seed of a configuration solves the task and the next does not. The mean over
seeds is then the score of no run, and its t-test assumes a distribution that the scores do not have. The difference of two
solve rates has the exact test of Barnard and Chan (`attnlab.stats.exact`).

A diverged run is an outcome of its cell: it does not solve the task. Runs that failed, timed out or ran out of memory have no
score.

`benchmarks.estimands` has the simulations behind this choice. The test is discrete, so that its error rate lies below its
level. The correction for looks was calibrated for t-tests; `benchmarks.estimands` also simulates this test with it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attnlab._util.run_state import RunState
from attnlab.stats import paired
from attnlab.stats.estimators import CellSummary, Ends, Estimator, Runs, Scores, Words
from attnlab.stats.exact import ExactInterval, clopper_pearson, interval_of_difference, p_above, predicted_solved
from attnlab.stats.paired import LEVEL, Difference, Interval, describe_level
from attnlab.stats.records import OUTCOMELESS_STATES, state_of
from attnlab.stats.sequential import Looks, adjusted_p, level_at, levels_at

UNLIKELY = 1e-5  # outcomes of further seeds that a prediction leaves out
FARTHEST = 200  # largest number of seeds that `SolveRate.fewest_seeds` considers
WIDE_RATE = 0.5  # margin of solve rates from which on it is noted: few seeds tell small differences apart
DIGITS = 2  # decimals of the ends of an interval


@dataclass(frozen=True, kw_only=True)
class ExactDifference(Difference):
    """The solve rate of a cell minus its baseline's, over the seeds of which both completed or diverged.

    It has no standard deviation and no effect size. Equal rates do not make two cells identical.

    Attributes:
        estimator: The estimator.
        pairs: (score of the cell, score of the baseline) of each seed; infinite for a diverged run.
    """

    estimator: SolveRate
    pairs: tuple[tuple[float, float], ...]

    @property
    def has_equal_scores(self) -> bool:
        return all(a == b or abs(a - b) <= paired.noise(a, b) < math.inf for a, b in self.pairs)

    def ends_at(self, level: float) -> Ends:
        return self.estimator.estimate(self, level_at(level / 2, self.looks, len(self.pairs)))[1]

    def verdict_probability(self, seeds: int) -> float:
        """Return the predicted probability of a verdict with more seeds."""
        return self.estimator.verdict_probability(self, seeds)

    def fewest_seeds(self, numbers: Iterable[int]) -> int | None:
        return self.estimator.fewest_seeds(comparisons=self.comparisons, looks=self.looks, numbers=numbers)

    def format(self, *, short: bool = False) -> str:
        """Format the difference with its interval and sign, as in "+0.80 [+0.11, +0.99]"."""
        return f"{self.interval.mean:+.{DIGITS}f} {self.format_ends(self.interval)}".rstrip()

    def format_ends(self, interval: Interval) -> str:
        return interval.format_ends(digits=DIGITS, sign=True)

    def format_size(self) -> str:
        return f", {self.format()}"  # which has a sign


class SolveRate(Estimator):
    """The share of seeds that reach the threshold. A diverged run has the worst score."""

    name = "solve_rate"
    is_exact = takes_threshold = is_rate = True
    is_mean = in_unit = False
    lost_states = OUTCOMELESS_STATES
    templates = Words(
        noun="solve rate",
        heading="{metric} {sign} {threshold:g}",
        description="the solve rate, the share of seeds with {metric} of {limit} {threshold:g}",
        compared_by="{description}",
        caption="compared by {description}; exact 95 % intervals in brackets",
        measure="the share of seeds with {heading}",
        difference_heading="difference in solve rate from",
        test_note="the exact test of Barnard and Chan. The rate of a cell has the interval of Clopper and Pearson, the "
        "difference of two rates the interval that agrees with the test. The runs of a pair count as independent, which is "
        "cautious if seeds that solve one cell tend to solve the other",
    )

    def solves(self, score: float) -> bool:
        """Return True when the score of a run reaches the threshold."""
        assert self.threshold is not None
        return score <= self.threshold if self.direction == "min" else score >= self.threshold

    def solved(self, difference: ExactDifference) -> tuple[int, int]:
        """Return the numbers of seeds in which the cell and the baseline solve the task."""
        first, second = (sum(self.solves(pair[i]) for pair in difference.pairs) for i in (0, 1))
        return first, second

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
        """Return the solve rate of a single cell with its exact 95 % interval, which holds at all looks together.

        Args:
            scores: One per seed, infinite for one that diverged; at least one.
            looks: Looks at which the study is judged.
        """
        n, solved = len(scores), sum(map(self.solves, scores))
        ends = clopper_pearson(solved, n, level_at(LEVEL / 2, looks, n))
        return ExactInterval(n, solved / n, None, *ends, solved=solved)

    def compare(
        self, cell: Scores, baseline: Scores, *, margin: float | None = None, looks: Looks | None = None
    ) -> ExactDifference | None:
        pairs = tuple((cell[seed], baseline[seed]) for seed in sorted(cell.keys() & baseline.keys()))
        if not pairs:
            return None
        n = len(pairs)
        looks = looks and looks.extend_to(n)
        options = {"like_metric": self.direction == "max", "margin": margin, "looks": looks}
        untested = ExactDifference(ExactInterval(n, 0.0), **options, estimator=self, pairs=pairs)
        estimate, ends = self.estimate(untested, level_at(LEVEL / 2, looks, n))
        untested = replace(untested, interval=ExactInterval(n, estimate, None, *ends))
        if n < 2 or (looks and looks.announced and n < looks.first):
            return replace(untested, interval=replace(untested.interval, low=None, high=None))
        p = min(self.one_sided_p(untested, 0.0, above=above) for above in (True, False))
        p = min(1.0, 2 * adjusted_p(p, looks, n))
        if margin is None:
            return replace(untested, p=p)
        near = max(self.one_sided_p(untested, -margin, above=True), self.one_sided_p(untested, margin, above=False))
        return replace(untested, p=p, p_equivalent=adjusted_p(near, looks, n))

    def estimate(self, difference: ExactDifference, tail: float) -> tuple[float, Ends]:
        """Return the difference and the ends of its interval, each missed with probability `tail`."""
        (cell, baseline), n = self.solved(difference), len(difference.pairs)
        return (cell - baseline) / n, interval_of_difference(cell, baseline, n, tail)

    def one_sided_p(self, difference: ExactDifference, limit: float, *, above: bool) -> float:
        """Return the one-sided p-value against a difference beyond a limit, not corrected for looks.

        Args:
            difference: The tested difference, by its `pairs`.
            limit: The tested value.
            above: Test whether the true difference lies above the limit, rather than below it.
        """
        (cell, baseline), n = self.solved(difference), len(difference.pairs)
        return p_above(cell, baseline, n, limit) if above else p_above(baseline, cell, n, -limit)

    def verdict_probability(self, difference: ExactDifference, seeds: int) -> float:
        """Return the predicted probability that a difference has a verdict with more seeds."""
        (cell, baseline), n = self.solved(difference), len(difference.pairs)
        added = seeds - n
        two_sided, one_sided = levels_at(difference.levels, difference.looks, seeds)
        margin = difference.margin

        def is_conclusive(a: int, b: int) -> bool:
            if p_above(max(a, b), min(a, b), seeds) <= two_sided / 2:
                return True
            return margin is not None and max(p_above(a, b, seeds, -margin), p_above(b, a, seeds, -margin)) <= one_sided

        of_cell, of_baseline = (predicted_solved(count, n, added) for count in (cell, baseline))
        outcomes = [(a, b, float(of_cell[a] * of_baseline[b])) for a in range(added + 1) for b in range(added + 1)]
        likely = [outcome for outcome in outcomes if outcome[2] > UNLIKELY]
        return sum(probability for a, b, probability in likely if is_conclusive(cell + a, baseline + b))

    def smallest_p(self, n: int) -> float:
        """Return the smallest two-sided p-value that any scores of `n` seeds can have."""
        return min(1.0, 2 * p_above(n, 0, n))

    def smallest_equivalent_p(self, n: int, margin: float) -> float:
        """Return the p-value of the equivalence test of `n` seeds with equal results."""
        return p_above(n, n, n, -margin)

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
        if not any(comparison.difference for cell in cells for comparison in (cell, *cell.further)):
            return texts
        texts.append(
            f"Verdicts are at {describe_level(margin)}, corrected by Holm's method over all comparisons of {family}: "
            f"{self.words.test_note}."
        )
        return texts

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
        too_wide = isinstance(margin, float) and margin >= 1
        return f"expected a difference of solve rates below 1, got {margin:g}" if too_wide else ""

    def margin_notes(self, margin: float | None) -> list[str]:
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
