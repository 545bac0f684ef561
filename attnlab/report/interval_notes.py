"""Notes on the intervals of differences, for the page and the terminal: simultaneous intervals, and the mark of estimates."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.report.wording import CHOSEN_MARK, is_chosen
from attnlab.stats.compare import CellSummary, comparisons
from attnlab.stats.simultaneous import hides_correction


def notes_on_intervals(cells: Sequence[CellSummary]) -> list[str]:
    """Return a note on simultaneous intervals if a difference shows one, and one on the mark if a difference has it."""
    compared = [cell for cell in comparisons(cells) if cell.difference is not None]
    texts = []
    if any(cell.difference and hides_correction(cell.difference) for cell in compared):
        texts.append(
            "“Simultaneous”: the interval of this difference alone excludes zero. The one that holds together with those of "
            "all other differences of the table (Bonferroni) does not, and the verdict agrees with it."
        )
    if any(is_chosen(cell) for cell in compared):
        texts.append(
            f"{CHOSEN_MARK}: called better or worse because the estimate lies far from zero. Estimates chosen in this way are "
            "too large on average, most of all with few seeds and where the interval nearly reaches zero."
        )
    return texts


def note_on_thin_lines(cells: Sequence[CellSummary]) -> list[str]:
    """Return the note on the outer intervals of the plot of differences, if the table has more than one comparison."""
    if not any(cell.difference and cell.difference.comparisons > 1 for cell in comparisons(cells)):
        return []
    return [
        "Thin lines in the plot of differences are simultaneous intervals: in 95 of 100 tables, Bonferroni's intervals all "
        "contain the true differences. They exclude zero exactly where the verdict is better or worse; where Holm's method "
        "shows a difference that Bonferroni's leaves open, they end at zero."
    ]
