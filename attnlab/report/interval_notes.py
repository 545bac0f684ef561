"""Notes on moderated t-tests, simultaneous intervals, chosen estimates, fragile and predicted verdicts, and test items."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.report.wording import CHOSEN_MARK, count, describe_mark, format_metric, is_chosen
from attnlab.stats.compare import CellSummary, comparisons
from attnlab.stats.items import BLOCKS, MIN_SHARE, UncertaintyParts
from attnlab.stats.paired import MIN_SEEDS_FOR_ESTIMATE
from attnlab.stats.records import comparison_name
from attnlab.stats.skewness import MIN_SEEDS
from attnlab.stats.variance_prior import VariancePrior
from attnlab.stats.verdict import Reason, Verdict

TWO_TESTS = (
    "A verdict needs two t-tests below 5 %, and p is the larger of their p-values: the test of the difference alone, with the "
    "interval behind ±, and the test of the table with Holm's correction."
)
NEW_ITEMS = "± for new test items"
MAX_NAMED = 6  # comparisons with their standard errors; the largest come first


def notes_on_intervals(cells: Sequence[CellSummary]) -> list[str]:
    """Return notes on moderated t-tests, simultaneous intervals, marks, new items and fragile verdicts, if there are any."""
    compared = [cell for cell in comparisons(cells) if cell.difference is not None]
    texts = []
    priors = [cell.difference.interval.prior for cell in compared if cell.difference and cell.difference.interval.prior]
    if priors:
        texts.append(
            f"{TWO_TESTS} In the test of the table, differences borrow from {_describe_lenders(priors)} (moderated t-test, "
            "Smyth 2004): the variance of each is averaged with the mean of all, which has the weight of "
            f"{count(priors[0].degrees_of_freedom, 'degree')} of freedom."
        )
    texts += describe_mark(
        {_comparison(cell, cells): cell.difference for cell in compared if cell.difference}, of="differences"
    )
    if any(is_chosen(cell) for cell in compared):
        texts.append(
            f"{CHOSEN_MARK}: called better or worse because the estimate lies far from zero. Estimates chosen in this way are "
            "too large on average, most of all with few seeds and small true differences."
        )
    if any(cell.verdict and cell.verdict.new_items for cell in compared):
        texts.append(
            f"“{NEW_ITEMS}”: half the width of the 95 % interval for other items like those of the test, where these are more "
            f"than {100 * MIN_SHARE:g} % of the variance; the squares of the half widths over seeds and over items are added. "
            "“For these test items”: the verdict is not shown for others; “also for new test items”: it is, at the table's "
            "level."
        )
    if any(cell.verdict and cell.verdict.fragile for cell in compared):
        texts.append(
            "“Fragile”: the differences scatter asymmetrically, and a t-test corrected for that (Hall 1992, after Johnson "
            f"1978; from {MIN_SEEDS} seeds on) does not share the verdict at the same level. With few seeds, sound verdicts of "
            "small differences are called fragile, too; more seeds decide."
        )
    return texts


def _comparison(cell: CellSummary, cells: Sequence[CellSummary]) -> str:
    """Return the name of a compared cell, with its baseline if a cell is compared with several."""
    return comparison_name(cell.name, cell.baseline) if any(other.further for other in cells) else cell.name


def _describe_lenders(priors: Sequence[VariancePrior]) -> str:
    """Return the comparisons that share an averaged variance as text."""
    if priors[0].groups == 1:
        return f"the table's {priors[0].comparisons} comparisons"
    numbers = sorted({prior.comparisons for prior in priors})
    return f"the {' or '.join(map(str, numbers))} comparisons at the same level, on the same test"


def note_on_thin_lines(cells: Sequence[CellSummary]) -> list[str]:
    """Return the note on the outer intervals of the plot of differences, if the table has more than one comparison."""
    if not any(cell.difference and cell.difference.comparisons > 1 for cell in comparisons(cells)):
        return []
    return [
        "Thin lines in the plot of differences are simultaneous intervals: in 95 of 100 tables, Bonferroni's intervals all "
        "contain the true differences. They exclude zero exactly where the verdict is better or worse; where Holm's method "
        "shows a difference that Bonferroni's leaves open, they end at zero."
    ]


def notes_on_predictions(verdicts: Sequence[Verdict]) -> list[str]:
    """Return a note on predicted verdicts if there are any, and one on verdicts with too few seeds for a prediction."""
    texts = []
    if any(verdict.prediction for verdict in verdicts):
        texts.append(
            "“With 1 more seed 61 % differs, 20 % equivalent”: the probabilities of these verdicts, predicted from the seeds "
            "so far by the t-distribution, at the levels that the corrections leave. “With 9 seeds 80 % conclusive”: the total "
            "number of seeds with which one of the two verdicts has probability 80 %. Before the seeds were seen, every true "
            "difference counts as equally likely. Where most cells truly do not differ, “differs” is less likely than "
            "predicted."
        )
    if any(verdict.futility for verdict in verdicts):
        texts.append(
            "“Stopped for futility”: the study adds seeds until its verdicts are conclusive, and added no more to this "
            "comparison, because its verdict would most likely have remained inconclusive. This makes no verdict of a "
            "difference or of equivalence more likely, so the error rates hold with or without it."
        )
    if any(verdict.reason is Reason.FEW_SEEDS for verdict in verdicts):
        texts.append(
            f"Verdicts with more seeds are predicted from {MIN_SEEDS_FOR_ESTIMATE} seeds on; with fewer, their spread is too "
            "uncertain."
        )
    return texts


def item_notes(parts: Sequence[UncertaintyParts]) -> list[str]:
    """Return notes on seeds and items; none if no run has kept the scores of its items."""
    if not parts:
        return []
    largest = sorted(parts, key=lambda part: -(part.seeds**2 + part.items**2))[:MAX_NAMED]
    texts = [
        f"{part.cell} {format_metric(part.seeds)} and {format_metric(part.items)} ({part.item_share:.0%} items: "
        f"{'a longer test' if part.item_share > 0.5 else 'more seeds'})"
        for part in largest
    ]
    notes = [
        "Standard errors of a difference over seeds and over the items of the test, the share of the items in both together, "
        f"and what reduces the larger part: {'; '.join(texts)}. Intervals and verdicts are over seeds, for these test items."
    ]
    if any(part.groups == BLOCKS for part in parts):
        notes.append(f"Consecutive segments of a text are alike, and are taken together in {BLOCKS} blocks.")
    return notes
