"""The comparison that a study makes, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from attnlab.config.axes import label_text
from attnlab.config.design import FactorialDesign
from attnlab.config.factors import factorial_design
from attnlab.config.question import EstimandConfig
from attnlab.stats.estimators import BestTried, CellSummary, Estimator
from attnlab.stats.predict import Futility
from attnlab.stats.records import RunRow
from attnlab.stats.sequential import Looks
from attnlab.stats.sweep import swept_path

if TYPE_CHECKING:
    from attnlab.config.study import StudyConfig


@dataclass(frozen=True)
class Goal:
    """What the cells of a task are compared by.

    Attributes:
        metric: Name of the metric.
        direction: "min" when smaller values are better, else "max".
        margin: Largest difference that counts as equivalent, in the metric's unit.
    """

    metric: str
    direction: str
    margin: float | None = None


@dataclass(frozen=True)
class Tasks:
    """The tasks of a study of several; cells are compared within their task, and corrected over all tasks.

    Attributes:
        axis: The axis that sets the task.
        goals: Label of its values -> what the cells of this task are compared by.
        task: The only one of these tasks that a specification is about (`ComparisonSpec.for_task`).
    """

    axis: str = ""
    goals: Mapping[str, Goal] = field(default_factory=dict)
    task: str = ""


@dataclass(frozen=True)
class Judged:
    """The looks at a study that its verdicts are corrected for.

    Attributes:
        looks: The numbers of seeds at which the study was judged; None when it never was.
        own: Name of a comparison (`comparison_name`) -> its looks, when they differ from the study's.
        futile: Name of a comparison (`comparison_name`) -> its futility when it stopped receiving seeds.
    """

    looks: Looks | None = None
    own: Mapping[str, Looks] = field(default_factory=dict)
    futile: Mapping[str, Futility] = field(default_factory=dict)


@dataclass(frozen=True)
class Over:
    """The section `over` of a study: the axis of levels over which `attnlab.stats.trend` tests the change of differences."""

    axis: str


@dataclass(frozen=True)
class Sweep:
    """The section `sweep` of a study: cells are compared at the best value tried of a hyperparameter."""

    path: str


Section = Over | Sweep | FactorialDesign


@dataclass(frozen=True)
class ComparisonSpec:
    """The comparison that a study makes.

    Attributes:
        study: The study's name.
        axes: Names of the grid's axes, in order.
        goal: The metric, its direction and the margin; with several tasks, of the first one.
        baselines: Axis -> value. A baseline of a cell has these values, and the cell's on every other axis. Each cell is
            compared with all of them; empty when cells are not compared.
        control: Axis -> value. The control of a cell, like its baseline; it must be found worse (`attnlab.stats.verdict`).
        estimand: The number that summarizes a cell's seeds; its `estimator` computes it.
        moderate: Let the comparisons of the table borrow from each other's variances (`attnlab.stats.joint`).
        doubles: Name of a cell -> name of the cell with the same configuration that is run for it.
        sections: The settings of the study's analyses: one object each.
        tasks: The tasks, in a study of several.
        judged: The looks that verdicts are corrected for.
        question: The question that the study states; "" for none.
        further: What its further questions compare the same cells by; the verdicts of all questions are corrected together.
    """

    study: str
    axes: tuple[str, ...]
    goal: Goal
    baselines: tuple[Mapping[str, Any], ...] = ()
    control: Mapping[str, Any] | None = None
    estimand: EstimandConfig = EstimandConfig()
    moderate: bool = True
    doubles: Mapping[str, str] = field(default_factory=dict)
    sections: tuple[Section, ...] = ()
    tasks: Tasks = Tasks()
    judged: Judged = Judged()
    question: str = ""
    further: tuple[Goal, ...] = ()

    @property
    def metric(self) -> str:
        """Name of the metric."""
        return self.goal.metric

    @property
    def direction(self) -> str:
        """The direction of the metric: "min" where smaller values are better, else "max"."""
        return self.goal.direction

    @property
    def margin(self) -> float | None:
        """The largest difference that counts as equivalent, in the metric's unit."""
        return self.goal.margin

    @property
    def looks(self) -> Looks | None:
        """The numbers of seeds at which the study was judged; None when it never was."""
        return self.judged.looks

    @property
    def task(self) -> str:
        """The only task of a study of several that this specification is about; else ""."""
        return self.tasks.task

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
    def over(self) -> str:
        """The axis of levels at which cells are compared; "" if there is none."""
        return next((section.axis for section in self.sections if isinstance(section, Over)), "")

    @property
    def sweep(self) -> str:
        """Dotted path of the hyperparameter that the study sweeps; "" without a sweep."""
        return next((section.path for section in self.sections if isinstance(section, Sweep)), "")

    @property
    def factorial(self) -> FactorialDesign | None:
        """The design of a factorial study, whose effects are estimated from all cells (`attnlab.stats.factorial`)."""
        return next((section for section in self.sections if isinstance(section, FactorialDesign)), None)

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
        return self.judged.own.get(comparison, self.judged.looks)

    def for_task(self, task: str) -> ComparisonSpec:
        """Return the specification of one of the study's tasks."""
        return replace(self, goal=self.tasks.goals[task], tasks=Tasks(self.tasks.axis, task=task))

    @property
    def parts(self) -> list[ComparisonSpec]:
        """The specifications of the study's tasks; this one alone in a study of one task."""
        return [self.for_task(task) for task in self.tasks.goals] or [self]

    @property
    def questions(self) -> list[ComparisonSpec]:
        """The specifications of the study's questions, this one first."""
        judged = replace(self.judged, futile={})  # seeds are added for the first question
        return [self, *(replace(self, goal=goal, judged=judged) for goal in self.further)]

    def includes(self, axes: Mapping[str, Any]) -> bool:
        """Return True for the axes of a cell of the task that this specification is about, if it is about one only."""
        return not self.task or label_text(axes.get(self.tasks.axis)) == self.task

    def is_control(self, axes: Mapping[str, str]) -> bool:
        """Return True for the axes of a control."""
        return self.control is not None and all(axes[axis] == label_text(value) for axis, value in self.control.items())


def sections_of(study: StudyConfig, *, records: Iterable[RunRow] = ()) -> tuple[Section, ...]:
    """Return the settings of a study's analyses.

    Args:
        study: As read.
        records: Its runs, which say what they sweep; without one of a sweep, the study says it.
    """
    path, design = swept_path(records) or study.swept_path, factorial_design(study)
    found = (Over(study.over_axis) if study.over_axis else None, Sweep(path) if path else None, design)
    return tuple(section for section in found if section is not None)


def comparisons(cells: Iterable[CellSummary]) -> list[CellSummary]:
    """Return each cell, followed by its comparisons with further baselines."""
    return [comparison for cell in cells for comparison in (cell, *cell.further)]


def split_tasks(cells: Iterable[CellSummary], spec: ComparisonSpec) -> list[tuple[ComparisonSpec, list[CellSummary]]]:
    """Return the specification and the cells of each task of a study; of one task, all of them."""
    cells = list(cells)
    return [(part, [cell for cell in cells if part.includes(cell.axes)]) for part in spec.parts]
