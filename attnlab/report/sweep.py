"""The report's section on a swept hyperparameter: curves, optima, and cells without one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from attnlab.report.analysis import Analysis, Results
from attnlab.report.plots.lines import RateCurve, curve_limits, rate_plot
from attnlab.report.section import Column, Figure, PageSection, Table, TableRow
from attnlab.report.wording import better, count, format_interval
from attnlab.stats.cells import comparisons
from attnlab.stats.compare import CellSummary, ComparisonSpec
from attnlab.stats.paired import Difference, NoTest
from attnlab.stats.sweep import (
    CurveProblem,
    LearningRateCurve,
    describe_problem,
    difference_at_best,
    hyperparameter_name,
)

MAX_CELLS = 6  # cells in one plot


def sweep_warnings(cells: Sequence[CellSummary], sweep: str) -> list[str]:
    """Return one clause for each cell without a fitted optimum, and for each difference that the best values tried lack."""
    curves = [(cell.name, cell.curve) for cell in cells if cell.curve and cell.curve.problem]
    warnings = [f"{name}: {describe_problem(curve, sweep)}{_advice(curve)}" for name, curve in curves]
    return [*warnings, *(text for cell in comparisons(cells) if (text := _disagreement(cell, cells, sweep)))]


def _at_best(cell: CellSummary, cells: Sequence[CellSummary]) -> Difference | None:
    """Return a cell's difference from its baseline at their best values tried; None when they are not compared."""
    baseline = next((other.curve for other in cells if other.name == cell.baseline), None)
    return difference_at_best(cell.curve, baseline) if cell.difference and cell.curve and baseline else None


def _disagreement(cell: CellSummary, cells: Sequence[CellSummary], sweep: str) -> str:
    """Return a clause on a verdict that is withheld because the best values tried do not agree with the optima; else ""."""
    tried = _at_best(cell, cells)
    if tried is None or cell.difference is None or cell.difference.no_test is not NoTest.READINGS:
        return ""
    return (
        f"{cell.name}: no verdict, because the difference from {cell.baseline} is {cell.difference.format()} at the optima and "
        f"{tried.format()} at the best values of {sweep} tried; values between these would show which holds"
    )


def _advice(curve: LearningRateCurve) -> str:
    """Return the change of the study with which a cell may have a fitted optimum; "" if there is none."""
    match curve.problem:
        case CurveProblem.SMALLEST_TRIED:
            return "; add smaller values"
        case CurveProblem.LARGEST_TRIED:
            return "; add larger values"
        case CurveProblem.TOO_FEW_VALUES if curve.runs.diverged:
            return "; add values at which no run diverges"
        case CurveProblem.UNEVEN:
            return "; add values in the widest gap"
        case CurveProblem.NO_MINIMUM | CurveProblem.TOO_FEW_VALUES:
            return "; add values closer to its best"
        case _:
            return ""


def describe_sweep(curves: Sequence[LearningRateCurve], spec: ComparisonSpec) -> str:
    """Return the paragraph above the plots: what was trained, and what is compared."""
    rates = sorted({rate for curve in curves for rate in curve.runs.tried})
    values = ", ".join(f"{rate:.4g}" for rate in rates)
    sweep = spec.estimator.sweep
    return (
        f"Every cell was trained at each {sweep} ({values}) with every seed. Cells are compared at the optima of curves of "
        f"their mean {spec.metric} on the test split over log10 {sweep}; the best {hyperparameter_name(sweep)} tried, around "
        "which a curve is fitted, is chosen on the validation split."
    )


def _plots(curves: Sequence[RateCurve], spec: ComparisonSpec) -> list[Figure]:
    limits = curve_limits(curves, direction=spec.direction)
    groups = [curves[i : i + MAX_CELLS] for i in range(0, len(curves), MAX_CELLS)]
    note = f"{better(spec.direction)}; ring, bar: optimum, interval; ×: diverged"
    plots = []
    for i, group in enumerate(groups):
        suffix = f"-{i}" if len(groups) > 1 else ""
        title = f"{spec.metric} by {hyperparameter_name(spec.estimator.sweep)}"
        title += f", {i + 1} of {len(groups)}" if len(groups) > 1 else ""
        drawing = rate_plot(
            group,
            title=title,
            note=note,
            label=spec.estimator.sweep,
            limits=limits,
            direction=spec.direction,
            clip=f"sweep{suffix}",
        )
        plots.append(Figure(f"sweep{suffix}.svg", title, drawing))
    return plots


