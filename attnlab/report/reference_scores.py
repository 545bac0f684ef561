"""Rows of the verdict table for the reference scores, which are shown and not compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attnlab._util.metrics import is_share
from attnlab.config.comparability import text_identity
from attnlab.report.section import Table, TableRow
from attnlab.report.wording import format_metric
from attnlab.stats.cells import CellSummary
from attnlab.tracking.artifacts import ReferenceScore

IMPLAUSIBLE = 0.4  # of the best reference's bits
GUESSES = ("chance", "majority")  # names of the scores of a guess, where higher is better
CLEARLY = 0.05  # of the distance from a guess to 1: a mean so far above it is no guess, however much the seeds differ
ROW_KIND = "reference"
PREFIX = "reference: "


def with_reference_scores(table: Table, scores: Sequence[ReferenceScore], *, heading: str) -> Table:
    """Append a row for each score: its name and, under ``heading``, its value, without seeds or an interval."""
    rows = []
    for score, label in zip(scores, labels(scores), strict=True):
        cells = {"cell": label, heading: format_metric(score.value), "verdict": "not compared", "state": "no network"}
        rows.append(TableRow([cells.get(column.heading, "") for column in table.columns], kind=ROW_KIND))
    return Table(table.columns, [*table.rows, *rows])


def score_warnings(cells: Sequence[CellSummary], scores: Sequence[ReferenceScore], *, metric: str) -> list[str]:
    """Return notes that question scores that are too good for their references, or no better than a guess."""
    comparable = [score for score in scores if score.metric == metric]
    return [*_implausible_scores(cells, comparable, metric=metric), *_scores_of_guesses(cells, comparable)]


def _scores_of_guesses(cells: Sequence[CellSummary], scores: Sequence[ReferenceScore]) -> list[str]:
    """Return a note when no cell is shown to be better than a guess; of several tasks, than the lowest one."""
    guesses = [score for score in scores if score.name in GUESSES and is_share(score.metric)]
    values = [cell.value for cell in cells if cell.value is not None]
    if not guesses or not values:
        return []
    guess = min(guesses, key=lambda score: score.value)
    clearly = guess.value + CLEARLY * (1 - guess.value)
    if any((value.mean if value.low is None else value.low) > guess.value or value.mean > clearly for value in values):
        return []
    return [
        f"No cell is shown to be better than {guess.name} ({format_metric(guess.value)}), {guess.about}: differences between "
        "cells are differences between guesses. Check the data and their labels, or train longer."
    ]


def _implausible_scores(cells: Sequence[CellSummary], scores: Sequence[ReferenceScore], *, metric: str) -> list[str]:
    """Return a note that questions cells far below every reference score in bits, or none.

    ``IMPLAUSIBLE`` of the best reference is less than the largest published models reach: on enwik8, 0.94 bits per byte (Dai et
    al. 2019, Al-Rfou et al. 2018) are about half of what n-gram models need.
    """
    if not metric.startswith("bits_per_") or not scores:
        return []
    best = min(scores, key=lambda score: score.value)
    low = [cell for cell in cells if cell.value is not None and cell.value.mean < IMPLAUSIBLE * best.value]
    if not low:
        return []
    named = ", ".join(f"{cell.name} ({format_metric(cell.value.mean)})" for cell in low[:3] if cell.value is not None)
    named += f" and {len(low) - 3} more" if len(low) > 3 else ""
    return [
        f"{named}: less than {IMPLAUSIBLE:.0%} of the bits of the best reference, {best.name} ({format_metric(best.value)}). "
        "No published model of this kind is so far ahead of such a method. Look for a leak of the targets before you trust the "
        "comparison: attnlab check --study tests the variants, attnlab check TASK whether training batches hold test data."
    ]


def matching_scores(
    scores: Sequence[ReferenceScore], runs: Iterable[Mapping[str, Any]], *, metric: str
) -> list[ReferenceScore]:
    """Return the scores that were measured like these runs: same metric, same text, same limit on the test split."""
    tests = {(text_identity(run.get("data")), _limit(run.get("evaluate.test_limit"))) for run in runs}
    return [score for score in scores if score.metric == metric and (score.data, score.limit) in tests]


def labels(scores: Sequence[ReferenceScore]) -> list[str]:
    """Return labels such as "reference: gzip", with the task or the limit where two would be the same."""
    texts = [f"{PREFIX}{score.name}" for score in scores]
    for suffixes in ([s.task for s in scores], [f"limit {s.limit:,}" if s.limit else "" for s in scores]):
        count = Counter(texts)
        texts = [f"{text} {suffix}".rstrip() if count[text] > 1 else text for text, suffix in zip(texts, suffixes, strict=True)]
    return texts


def _limit(value: Any) -> int | None:
    """Return the limit as an int; None for NaN, with which a table of runs is padded."""
    return None if value is None or value != value else int(value)
