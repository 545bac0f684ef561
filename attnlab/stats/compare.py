"""Cell summaries: the runs of a study grouped by cell, summarized over seeds and compared with the baseline.

The table that ends `attnlab run` and the report are both made from these summaries, so they cannot disagree.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from attnlab._util import cost_metrics
from attnlab._util.run_state import RunState
from attnlab.config.comparability import describe_changes
from attnlab.config.design import FactorialDesign
from attnlab.config.grid import cell_name
from attnlab.stats import paired
from attnlab.stats.control import sensitivity
from attnlab.stats.lr_curve import LearningRateCurve, collect_runs, describe_problem, fit_curves
from attnlab.stats.records import axis_text, comparison_name, finite, is_infinite
from attnlab.stats.sequential import Looks
from attnlab.stats.verdict import Reason, Verdict, VerdictKind, judge

# States in which a seed has no value and never will.
LOST_STATES = (RunState.DIVERGED, RunState.OUT_OF_MEMORY, RunState.FAILED, RunState.TIMED_OUT)


# Columns that determine the batches of a seed: equal columns, equal batches in the same order.
BATCH_FIELDS = ("task", "data", "length", "train.batch_size", "train.steps", "train.epochs")


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
        doubles: Name of a cell -> name of the cell with the same configuration that is run for it.
        further_baselines: Other baselines, like `baseline`. Each cell is compared with all of them.
        sweep: Dotted path of the hyperparameter that the study sweeps, such as `train.lr`. Cells are then compared at the
            optima of the curves fitted over it.
        control: Axis -> value. The control of a cell, like its baseline; it must be found worse (`attnlab.stats.control`).
        factorial: The factors of a factorial study, whose effects are estimated from all cells (`attnlab.stats.factorial`).
        over: The axis of levels at which cells are compared, and over which `attnlab.stats.trend` tests the change of their
            differences; "" if there is none.
        moderate: Let the comparisons of the table borrow from each other's variances (`attnlab.stats.moderation`).
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

    @property
    def baselines(self) -> tuple[Mapping[str, Any], ...]:
        """All baselines; empty if cells are not compared."""
        return (self.baseline, *self.further_baselines) if self.baseline else ()

    def is_control(self, axes: Mapping[str, str]) -> bool:
        """Return True for the axes of a control."""
        return self.control is not None and all(axes[axis] == axis_text(value) for axis, value in self.control.items())


@dataclass(frozen=True)
class CellSummary:
    """One cell over its seeds, and its comparison with the baseline.

    Attributes:
        name: The cell's name.
        axes: Axis -> value, as text.
        values: Seed -> value of the metric, of the completed runs; in a study with a sweep, the seed's contribution to the
            metric at the fitted optimum.
        value: Mean and interval of `values`; None if no run completed, or in a study with a sweep, if there is no optimum.
        costs: Cost metric -> mean and interval over the completed runs.
        states: State -> number of runs.
        reasons: Why some runs did not complete, each reason once.
        baseline: Name of the baseline cell, "" if there is none.
        difference: The cell minus its baseline; None without a shared seed.
        verdict: None if the study has no baseline, or no run of this cell completed.
        test: What its runs are tested on (the column `test` of `attnlab.load_runs`); "" if unknown.
        batches: What its training batches depend on besides the seed, as names and values.
        ranges: Cost metric -> lowest and highest value over seeds, for measured costs with at least two values.
        further: This cell again for each further baseline, with that baseline, difference and verdict.
        curve: Its curve over the swept hyperparameter, in a study with a sweep.
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


def summarize_cells(runs: Iterable[Mapping[str, Any]], spec: ComparisonSpec) -> list[CellSummary]:
    """Group runs by cell, in the order in which cells first appear, and compare each cell with its baseline.

    Args:
        runs: One mapping per run with `state`, `reason`, `seed`, the axes and the summary metrics.
        spec: What to compare.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        groups.setdefault(cell_of(run, spec), []).append(run)
    cells = [_summarize_cell(name, group, spec) for name, group in groups.items()]
    if spec.sweep:
        cells = _at_optima(cells, groups, spec)
    return _compare(cells, spec) if spec.baseline else cells


def cell_of(run: Mapping[str, Any], spec: ComparisonSpec) -> str:
    """Return the name of a run's cell: the recorded one, else one made from its axes."""
    return str(run.get("cell") or cell_name({axis: axis_text(run.get(axis)) for axis in spec.axes}))


