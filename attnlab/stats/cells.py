"""The comparison that a study makes, and the summary of a cell, as data. `attnlab.stats.compare` fills them in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from attnlab.config.axes import label_text
from attnlab.config.design import FactorialDesign
from attnlab.config.estimand import EstimandConfig
from attnlab.stats import paired
from attnlab.stats.estimand import ExactInterval
from attnlab.stats.futility import Futility
from attnlab.stats.lr_curve import LearningRateCurve
from attnlab.stats.sequential import Looks
from attnlab.stats.verdict import Verdict, VerdictKind


@dataclass(frozen=True)
class TaskMetric:
    """The metric and the margin of one task, in a study of several; the fields are those of `ComparisonSpec`."""

    metric: str
    direction: str
    margin: float | None = None
    margin_share: float | None = None


@dataclass(frozen=True)
class ComparisonSpec:
    """The metric, baseline and margin by which a study compares its cells.

    Attributes:
        study: The study's name.
        axes: Names of the grid's axes, in order.
        metric: Name of the metric.
        direction: "min" where smaller values are better, else "max".
        baseline: Axis -> value. The baseline of a cell has these values, and the cell's own on every other axis.
        margin: Largest difference that counts as equivalent, in the metric's unit.
        margin_share: Share of the baseline's steps from which the margin was estimated (`attnlab.stats.margin`).
        looks: The numbers of seeds at which the study was judged; None if it never was.
        own_looks: Name of a comparison (`comparison_name`) -> its looks, where they are not those of the study.
        futile: Name of a comparison (`comparison_name`) -> its futility when it stopped receiving seeds.
        doubles: Name of a cell -> name of the cell with the same configuration that is run for it.
        further_baselines: Other baselines, like `baseline`. Each cell is compared with all of them.
        sweep: Dotted path of the hyperparameter that the study sweeps, such as `train.lr`. Cells are then compared at the
            optima of the curves fitted over it.
        control: Axis -> value. The control of a cell, like its baseline; it must be found worse (`attnlab.stats.control`).
        factorial: The factors of a factorial study, whose effects are estimated from all cells (`attnlab.stats.factorial`).
        over: The axis of levels at which cells are compared, and over which `attnlab.stats.trend` tests the change of their
            differences; "" if there is none.
        task_axis: The axis that sets the task, in a study of several tasks; else "".
        tasks: Label of its values -> the fields of this task that replace `metric`, `direction`, `margin` and
            `margin_share`. Cells are compared within their task, and corrected over all tasks.
        task: The only one of these tasks that this specification is about (`for_task`).
        moderate: Let the comparisons of the table borrow from each other's variances (`attnlab.stats.moderation`).
        estimand: The number that summarizes a cell's seeds (`attnlab.stats.estimand`).
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

    @property
    def baselines(self) -> tuple[Mapping[str, Any], ...]:
        """All baselines; empty if cells are not compared."""
        return (self.baseline, *self.further_baselines) if self.baseline else ()

    def for_task(self, task: str) -> ComparisonSpec:
        """Return the specification of one of the study's tasks."""
        own = self.tasks[task]
        shared = {"metric": own.metric, "direction": own.direction, "margin": own.margin, "margin_share": own.margin_share}
        return replace(self, tasks={}, task=task, **shared)

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


@dataclass(frozen=True)
class CellSummary:
    """One cell over its seeds, and its comparison with the baseline.

    Attributes:
        name: The cell's name.
        axes: Axis -> value, as text.
        values: Seed -> value of the metric, of the completed runs; in a study with a sweep, the seed's contribution to the
            metric at the fitted optimum.
        value: Mean and interval of `values`, without an interval if there is an `estimate`; None if no run completed, or in a
            study with a sweep, if there is no optimum.
        costs: Cost metric -> mean and interval over the completed runs.
        states: State -> number of runs.
        reasons: Reasons for which runs did not complete, each once.
        baseline: Name of the baseline cell, "" if there is none.
        difference: The cell minus its baseline; None without a shared seed.
        verdict: None if the study has no baseline, or no run of this cell completed.
        test: Identity of the test of its runs (the column `test` of `attnlab.load_runs`); "" if unknown.
        batches: Fields that its training batches depend on in addition to the seed, and their values.
        ranges: Cost metric -> lowest and highest value over seeds, for measured costs with at least two values.
        further: This cell again for each further baseline, with that baseline, difference and verdict.
        curve: Its curve over the swept hyperparameter, in a study with a sweep.
        estimate: Its solve rate, or its median, with the exact interval, for another estimand than the mean. Diverged runs
            count (`attnlab.stats.estimand`).
        scores: Seed -> score, for another estimand than the mean: `values`, and the worst score for seeds that diverged.
        lost: Seeds that ended without a score. In a study with a sweep, a diverged run is none of them: it bounds the optimum.
    """

    name: str
    axes: Mapping[str, str]
    values: Mapping[int, float]
    value: paired.Interval | None
    costs: Mapping[str, paired.Interval]
    states: Mapping[str, int]
    reasons: tuple[str, ...] = ()
    baseline: str = ""
    difference: paired.Difference | None = None
    verdict: Verdict | None = None
    test: str = ""
    batches: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    further: tuple[CellSummary, ...] = ()
    curve: LearningRateCurve | None = None
    estimate: ExactInterval | None = None
    scores: Mapping[int, float] = field(default_factory=dict)
    lost: frozenset[int] = frozenset()

    @property
    def has_result(self) -> bool:
        """True if it can be compared: a run completed, or diverged where that counts as a score."""
        return self.value is not None or self.estimate is not None

    @property
    def seeds(self) -> int:
        """Number of seeds with a score."""
        return len(self.scores or self.values)

    @property
    def is_baseline(self) -> bool:
        """True for a cell that others are compared with."""
        return self.verdict is not None and self.verdict.kind is VerdictKind.BASELINE

    @property
    def is_inconclusive(self) -> bool:
        """True for a cell that shares seeds with its baseline, too few for a conclusion."""
        return self.verdict is not None and self.verdict.kind is VerdictKind.INCONCLUSIVE

    @property
    def outcome(self) -> str:
        """The states as text: "completed" if all runs completed, else as in "2 completed, 1 diverged"."""
        if len(self.states) == 1:
            return next(iter(self.states))
        return ", ".join(f"{count} {state}" for state, count in self.states.items())


def comparisons(cells: Iterable[CellSummary]) -> list[CellSummary]:
    """Return each cell, followed by its comparisons with further baselines."""
    return [comparison for cell in cells for comparison in (cell, *cell.further)]


def split_tasks(cells: Iterable[CellSummary], spec: ComparisonSpec) -> list[tuple[ComparisonSpec, list[CellSummary]]]:
    """Return the specification and the cells of each task of a study; of one task, all of them."""
    cells = list(cells)
    return [(part, [cell for cell in cells if part.includes(cell.axes)]) for part in spec.parts]
