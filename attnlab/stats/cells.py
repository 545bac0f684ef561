"""The comparison that a study makes, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from attnlab.config.axes import label_text
from attnlab.config.design import FactorialDesign
from attnlab.config.question import EstimandConfig
from attnlab.config.search import SearchConfig
from attnlab.stats.estimators import BestTried, CellSummary, Estimator
from attnlab.stats.predict import Futility
from attnlab.stats.sequential import Looks


@dataclass(frozen=True)
class Goal:
    """What cells are compared by: on one of several tasks, or in a further question.

    Attributes:
        metric: Name of the metric.
        direction: "min" when smaller values are better, else "max".
        margin: Largest difference that counts as equivalent, in the metric's unit.
    """

    metric: str
    direction: str
    margin: float | None = None


@dataclass(frozen=True)
class ComparisonSpec:
    """The comparison that a study makes.

    Attributes:
        study: The study's name.
        axes: Names of the grid's axes, in order.
        metric, direction, margin: As of a `Goal`; with several tasks, of the first one.
        baselines: Axis -> value. A baseline of a cell has these values, and the cell's on every other axis. Each cell is
            compared with all of them; empty when cells are not compared.
        control: Axis -> value. The control of a cell, like its baseline; it must be found worse (`attnlab.stats.verdict`).
        estimand: The number that summarizes a cell's seeds; its `estimator` computes it.
        moderate: Let the comparisons of the table borrow from each other's variances (`attnlab.stats.joint`).
        doubles: Name of a cell -> name of the cell with the same configuration that is run for it.
        over: The axis of levels over which `attnlab.stats.trend` tests the change of differences; "" if there is none.
        sweep: Dotted path of the hyperparameter at the best value tried of which cells are compared; "" without a sweep.
        factorial: The design of a factorial study, whose effects are estimated from all cells (`attnlab.stats.factorial`).
        task_axis: The axis that sets the task, in a study of several.
        tasks: Label of its values -> what the cells of this task are compared by, within the task.
        task: The only task that the specification is about (`for_task`); else "".
        looks: The numbers of seeds at which the study was judged, for which verdicts are corrected; None when it never was.
        own_looks: Name of a comparison (`comparison_name`) -> its looks, when they differ from the study's.
        futile: Name of a comparison -> its futility when it stopped receiving seeds.
        order: Names of the cells, in the grid's order.
        skipped: Name and reason of the cells that the study leaves out.
        search: The search of its cells, if it has one.
        analyses: Names of the analyses that the study asks for besides attnlab's.
        question: The question that the study states; "" for none.
        further: What its further questions compare the same cells by; the verdicts of all questions are corrected together.
    """

    study: str
    axes: tuple[str, ...]
    metric: str
    direction: str
    margin: float | None = None
    baselines: tuple[Mapping[str, Any], ...] = ()
    control: Mapping[str, Any] | None = None
    estimand: EstimandConfig = EstimandConfig()
    moderate: bool = True
    doubles: Mapping[str, str] = field(default_factory=dict)
    over: str = ""
    sweep: str = ""
    factorial: FactorialDesign | None = None
    task_axis: str = ""
    tasks: Mapping[str, Goal] = field(default_factory=dict)
    task: str = ""
    looks: Looks | None = None
    own_looks: Mapping[str, Looks] = field(default_factory=dict)
    futile: Mapping[str, Futility] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    search: SearchConfig | None = None
    analyses: tuple[str, ...] = ()
    question: str = ""
    further: tuple[Goal, ...] = ()

    @property
    def family(self) -> str:
        """What verdicts are corrected over: the table, or all tasks or questions of the study."""
        if self.further:
            return "all questions of the study"
        return "all tasks of the study" if self.task else "the table"

    @property
    def baseline(self) -> Mapping[str, Any]:
        """The first baseline, to which costs are matched; empty when cells are not compared."""
        return self.baselines[0] if self.baselines else {}

    @property
    def is_judged(self) -> bool:
        """True when the study has verdicts, on comparisons with a baseline or on effects."""
        return bool(self.baselines or self.factorial)

    @property
    def estimator(self) -> Estimator:
        """The value of a cell, the difference of two cells, and their names."""
        if self.sweep:
            return BestTried(self.metric, self.direction, sweep=self.sweep)
        return self.estimand.estimator(self.metric, self.direction)

    def looks_of(self, comparison: str) -> Looks | None:
        """Return the looks at a comparison (`comparison_name`)."""
        return self.own_looks.get(comparison, self.looks)

    def with_goal(self, goal: Goal) -> ComparisonSpec:
        """Return the same comparison by another metric."""
        return replace(self, metric=goal.metric, direction=goal.direction, margin=goal.margin)

    def for_task(self, task: str) -> ComparisonSpec:
        """Return the specification of one of the study's tasks."""
        return replace(self.with_goal(self.tasks[task]), tasks={}, task=task)

    @property
    def parts(self) -> list[ComparisonSpec]:
        """The specifications of the study's tasks; this one alone in a study of one task."""
        return [self.for_task(task) for task in self.tasks] or [self]

    @property
    def questions(self) -> list[ComparisonSpec]:
        """The specifications of the study's questions, this one first; seeds are added for the first one."""
        return [self, *(replace(self.with_goal(goal), futile={}) for goal in self.further)]

    def includes(self, axes: Mapping[str, Any]) -> bool:
        """Return True for the axes of a cell of the task that this specification is about, if it is about one only."""
        return not self.task or label_text(axes.get(self.task_axis)) == self.task

    def position(self, cell: str) -> int:
        """Return a cell's position in the grid; cells that are not in the grid come last."""
        return self.order.index(cell) if cell in self.order else len(self.order)

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
