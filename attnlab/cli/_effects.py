"""The effects of a factorial study that `attnlab run` prints below its cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnlab.cli._printing import print_table, print_text

if TYPE_CHECKING:
    from attnlab.stats.compare import ComparisonSpec
    from attnlab.stats.factorial import FactorialResult


def print_effects(result: FactorialResult | None, spec: ComparisonSpec) -> None:
    """Print the table of the page's section on effects; nothing for a study without factors."""
    from attnlab.report.factorial import describe_omissions, effect_notes, effect_table

    if result is None:
        return
    if result.problem:
        print_text(f"effects: none can be estimated: {result.problem}")
        return
    table = effect_table(result)
    print()
    headings = [column.heading for column in table.columns]
    print_table(headings, [list(row.cells) for row in table.rows], wrap=("effect", "verdict"))
    for text in (*describe_omissions(result), *effect_notes(result, spec)):
        print_text(text)
