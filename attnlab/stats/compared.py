"""The compared cells of a study: one table, which the terminal, the page and Python show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from attnlab.stats.cells import CellSummary, ComparisonSpec
from attnlab.stats.compare import cell_of, summarize_questions
from attnlab.stats.factorial import FactorialResult, estimate_effects
from attnlab.stats.records import RunRow, exclude_trials
from attnlab.stats.search import SearchSummary, summarize_searches, unconfirmed_cells
from attnlab.stats.selection import Selection
from attnlab.stats.trend import Trend, summarize_trends


@dataclass(frozen=True)
class Compared:
    """The compared cells of a study, in the order of its grid.

    Attributes:
        spec: The comparison that the study makes, with the looks that its verdicts are corrected for.
        cells: Summaries of the cells. In a searched study, of the confirmed runs.
        trends: The trends of their differences over levels.
        records: Its runs in this order, by seed, with the trials of a search.
        searches: Name of a task ("" in a study of one) -> the searches of its cells; empty in a study without a search.
        selection: The choice of the records.
        further: The same cells, compared by the metrics of the further questions.
    """

    spec: ComparisonSpec
    cells: Sequence[CellSummary]
    trends: Sequence[Trend]
    records: Sequence[RunRow]
    searches: Mapping[str, Sequence[SearchSummary]]
    selection: Selection
    further: Sequence[Compared] = ()

    def for_task(self, part: ComparisonSpec) -> Compared:
        """Return the comparison for the task that a specification is about."""
        cells = [cell for cell in self.cells if part.includes(cell.axes)]
        trends = [trend for trend in self.trends if part.includes(trend.comparisons[0].axes)]
        return replace(self, spec=part, cells=cells, trends=trends)

    @property
    def compared_records(self) -> list[RunRow]:
        """The runs that are compared: all of the task, without the trials of a search."""
        return exclude_trials([run for run in self.records if self.spec.includes(run)])

    def effects(self, part: ComparisonSpec) -> FactorialResult | None:
        """Return the effects of a factorial design in the task that a specification is about; None without factors."""
        return estimate_effects(self.for_task(part).cells, part)


def compare_cells(
    records: Iterable[RunRow],
    spec: ComparisonSpec,
    *,
    selection: Selection | None = None,
) -> Compared:
    """Summarize and compare the cells of a study.

    Args:
        records: Its runs, trials of a search included, as `summarize_cells` takes them.
        spec: The comparison that the study makes.
        selection: The choice of its records.
    """
    position = {name: i for i, name in enumerate(spec.order)}
    runs = sorted(records, key=lambda run: (position.get(cell_of(run, spec), len(position)), run["seed"]))
    searches: dict[str, Sequence[SearchSummary]] = {}
    completed = exclude_trials(runs)
    if spec.search is not None:
        for part in spec.parts:
            searches[part.task] = summarize_searches([run for run in runs if part.includes(run)], part, spec.search)
            completed += unconfirmed_cells(runs, spec, searches[part.task])
    tables = summarize_questions(completed, spec)
    for cells in tables:
        cells.sort(key=lambda cell: position.get(cell.name, len(position)))
    trends = summarize_trends(tables[0], spec) if spec.over else []
    compared = Compared(spec, tables[0], trends, runs, searches, selection or Selection())
    asked = zip(spec.questions[1:], tables[1:], strict=True)
    return replace(compared, further=[replace(compared, spec=goal, cells=cells, trends=[]) for goal, cells in asked])
