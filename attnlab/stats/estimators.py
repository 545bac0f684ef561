"""Estimators: the value of a cell, the difference of two cells, and what both are called in tables and texts.

A mean is compared by paired t-tests (`attnlab.stats.paired`), also at the best value of a swept hyperparameter
(`attnlab.stats.sweep`); solve rates have exact tests (`attnlab.stats.exact_estimators`).

The summary of a cell holds what an estimator computes. `attnlab.stats.compare` fills it in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from attnlab._util.metrics import in_words
from attnlab._util.run_state import RunState
from attnlab.stats import paired
from attnlab.stats.exact import ExactInterval
from attnlab.stats.paired import Difference
from attnlab.stats.records import LOST_STATES, OUTCOMELESS_STATES
from attnlab.stats.sequential import Looks
from attnlab.stats.sweep import LearningRateCurve, collect_runs, describe_problem, hyperparameter_name, swept_curves
from attnlab.stats.verdict import Verdict, VerdictKind

Runs = Mapping[str, Sequence[Mapping[str, Any]]]  # cell -> one mapping per run, as `load_runs` returns them
Scores = Mapping[int, float]  # seed -> score
Ends = tuple[float, float] | tuple[None, None]


@dataclass(frozen=True)
class CellSummary:
    """One cell over its seeds, and its comparison with the baseline.

    Attributes:
        name: The cell's name.
        axes: Axis -> value, as text.
        values: Seed -> value of the metric, of the completed runs; in a study with a sweep, at the best value tried.
        value: Mean and interval of `values`, without an interval if there is an `estimate`; None when no run completed, or in a
            study with a sweep, if the best value tried is the smallest or largest.
        costs: Cost metric -> mean and interval over the completed runs.
        states: State -> number of runs.
        reasons: Reasons for which runs did not complete, each once.
        baseline: Name of the baseline cell, "" if there is none.
        difference: The cell minus its baseline; None without a shared seed.
        verdict: None when the study has no baseline, or no run of this cell completed.
        test: Identity of the test of its runs (the column `test` of `attnlab.load_runs`); "" if unknown.
        batches: Fields that its training batches depend on in addition to the seed, and their values.
        ranges: Cost metric -> lowest and highest value over seeds, for measured costs with at least two values.
        further: This cell again for each further baseline, with that baseline, difference and verdict.
        curve: Its results over the swept hyperparameter, in a study with a sweep.
        estimate: Its solve rate with the exact interval, for that estimand. Diverged runs
            count (`attnlab.stats.exact_estimators`).
        scores: Seed -> score, for another estimand than the mean: `values`, and the worst score for seeds that diverged.
        lost: Seeds that ended without a score. In a study with a sweep, a diverged run is none of them.
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
        """True when it can be compared: a run completed, or diverged where that counts as a score."""
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
    def for_new_items(self) -> tuple[float, float] | None:
        """The 95 % interval of the difference for new test items; None where items hardly matter, or are unknown."""
        new = self.verdict.new_items if self.verdict else None
        if new is None or self.difference is None:
            return None
        mean = self.difference.interval.mean
        return mean - new.half_width, mean + new.half_width

    @property
    def outcome(self) -> str:
        """The states as text: "completed" if all runs completed, else as in "2 completed, 1 diverged"."""
        if len(self.states) == 1:
            return next(iter(self.states))
        return ", ".join(f"{count} {state}" for state, count in self.states.items())


@dataclass(frozen=True)
class Words:
    """The names of an estimator in headings and sentences, by default for a mean.

    The words of a class are templates, with the fields of `Estimator.words` and the words above in braces.
    """

    description: str = "the mean of {metric}"
    compared_by: str = ""  # the description where it says more than the name of the metric
    noun: str = "mean"  # of the number of a single cell
    heading: str = "{metric}"  # of the column of values
    measure: str = "{quantity}"  # what a conclusion is about, at its start
    difference_heading: str = "difference in {metric} from"  # of a plot, before the name of the baseline
    caption: str = "mean ± half-width of the 95 % interval over seeds"  # of the terminal's table
    missing: str = "no value"  # in the place of the value of a cell with a `problem`
    runs: str = ""  # the runs of a cell that curves are drawn of, if not all
    test_note: str = ""  # the exact test and its interval in a sentence


