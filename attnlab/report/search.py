"""The report's section on hyperparameter search.

Trials only choose a configuration. The report compares runs of that configuration with fresh seeds, and shows trials in no
other section.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnlab.report.section import Column, PageSection, Table, TableRow
from attnlab.report.wording import format_metric
from attnlab.stats.compare import ComparisonSpec
from attnlab.stats.search import SearchSummary, different_values, format_param

if TYPE_CHECKING:
    from attnlab.config.search import SearchConfig


def search_section(summaries: Sequence[SearchSummary], spec: ComparisonSpec, search: SearchConfig | None) -> PageSection | None:
    """Return the section on the search; None for a study without one."""
    if search is None or not summaries:
        return None
    warnings = [f"{summary.cell}: {warning}." for summary in summaries for warning in summary.warnings]
    warnings += [f"{warning[:1].upper()}{warning[1:]}." for warning in different_values(summaries, search)]
    table = search_table(summaries, spec, search)
    return PageSection("Search", [search_method(search, spec)], warnings=warnings, table=table)


def describe_search(summary: SearchSummary, spec: ComparisonSpec) -> str:
    """Return one line on the search of a cell, for the terminal."""
    if summary.value is None or summary.params is None:
        return f"{summary.cell}: {summary.outcome}; nothing to confirm"
    params = ", ".join(f"{path} {format_param(value)}" for path, value in summary.params.items())
    best = f"best valid_{spec.metric} {format_metric(summary.value)} in trial {summary.trial}"
    return f"{summary.cell}: {summary.outcome}; {best}: {params}"


def search_table(summaries: Sequence[SearchSummary], spec: ComparisonSpec, search: SearchConfig) -> Table:
    """Return a table with one row per cell: its trials, the best value on `valid`, and the chosen parameters."""
    columns = [Column("cell", is_text=True), Column("trials", is_text=True), Column(f"best valid_{spec.metric}")]
    columns += [*(Column(path) for path in search.space), Column("trial")]
    rows = []
    for summary in summaries:
        value = "" if summary.value is None else format_metric(summary.value)
        params = summary.params or {}
        chosen = [format_param(params[path]) if path in params else "" for path in search.space]
        trial = "" if summary.trial is None else str(summary.trial)
        kind = "missing" if summary.value is None else ""
        rows.append(TableRow([summary.cell, summary.outcome, value, *chosen, trial], kind=kind))
    return Table(columns, rows)


def search_method(search: SearchConfig, spec: ComparisonSpec) -> str:
    """Return a paragraph on how the search was done."""
    space = "; ".join(f"{path} {dimension.label}" for path, dimension in search.space.items())
    return (
        f"Each cell had its own Optuna study with the same budget: {search.trials} trials, trained with seed {search.seed}, "
        f"over {space}. Sampler: {search.sampler.label}; pruner: {search.pruner.label}. The configuration with the best "
        f"valid_{spec.metric} was then trained with fresh seeds and never pruned."
    )