def _summarize_cell(name: str, runs: Sequence[Mapping[str, Any]], spec: ComparisonSpec) -> CellSummary:
    completed = [run for run in runs if run["state"] == RunState.COMPLETED and finite(run.get(spec.metric)) is not None]
    values = {int(run["seed"]): float(run[spec.metric]) for run in completed}
    costs, ranges = {}, {}
    for metric in cost_metrics.COST_METRICS:
        numbers = [number for run in completed if (number := finite(run.get(metric.name))) is not None]
        if numbers:
            costs[metric.name] = paired.interval(numbers)
        if metric.measured and len(numbers) > 1:
            ranges[metric.name] = (min(numbers), max(numbers))
    reasons = dict.fromkeys(_reason(run, spec) for run in runs if _state(run, spec) != RunState.COMPLETED)
    return CellSummary(
        name=name,
        axes={axis: axis_text(runs[0].get(axis)) for axis in spec.axes},
        values=values,
        value=paired.interval(list(values.values()), looks=spec.looks) if values else None,
        costs=costs,
        states=Counter(_state(run, spec) for run in runs),
        reasons=tuple(reason for reason in reasons if reason),
        test=next((str(run["test"]) for run in runs if run.get("test")), ""),
        batches={name: axis_text(runs[0][name]) for name in BATCH_FIELDS if _is_known(runs[0].get(name))},
        ranges=ranges,
    )


def _at_optima(
    cells: Sequence[CellSummary], groups: Mapping[str, Sequence[Mapping[str, Any]]], spec: ComparisonSpec
) -> list[CellSummary]:
    """Replace the values of each cell by those at its fitted optimum.

    Cells that are tested alike and trained on the same batches have curves of one shape.
    """
    assert spec.sweep
    alike: dict[tuple[Any, ...], list[CellSummary]] = {}
    for cell in cells:
        alike.setdefault((cell.test, *sorted(cell.batches.items())), []).append(cell)
    curves: dict[str, LearningRateCurve] = {}
    for group in alike.values():
        runs = {
            cell.name: collect_runs(groups[cell.name], path=spec.sweep, metric=spec.metric, direction=spec.direction)
            for cell in group
        }
        curves |= fit_curves(runs, direction=spec.direction)
    fitted = []
    for cell in cells:
        curve = curves.get(cell.name)
        values = curve.values if curve else {}
        value = paired.interval(list(values.values()), looks=spec.looks) if values else None
        fitted.append(replace(cell, values=values, value=value, curve=curve))
    return fitted


def _is_known(value: Any) -> bool:
    """Return False for None and NaN, with which a table of runs is padded."""
    return value is not None and value == value


def _state(run: Mapping[str, Any], spec: ComparisonSpec) -> str:
    """Return a run's state; a completed run with an infinite value counts as diverged."""
    return str(RunState.DIVERGED if is_infinite(run.get(spec.metric)) else run["state"])


def _reason(run: Mapping[str, Any], spec: ComparisonSpec) -> str:
    value = run.get(spec.metric)
    return f"{spec.metric} is {value:g}" if is_infinite(value) else str(run.get("reason") or "")


def comparisons(cells: Iterable[CellSummary]) -> list[CellSummary]:
    """Return each cell, followed by its comparisons with further baselines."""
    return [comparison for cell in cells for comparison in (cell, *cell.further)]


def _compare(cells: list[CellSummary], spec: ComparisonSpec) -> list[CellSummary]:
    """Fill in baselines, differences (corrected over the whole table) and verdicts.

    Two cells are compared once: of two baselines, the later one with the earlier one.
    """
    by_axes = {tuple(cell.axes.values()): cell for cell in cells}
    by_name = {cell.name: cell for cell in cells}

    def baseline_of(cell: CellSummary, baseline: Mapping[str, Any]) -> CellSummary | None:
        axes = {axis: axis_text(baseline.get(axis, cell.axes[axis])) for axis in spec.axes}
        return by_axes.get(tuple(axes.values())) or by_name.get(spec.doubles.get(cell_name(axes), ""))

    compared = [[_pair(cell, baseline_of(cell, spec.baseline), spec)] for cell in cells]
    pairs = {frozenset((group[0].name, group[0].baseline)) for group in compared}
    for further in spec.further_baselines:
        for cell, group in zip(cells, compared, strict=True):
            baseline = baseline_of(cell, further)
            pair = frozenset((cell.name, baseline.name if baseline else ""))
            if cell.value is not None and baseline is not cell and pair not in pairs:
                group.append(_pair(cell, baseline, spec))
                pairs.add(pair)
    differences = [comparison.difference for group in compared for comparison in group]
    corrected = iter(paired.correct(paired.moderate(differences) if spec.moderate else differences))
    judged = [[_judged(comparison, next(corrected), by_name, spec) for comparison in group] for group in compared]
    if spec.control:
        judged = _with_sensitivity(judged, spec, baseline_of)
    return [replace(group[0], further=tuple(group[1:])) for group in judged]