@dataclass(frozen=True)
class Estimator:
    """The number that summarizes the seeds of a cell.

    Attributes:
        name: Of the estimator in a study file.
        metric: Name of the scores.
        direction: "min" when smaller scores are better, else "max".
        threshold: The score that solves the task; None when the estimator takes none.
        sweep: Dotted path of the hyperparameter that is tuned before cells are compared, for example `train.lr`; else "".
        is_exact: Tests are exact: a few seeds cannot be significant, and verdicts are not predicted. Else they are t-tests.
        is_mean: Differences are differences of means: they have trends over levels, and effects.
        in_unit: Differences have the unit of the metric, as the scores of single seeds have.
        takes_threshold: The estimator has a threshold.
        is_rate: Values are rates, of which larger ones are better whatever the direction of the metric.
        lost_states: States of runs without a score. A diverged run has one where divergence is an outcome.
        templates: Its words.
    """

    metric: str
    direction: str
    threshold: float | None = None
    sweep: str = ""

    name: ClassVar[str] = "mean"
    is_exact: ClassVar[bool] = False
    is_mean: ClassVar[bool] = True
    in_unit: ClassVar[bool] = True
    takes_threshold: ClassVar[bool] = False
    is_rate: ClassVar[bool] = False
    lost_states: ClassVar[tuple[RunState, ...]] = LOST_STATES
    templates: ClassVar[Words] = Words()

    @property
    def words(self) -> Words:
        """Its names in headings and sentences."""
        limits = ("≤", "at most") if self.direction == "min" else ("≥", "at least")
        fields = {**vars(self), "quantity": in_words(self.metric), "sign": limits[0], "limit": limits[1]}
        fields["hyperparameter"] = hyperparameter_name(self.sweep) if self.sweep else ""
        words = {}
        for name, template in vars(self.templates).items():
            words[name] = template.format(**fields, **words)
        return Words(**words)

    def evaluate(self, cells: Sequence[CellSummary], runs: Runs, looks: Looks | None) -> list[CellSummary]:
        """Fill in the value of each cell: by default the mean of its `values`.

        Args:
            cells: Of one task, each with `values`.
            runs: Of the cells.
            looks: Widen the intervals so that they cover the true value at all of these looks together.
        """
        means = [paired.interval([*cell.values.values()], looks=looks) if cell.values else None for cell in cells]
        return [replace(cell, value=mean) for cell, mean in zip(cells, means, strict=True)]

    def compare(
        self, cell: Scores, baseline: Scores, *, margin: float | None = None, looks: Looks | None = None
    ) -> Difference | None:
        """Compare the scores of a cell with its baseline's: by default, by a paired t-test.

        Args:
            cell: Seed -> score.
            baseline: Seed -> score.
            margin: Largest difference that counts as equivalent.
            looks: Looks at which the study is judged. There is no test before the first of several announced ones.

        Returns:
            The difference, not yet corrected over its table; None when the two share no seed.
        """
        return paired.difference(cell, baseline, margin=margin, looks=looks)

    def problem(self, cell: CellSummary) -> str:
        """Return the reason why a cell has no value although its runs completed; "" if it has one."""
        return ""

    @property
    def value_direction(self) -> str:
        """The direction of values: "min" if smaller ones are better, else "max"."""
        return "max" if self.is_rate else self.direction

    @property
    def difference_direction(self) -> str:
        """The direction of differences: "min" if a negative one is better, else "max"."""
        return self.direction if self.in_unit else "max"

    def format(self, cell: CellSummary) -> str:
        """Format the value of a cell with its interval, or state why it has none."""
        value = cell.estimate or cell.value
        return cell.outcome if value is None else value.format()

    def columns(self, cell: CellSummary) -> dict[str, Any]:
        """Return further columns of a cell for `cells.csv`."""
        return {}

    def notes(
        self, cells: Sequence[CellSummary], *, margin: float | None, looks: Looks | None, family: str = "the table"
    ) -> list[str]:
        """Return notes on the figures of a table; without any, the page explains intervals and tests of means.

        Args:
            cells: The rows of the table.
            margin: The largest difference that counts as equivalent.
            looks: Looks at which the study is judged.
            family: What verdicts are corrected over.
        """
        return []

    def warnings(self, cells: Iterable[CellSummary]) -> list[str]:
        """Return warnings about a table: options of the estimator that do not fit its scores."""
        return []

    def margin_problem(self, margin: Any) -> str:
        """Return the reason why a study with this estimator cannot have a margin, as "expected ..."; "" if it can."""
        return ""

    def margin_notes(self, margin: float | None) -> list[str]:
        """Return notes on a margin that is not in the metric's unit."""
        return []

    def stop_note(self, score: str, stop_at: float, *, compared: bool) -> str:
        """Return a note on a `train.stop_at` that limits the compared scores; "" if it does not.

        Args:
            score: Name of the score that ends runs.
            stop_at: Value of that score at which they end.
            compared: The study has several cells.
        """
        if not compared:
            return ""
        return (
            f"train.stop_at ends runs at {score} {stop_at:g}, so cells that reach it hardly differ: compare their steps, "
            "or set 'estimand: solve_rate'"
        )


class Mean(Estimator):
    """The mean over seeds."""


class BestTried(Estimator):
    """The mean at the best value tried of a swept hyperparameter, the same values in each cell.

    A diverged run has no score, and its value counts as worse than others.
    """

    lost_states = OUTCOMELESS_STATES
    templates = Words(
        heading="{metric} at the best {sweep}",
        measure="{quantity} at the best {hyperparameter} tried of each cell",
        caption=f"{Words.caption}; at the best {{sweep}} tried",
        missing="no best {hyperparameter}",
        runs="Runs at each cell's best {hyperparameter} tried.",
    )

    def evaluate(self, cells: Sequence[CellSummary], runs: Runs, looks: Looks | None) -> list[CellSummary]:
        """Replace the values of each cell by the ones at its best value tried."""
        options = {"path": self.sweep, "metric": self.metric, "direction": self.direction}
        swept = {cell.name: collect_runs(runs[cell.name], **options) for cell in cells}
        curves = swept_curves(swept, direction=self.direction)
        of_cells = [(cell, curves.get(cell.name)) for cell in cells]
        at_best = [replace(cell, curve=curve, values=curve.values if curve else {}) for cell, curve in of_cells]
        return super().evaluate(at_best, runs, looks)

    def problem(self, cell: CellSummary) -> str:
        return describe_problem(cell.curve, self.sweep) if cell.curve else ""

    def format(self, cell: CellSummary) -> str:
        return self.words.missing if self.problem(cell) else super().format(cell)

    def columns(self, cell: CellSummary) -> dict[str, Any]:
        """Return the best value of the hyperparameter, and the sensitivity to it."""
        best, sensitivity = (cell.curve.best, cell.curve.sensitivity) if cell.curve else (None, None)
        return {f"best_{self.sweep}": best, "sensitivity": sensitivity.mean if sensitivity else None}
