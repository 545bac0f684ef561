"""The note on the two parts of a difference's uncertainty, seeds and test items, and which of them to buy."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.report.wording import format_metric
from attnlab.stats.items import UncertaintyParts

MAX_NAMED = 6  # comparisons with their figures; the largest standard errors come first


def item_notes(parts: Sequence[UncertaintyParts]) -> list[str]:
    """Return a note on seeds and items; none if no run has kept the scores of its items."""
    if not parts:
        return []
    largest = sorted(parts, key=lambda part: -(part.seeds**2 + part.items**2))[:MAX_NAMED]
    texts = [
        f"{part.cell} {format_metric(part.seeds)} and {format_metric(part.items)} ({part.item_share:.0%} items: "
        f"{'a longer test' if part.item_share > 0.5 else 'more seeds'})"
        for part in largest
    ]
    return [
        "Standard errors of a difference over seeds and over the items of the test, the share of the items in both together, "
        f"and what reduces the larger part: {'; '.join(texts)}. Intervals and verdicts are over seeds, for these test items."
    ]