def _with_sensitivity(
    groups: Sequence[Sequence[CellSummary]],
    spec: ComparisonSpec,
    cell_with: Callable[[CellSummary, Mapping[str, Any]], CellSummary | None],
) -> list[list[CellSummary]]:
    """Record with each outcome of equivalent or identical what the cell's control shows against the same baseline.

    Args:
        groups: Each cell's comparisons.
        spec: With a control.
        cell_with: Returns the cell with the axes of another, some of them replaced.
    """
    by_name = {group[0].name: group for group in groups}

    def control_of(cell: CellSummary) -> CellSummary | None:
        control = cell_with(cell, spec.control or {})
        if control is None:
            return None
        for baseline in spec.baselines:
            if (own := cell_with(cell, baseline)) is not None and own.name == cell.baseline:
                paired_with = cell_with(control, baseline)
                name = paired_with.name if paired_with is not None else ""
                return next((comparison for comparison in by_name[control.name] if comparison.baseline == name), None)
        return None

    def recorded(cell: CellSummary) -> CellSummary:
        if cell.verdict is None or cell.verdict.kind not in (VerdictKind.EQUIVALENT, VerdictKind.IDENTICAL):
            return cell
        control = control_of(cell)
        shown = sensitivity(control and control.verdict, control and control.difference, margin=spec.margin)
        return replace(cell, verdict=replace(cell.verdict, sensitivity=shown))

    return [[recorded(cell) for cell in group] for group in groups]


def _pair(cell: CellSummary, baseline: CellSummary | None, spec: ComparisonSpec) -> CellSummary:
    """Return the cell with its difference from a baseline, or with the reason why there is none."""
    if baseline is cell:
        return replace(cell, verdict=Verdict(VerdictKind.BASELINE))
    if baseline is None:
        return replace(cell, verdict=Verdict(VerdictKind.NO_COMPARISON, Reason.BASELINE_MISSING))
    if problem := _curve_problem(cell, spec):
        return replace(cell, verdict=Verdict(VerdictKind.NO_COMPARISON, Reason.NO_OPTIMUM, detail=problem))
    if cell.value is None:
        return cell
    if cell.test != baseline.test:
        detail = describe_changes(_fields_of_test(cell), _fields_of_test(baseline))
        return replace(cell, verdict=Verdict(VerdictKind.NO_COMPARISON, Reason.OTHER_TEST, detail=detail))
    margin = None if spec.is_control(cell.axes) else spec.margin
    looks = spec.own_looks.get(comparison_name(cell.name, baseline.name), spec.looks)
    difference = paired.difference(cell.values, baseline.values, margin=margin, looks=looks)
    return replace(cell, baseline=baseline.name, difference=difference)


def _curve_problem(cell: CellSummary, spec: ComparisonSpec) -> str:
    """Return the reason why a swept cell has no fitted optimum, else ""."""
    return describe_problem(cell.curve, spec.sweep) if cell.curve and spec.sweep else ""


def _judged(
    cell: CellSummary, difference: paired.Difference | None, by_name: Mapping[str, CellSummary], spec: ComparisonSpec
) -> CellSummary:
    """Return a comparison with its corrected difference and verdict."""
    if not cell.baseline:
        return cell
    return replace(cell, difference=difference, verdict=_verdict(cell, difference, by_name[cell.baseline], spec))


def _fields_of_test(cell: CellSummary) -> dict[str, Any]:
    return json.loads(cell.test) if cell.test else {}


def _verdict(cell: CellSummary, difference: paired.Difference | None, baseline: CellSummary, spec: ComparisonSpec) -> Verdict:
    """Judge the completed pairs, and record the lost runs with the verdict: what diverged may have been the worst."""
    if baseline.value is None:
        problem = _curve_problem(baseline, spec)
        detail = f"no fitted optimum: {problem}" if problem else f"no {spec.metric} ({baseline.outcome})"
        return Verdict(VerdictKind.NO_COMPARISON, Reason.BASELINE_WITHOUT_VALUE, detail=detail)
    # In a sweep, a diverged run bounds the optimum from the side of large rates; it is not a lost seed.
    states = [state for state in LOST_STATES if not (spec.sweep and state is RunState.DIVERGED)]
    lost = tuple((count, state) for state, count in cell.states.items() if state in states)
    baseline_lost = tuple((count, state) for state, count in baseline.states.items() if state in states)
    verdict = judge(difference, direction=spec.direction)
    return replace(verdict, seeds=len(cell.values), lost=lost, baseline_lost=baseline_lost)
