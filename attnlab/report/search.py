"""What the search of each cell came to: its trials, the best of them, and whether the space was wide enough.

Searched runs choose; only what was trained anew on fresh seeds is compared. So the rest of a report sees none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnlab.report.table import Column, Line, Table
from attnlab.stats.compare import Question, fixed
from attnlab.stats.search import Searched, shown

if TYPE_CHECKING:
    from attnlab.config.search import SearchConfig


def sentence(each: Searched, question: Question) -> str:
    """One line for the terminal."""
    if each.value is None or each.params is None:
        return f"{each.cell}: {each.outcome}; nothing to confirm"
    chosen = ", ".join(f"{path} {shown(value)}" for path, value in each.params.items())
    return f"{each.cell}: {each.outcome}; best valid_{question.metric} {fixed(each.value)} in trial {each.trial}: {chosen}"


def search_table(found: Sequence[Searched], question: Question, search: SearchConfig) -> Table:
    """A line a cell: its trials, the best value on `valid`, and what was chosen."""
    columns = [Column("cell", words=True), Column("trials", words=True), Column(f"best valid_{question.metric}")]
    columns += [*(Column(path) for path in search.space), Column("trial")]
    lines = []
    for each in found:
        value = "" if each.value is None else fixed(each.value)
        chosen = [shown((each.params or {})[path]) if path in (each.params or {}) else "" for path in search.space]
        number = "" if each.trial is None else str(each.trial)
        lines.append(Line([each.cell, each.outcome, value, *chosen, number], kind="missing" if each.value is None else ""))
    return Table(columns, lines)


def method(search: SearchConfig, question: Question) -> str:
    """How the search was done, in words."""
    space = "; ".join(f"{path} {dimension.label}" for path, dimension in search.space.items())
    return (
        f"Each cell had an Optuna study of its own, all with the same budget: {search.trials} trials, trained with seed "
        f"{search.seed}, over {space}. Sampler: {search.sampler.label}; pruner: {search.pruner.label}. What reached the "
        f"best valid_{question.metric} was trained anew with fresh seeds, never pruned: those runs alone stand in the "
        "tables and plots of this page."
    )
