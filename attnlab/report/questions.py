"""The further questions of a study: the same cells, compared by other metrics, with verdicts that are corrected together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnlab.report.analysis import Analysis, Results
from attnlab.report.conclusion import verdicts_frame
from attnlab.report.figures import draw_differences
from attnlab.report.section import Column, Figure, PageSection, Sentence, Table, TableRow
from attnlab.report.summary import Summary, summarize
from attnlab.report.verdicts import verdict_p_value
from attnlab.report.wording import better, describe_verdict, format_difference, metric_name
from attnlab.stats.cells import comparisons
from attnlab.stats.compared import Compared

if TYPE_CHECKING:
    import pandas

TOGETHER = "Holm's method corrects the verdicts of all questions of the study together, the first one included."


class QuestionsAnalysis(Analysis[Sequence[Compared]]):
    """The verdicts by the metrics of `questions`."""

    def estimate(self, results: Results) -> Sequence[Compared]:
        """Return the comparison of each further question."""
        return results.compared.further

    def lines(self, estimate: Sequence[Compared], results: Results) -> Iterator[str | Table]:
        """Yield a table with the cells by each metric."""
        yield _table(estimate, {})
        yield f"note: {TOGETHER}"

    def section(self, estimate: Sequence[Compared], results: Results) -> PageSection:
        """Return the section with a table and a plot of the differences in each metric."""
        plots = [plot for i, asked in enumerate(estimate, 1) for plot in _plots(asked, i, results.colors)]
        margins = [(asked.spec.margin, metric_name(asked.spec)) for asked in estimate if asked.spec.margin is not None]
        notes = [TOGETHER, *(f"The margin is ±{margin:g} in {metric}." for margin, metric in margins)]
        return PageSection("Further questions", plots=plots, table=_table(estimate, results.colors), notes=notes)

    def summarize(self, summary: Summary, estimate: Sequence[Compared], results: Results) -> Summary:
        """Add the sentences of each question."""
        for asked in estimate:
            without_costs = [replace(cell, costs={}) for cell in asked.cells]  # the first question states them
            own = summarize(without_costs, asked.spec)
            plain = [f"In {metric_name(asked.spec)}: ", *own.plain] if own.plain else []
            summary = replace(
                summary,
                plain=_after(summary.plain, plain),
                conclusive=_after(summary.conclusive, own.conclusive),
                open=_after(summary.open, own.open),
            )
        return summary

    def frames(self, estimate: Sequence[Compared], results: Results) -> Mapping[str, pandas.DataFrame]:
        """Return the verdicts of the further questions."""
        frame: Any = verdicts_frame(results.compared)
        return {"questions": frame[frame["metric"] != results.spec.metric].reset_index(drop=True)}


def _after(first: Sentence, second: Sentence) -> Sentence:
    return [*first, " ", *second] if first and second else first or second


def _table(questions: Sequence[Compared], colors: Mapping[str, str]) -> Table:
    """Return a table with a row for each cell and baseline by each metric."""
    several = any(cell.further for asked in questions for cell in asked.cells)
    columns = [Column("cell", is_text=True), Column("metric", is_text=True), Column("value")]
    columns += [Column("compared with", is_text=True)] if several else []
    columns += [Column("difference"), Column("p (Holm)"), Column("verdict", is_text=True)]
    rows = []
    for asked in questions:
        metric = f"{metric_name(asked.spec)} ({better(asked.spec.direction)})"
        for cell in comparisons(asked.cells):
            texts = [cell.name, metric, asked.spec.estimator.format(cell), *([cell.baseline] if several else [])]
            verdict = describe_verdict(cell.verdict) or ("" if cell.has_result else cell.outcome)
            kind = "missing" if not cell.has_result else "baseline" if cell.is_baseline else ""
            rows.append(
                TableRow([*texts, format_difference(cell), verdict_p_value(cell), verdict], colors.get(cell.name, ""), kind)
            )
    return Table(columns, rows)


def _plots(asked: Compared, number: int, colors: Mapping[str, str]) -> list[Figure]:
    plots = draw_differences(asked.cells, asked.spec, colors)
    return [replace(plot, file=f"question-{number}.svg") for plot in plots if plot.file == "forest.svg"]
