"""The comparison that a study makes, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from attnlab.config.axes import label_text
from attnlab.config.design import FactorialDesign
from attnlab.config.estimand import EstimandConfig
from attnlab.stats.cell_summary import CellSummary
from attnlab.stats.estimators import Estimator, FittedOptimum
from attnlab.stats.futility import Futility
from attnlab.stats.sequential import Looks


@dataclass(frozen=True)
class TaskMetric:
    """The metric and the margin of one task, in a study of several; the fields are as in `ComparisonSpec`."""

    metric: str
    direction: str
    margin: float | None = None
    margin_share: float | None = None
    margin_by_seed: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ComparisonSpec:
    """The metric, baseline and margin by which a study compares its cells.

    Attributes:
        study: The study's name.
        axes: Names of the grid's axes, in order.
        metric: Name of the metric.
        direction: "min" where smaller values are better, else "max".
        baseline: Axis -> value. The baseline of a cell has these values, and the cell's on every other axis.
        margin: Largest difference that counts as equivalent, in the metric's unit.
        margin_share: Share of the baseline's steps from which the margin was estimated (`attnlab.stats.margin`).
        margin_by_seed: Seed -> the estimate from its runs; empty for a margin that the study states in the metric's unit.
        looks: The numbers of seeds at which the study was judged; None if it never was.
        own_looks: Name of a comparison (`comparison_name`) -> its looks, where they differ from the study's.
        futile: Name of a comparison (`comparison_name`) -> its futility when it stopped receiving seeds.
        doubles: Name of a cell -> name of the cell with the same configuration that is run for it.
        further_baselines: Other baselines, like `baseline`. Each cell is compared with all of them.
        sweep: Dotted path of the hyperparameter that the study sweeps, such as `train.lr`. Cells are then compared at the
            optima of the curves fitted over it.
        control: Axis -> value. The control of a cell, like its baseline; it must be found worse (`attnlab.stats.control`).
        factorial: The factors of a factorial study; their effects are estimated from all cells (`attnlab.stats.factorial`).
        over: The axis of levels at which cells are compared, and over which `attnlab.stats.trend` tests the change of their
            differences; "" if there is none.
        task_axis: The axis that sets the task, in a study of several tasks; else "".
        tasks: Label of its values -> the fields of this task that replace `metric`, `direction`, `margin`,
            `margin_share` and `margin_by_seed`. Cells are compared within their task, and corrected over all tasks.
        task: The only one of these tasks that this specification is about (`for_task`).
        moderate: Let the comparisons of the table borrow from each other's variances (`attnlab.stats.moderation`).
        estimand: The number that summarizes a cell's seeds; its `estimator` computes it.
    """

    study: str
    axes: tuple[str, ...]
    metric: str
    direction: str
    baseline: Mapping[str, Any] = field(default_factory=dict)
    margin: float | None = None
    looks: Looks | None = None
    doubles: Mapping[str, str] = field(default_factory=dict)
    further_baselines: tuple[Mapping[str, Any], ...] = ()
    sweep: str | None = None
    control: Mapping[str, Any] | None = None
    margin_share: float | None = None
    factorial: FactorialDesign | None = None
    over: str = ""
    moderate: bool = True
    own_looks: Mapping[str, Looks] = field(default_factory=dict)
    estimand: EstimandConfig = EstimandConfig()
    futile: Mapping[str, Futility] = field(default_factory=dict)
    task_axis: str = ""
    tasks: Mapping[str, TaskMetric] = field(default_factory=dict)
    task: str = ""
    margin_by_seed: Mapping[int, float] = field(default_factory=dict)

    @property
    def estimator(self) -> Estimator:
        """The value of a cell, the difference of two cells, and their names."""
        if self.sweep is not None:
            return FittedOptimum(self.metric, self.direction, sweep=self.sweep)
        return self.estimand.estimator(self.metric, self.direction)

    @property
    def baselines(self) -> tuple[Mapping[str, Any], ...]:
        """All baselines; empty if cells are not compared."""
        return (self.baseline, *self.further_baselines) if self.baseline else ()

    def for_task(self, task: str) -> ComparisonSpec:
        """Return the specification of one of the study's tasks."""
        own = self.tasks[task]
        shared = {"metric": own.metric, "direction": own.direction, "margin": own.margin, "margin_share": own.margin_share}
        return replace(self, tasks={}, task=task, margin_by_seed=own.margin_by_seed, **shared)

    @property
    def parts(self) -> list[ComparisonSpec]:
        """The specifications of the study's tasks; this one alone in a study of one task."""
        return [self.for_task(task) for task in self.tasks] or [self]

    def includes(self, axes: Mapping[str, Any]) -> bool:
        """Return True for the axes of a cell of the task that this specification is about, if it is about one only."""
        return not self.task or label_text(axes.get(self.task_axis)) == self.task

    def is_control(self, axes: Mapping[str, str]) -> bool:
        """Return True for the axes of a control."""
        return self.control is not None and all(axes[axis] == label_text(value) for axis, value in self.control.items())


def comparisons(cells: Iterable[CellSummary]) -> list[CellSummary]:
    """Return each cell, followed by its comparisons with further baselines."""
    return [comparison for cell in cells for comparison in (cell, *cell.further)]


def split_tasks(cells: Iterable[CellSummary], spec: ComparisonSpec) -> list[tuple[ComparisonSpec, list[CellSummary]]]:
    """Return the specification and the cells of each task of a study; of one task, all of them."""
    cells = list(cells)
    return [(part, [cell for cell in cells if part.includes(cell.axes)]) for part in spec.parts]
