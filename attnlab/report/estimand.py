"""Estimands other than the mean in words."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.config.estimand import EstimandConfig
from attnlab.report.wording import describe_level
from attnlab.stats.cells import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.sequential import Looks

TESTS = {
    "median": "the sign test of the paired differences. Their median has the interval between two order statistics",
    "solve_rate": "the exact test of Barnard and Chan. The rate of a cell has the interval of Clopper and Pearson, the "
    "difference of two rates the interval that agrees with the test. The runs of a pair count as independent, which is "
    "cautious if seeds that solve one cell tend to solve the other",
    "superiority": "the sign test of the seeds in which the two runs differ. The share of these in which the cell is better "
    "has the interval of Clopper and Pearson",
}

DIVERGED = {
    "median": "its score is worse than any other, and a median that falls on diverged runs is no number",
    "solve_rate": "it does not solve the task",
    "superiority": "it loses against a run that completed",
}


def describe_estimand(estimand: EstimandConfig, *, metric: str, direction: str) -> str:
    """Return an estimand in a phrase, such as "the solve rate, the share of seeds with recall of at least 0.9"."""
    if estimand.name == "solve_rate":
        limit = "at most" if direction == "min" else "at least"
        return f"the solve rate, the share of seeds with {metric} of {limit} {estimand.threshold:g}"
    if estimand.name == "superiority":
        return f"the probability of superiority, that a run has better {metric} than the baseline's run with the same seed"
    if estimand.name == "median":
        return f"the median of the differences in {metric} between runs with the same seed"
    return f"the mean of {metric}"


def caption_of_estimand(spec: ComparisonSpec) -> str:
    """Return the part of the terminal table's caption on an estimand other than the mean."""
    return f"{describe_estimand(spec.estimand, metric=spec.metric, direction=spec.direction)}; exact 95 % intervals in brackets"


def estimand_notes(cells: Sequence[CellSummary], spec: ComparisonSpec) -> list[str]:
    """Return the notes on the figures of a table whose estimand is not the mean: its summaries, tests and looks."""
    estimand = spec.estimand
    described = describe_estimand(estimand, metric=spec.metric, direction=spec.direction)
    texts = [f"Seeds are summarized by {described}. Brackets are exact 95 % intervals over seeds."]
    texts += threshold_notes(cells, spec)
    if any(cell.scores.keys() - cell.values.keys() for cell in cells):
        texts.append(f"A diverged run is an outcome of its cell: {DIVERGED[estimand.name]}.")
    if estimand.name == "superiority":
        texts.append("The figure of a single cell is the median of its seeds.")
    compared = [cell for cell in comparisons(cells) if cell.difference is not None]
    if not compared:
        return texts
    texts.append(
        f"Verdicts are at {describe_level(spec.margin)}, corrected by Holm's method over all comparisons of the table: "
        f"{TESTS[estimand.name]}. Variances are not borrowed, and no distribution of the scores is assumed. “Inconclusive” "
        "means that these seeds do not decide between the cells, not that the cells are equal."
    )
    if estimand.name == "superiority":
        texts.append("No verdict of equivalent: there is no test for it.")
    elif spec.margin is not None:
        texts.append(f"Equivalent: two one-sided tests of the same kind place the difference within ±{spec.margin:g} of zero.")
    if spec.looks is not None and spec.looks.count > 1:
        texts.append(describe_exact_looks(spec.looks))
    return texts


def threshold_notes(cells: Sequence[CellSummary], spec: ComparisonSpec) -> list[str]:
    """Return a note on a threshold of the solve rate that has another unit than the scores: per cent, or a share."""
    threshold, scores = spec.estimand.threshold, [value for cell in cells for value in cell.values.values()]
    if spec.estimand.name != "solve_rate" or threshold is None or not scores:
        return []
    if min(scores) >= 0 and max(scores) <= 1 < threshold <= 100:
        return [
            f"All scores in {spec.metric} lie between 0 and 1, and the threshold of the solve rate is {threshold:g}: if it is "
            f"meant in per cent, write {threshold / 100:g}."
        ]
    if 0 < threshold <= 1 < min(scores) and max(scores) <= 100:
        return [
            f"All scores in {spec.metric} lie between 1 and 100, and the threshold of the solve rate is {threshold:g}: if the "
            f"scores are in per cent, write {100 * threshold:g}."
        ]
    return []


def describe_exact_looks(looks: Looks) -> str:
    """Return a note on repeated looks in a study with exact tests."""
    numbers = [*range(looks.first, looks.last + 1), *looks.further]
    return (
        f"The study is judged at {len(numbers)} numbers of seeds, from {numbers[0]} to {numbers[-1]}. Intervals, p-values "
        "and verdicts are corrected for these looks at the levels of t-tests; at the same level, the error of an exact test is "
        "smaller."
    )
