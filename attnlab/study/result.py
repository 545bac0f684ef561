"""The result of a study: its rows, and the comparison that they are judged by."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.run_state import WITHOUT_RESULT
from attnlab.config.comparability import identity_of_test, task_length
from attnlab.config.run import RunConfig
from attnlab.stats.cells import ComparisonSpec, Goal, Tasks, sections_of
from attnlab.stats.question import with_margin
from attnlab.stats.search import different_values, summarize_searches
from attnlab.study.execution.rows import Row, row_of_record
from attnlab.study.plan import finished_records
from attnlab.tracking.client import runs_folder
from attnlab.tracking.tags import flatten_config

if TYPE_CHECKING:
    from attnlab.planning.plan import Cell, Plan
    from attnlab.stats.look_history import LookHistory
    from attnlab.tracking.artifacts import ReferenceScore
    from attnlab.tracking.client import Record


@dataclass(frozen=True)
class StudyResult:
    """The result of a study.

    Attributes:
        rows: one for each run, stages first, and one for each refused cell, in the plan's order.
        reference_scores: scores of trivial methods on the test split, when the study requests them.
        others: rows of the finished runs of cells that ``only`` left out; the comparison uses them.
    """

    plan: Plan
    rows: list[Row]
    reference_scores: list[ReferenceScore] = field(default_factory=list)
    others: list[Row] = field(default_factory=list)

    def comparison(self, *, history: LookHistory | None = None) -> ComparisonSpec:
        """Return the comparison of the study; `history` has the looks that its verdicts are corrected for."""
        plan, study = self.plan, self.plan.study
        axes = tuple(next((cell.axes for cell in plan.cells), {}))
        goals = {label: Goal(question.metric, question.direction) for label, question in plan.tasks.items()}
        spec = ComparisonSpec(
            study.study,
            axes,
            Goal(plan.metric, plan.direction),
            tuple(study.baselines),
            control=study.control,
            estimand=plan.estimand,
            moderate=study.moderate,
            doubles=plan.doubles,
            sections=sections_of(study),
            tasks=Tasks(plan.task_axis, goals),
            question=study.question or "",
            further=tuple(
                Goal(resolved.metric, resolved.direction, asked.margin)
                for resolved, asked in zip(plan.further, study.questions, strict=True)
            ),
        )
        spec = with_margin(spec, plan.margin)
        return history.apply(spec) if history else spec

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as `attnlab.stats.compare.summarize_cells` takes them."""
        cells = [*self.plan.stages, *self.plan.cells, *self.plan.unselected]
        fields = {cell.name: {**_comparison_fields(cell), **cell.axes} for cell in cells}
        keys = ("cell", "seed", "state", "reason", "phase", "trial", "params")
        return [
            {**row.summary, **fields[row.cell], **row.params, **{key: getattr(row, key) for key in keys}}
            for row in (*self.rows, *self.others)
        ]

    @property
    def failed(self) -> list[Row]:
        """The runs without a result; running the study again tries them again."""
        return [row for row in self.rows if row.state in WITHOUT_RESULT]

    @property
    def ok(self) -> bool:
        """True when every run has a result (a refusal, a divergence and running out of memory are results)."""
        return not self.failed


def _comparison_fields(cell: Cell) -> dict[str, Any]:
    """Return the columns of `attnlab.load_runs` that decide whether two cells can be compared."""
    test = {"test": identity_of_test(cell.settings)}
    if not isinstance(cell.settings, RunConfig):
        return test
    flat = flatten_config(json.loads(cell.settings.to_json()))
    fields = {name: flat[name] for name in ("task", "data", "train.batch_size", "train.steps", "train.epochs")}
    return {**fields, "length": task_length(cell.settings), **test}


def other_rows(plan: Plan, folder: Path) -> list[Row]:
    """Return rows of the finished runs of the cells that the plan leaves out."""
    if not plan.unselected:
        return []
    records = finished_records(replace(plan, cells=plan.unselected), folder)
    rows = [row_of_record(record, root=folder) for record in records.values()]
    return [row for row in rows if row.phase != "stage"]


def search_warnings(plan: Plan, records: Sequence[Record]) -> list[str]:
    """Return the warnings about the finished trials of a search, as the results have them."""
    if plan.study.search is None:
        return []
    result = StudyResult(plan, [row_of_record(record, root=runs_folder()) for record in records])
    summaries = summarize_searches(result.records(), result.comparison(), plan.study.search)
    warnings = [f"{summary.cell}: {warning}" for summary in summaries for warning in summary.warnings]
    return [*warnings, *(f"search: {text}" for text in different_values(summaries, plan.study.search))]
