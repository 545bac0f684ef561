"""The lines on the choice of records behind a table."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.stats.selection import Named, Seeds, Selection

MAX_NAMED = 6  # cells in one line
TITLES = {
    "withdrawn": "Withdrawn and run again, or deleted",
    "left_out": "Finished and left out of this study",
    "not_run": "Planned and not run",
    "retried": "Finished after failed attempts",
}


def describe_selection(selection: Selection) -> list[str]:
    """Return a line on each choice: withdrawn runs, those left out, not run or tried again, and a changed comparison."""
    named = {title: getattr(selection, name) for name, title in TITLES.items()}
    lines = [f"{title}: {_listed(runs)}." for title, runs in named.items() if runs]
    return lines + ([f"The comparison differs from the one stated first: {selection.changed}."] if selection.changed else [])


def _listed(runs: Named) -> str:
    """Return cells with their seeds as in "a, b (seeds 1, 2); c (seed 0)"."""
    by_seeds: dict[Seeds, list[str]] = {}
    for cell, seeds in runs:
        by_seeds.setdefault(seeds, []).append(cell)
    named = [
        f"{_joined(cells, ', ')} (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})"
        for seeds, cells in by_seeds.items()
    ]
    return _joined(named, "; ")


def _joined(texts: Sequence[str], separator: str) -> str:
    more = len(texts) - MAX_NAMED
    return separator.join([*texts[:MAX_NAMED], *([f"and {more} more"] if more > 0 else [])])