def _table(cells: Sequence[CellSummary], spec: ComparisonSpec, colors: Mapping[str, str]) -> Table:
    """Return a table with one row per cell: the best value tried, the optimum, both differences, and the sensitivity."""
    differences = {cell.name: (cell.difference, _at_best(cell, cells)) for cell in cells if cell.difference}
    has_diverged = any(cell.curve.runs.diverged for cell in cells if cell.curve)
    sweep = spec.estimator.sweep
    columns = [Column("cell", is_text=True), Column(f"best {sweep} tried"), Column(f"optimal {sweep}")]
    columns += [
        Column(f"{spec.metric} at the optimum"),
        *([Column("difference"), Column("at the best tried")] if differences else []),
        Column("sensitivity"),
        *([Column("diverged at")] if has_diverged else []),
    ]
    rows = []
    for cell in cells:
        if curve := cell.curve:
            best = "" if curve.best is None else f"{curve.best:.4g}"
            texts = [cell.name, best, format_optimum(curve), format_interval(cell.value)]
            texts += [d.format() if d else "" for d in differences.get(cell.name, (None, None))] if differences else []
            texts.append(_sensitivity(curve))
            diverged = ", ".join(f"{rate:.4g} ({count(n, 'run')})" for rate, n in sorted(curve.runs.diverged.items()))
            texts += [diverged] if has_diverged else []
            rows.append(TableRow(texts, colors[cell.name], "missing" if curve.problem else ""))
    return Table(columns, rows)


def format_optimum(curve: LearningRateCurve) -> str:
    """Format an optimal value with its interval as in "0.00312 (0.0027 to 0.00361)"; "none" without one, "any" if flat."""
    optimum = curve.optimum
    if optimum is None:
        return "any" if curve.is_flat else "none"
    text = f"{10**optimum.mean:.3g}"
    if optimum.low is None or optimum.high is None:
        return text
    return f"{text} ({10**optimum.low:.3g} to {10**optimum.high:.3g})"


def _sensitivity(curve: LearningRateCurve) -> str:
    bound = "at least " if curve.sensitivity_is_bound and curve.sensitivity else ""
    return f"{bound}{format_interval(curve.sensitivity)}"


def _notes(curves: Sequence[LearningRateCurve], spec: ComparisonSpec) -> Iterable[str]:
    name = hyperparameter_name(spec.estimator.sweep)
    if any(curve.sensitivity_is_bound for curve in curves):
        yield (
            "The loss of a diverged run counts as the largest mean loss that any cell completed with; the sensitivity of its "
            "cell is therefore a lower bound."
        )
    if any(curve.is_flat for curve in curves):
        yield f"Any: the cell has the same {spec.metric} at every {name} tried, and is compared by it without a fit."
    yield "Curves, columns and what has no verdict: docs/studies/learning-rate.md."


class SweepAnalysis(Analysis[dict[str, LearningRateCurve]]):
    """The curves over a swept hyperparameter, their optima, and cells without one."""

    def estimate(self, results: Results) -> dict[str, LearningRateCurve] | None:
        """Return cell -> curve, of the cells with a run that has ended."""
        return {cell.name: cell.curve for cell in results.cells if cell.curve} or None

    def lines(self, estimate: dict[str, LearningRateCurve], results: Results) -> Iterator[str]:
        """Yield a line for each cell without a fitted optimum."""
        for warning in sweep_warnings(results.cells, results.spec.estimator.sweep):
            yield f"note: {warning}"

    def section(self, estimate: dict[str, LearningRateCurve], results: Results) -> PageSection:
        """Return the section with the curves and their optima."""
        spec, curves = results.spec, list(estimate.values())
        return PageSection(
            hyperparameter_name(spec.estimator.sweep).capitalize(),
            [describe_sweep(curves, spec)],
            [f"{warning}." for warning in sweep_warnings(results.cells, spec.estimator.sweep)],
            _plots([RateCurve(name, results.colors[name], curve) for name, curve in estimate.items()], spec),
            _table(results.cells, spec, results.colors),
            list(_notes(curves, spec)),
        )
