"""The report's section on a swept hyperparameter: curves, best values, and cells whose best value is at an end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from attnlab.report.analysis import Analysis, Results
from attnlab.report.plots.lines import RateCurve, curve_limits, rate_plot
from attnlab.report.section import Column, Figure, PageSection, Table, TableRow
from attnlab.report.wording import better, count, format_interval
from attnlab.stats.cells import comparisons
from attnlab.stats.compare import CellSummary, ComparisonSpec
from attnlab.stats.paired import NoTest
from attnlab.stats.sweep import LearningRateCurve, describe_problem, hyperparameter_name, spacing

MAX_CELLS = 6  # cells in one plot


def sweep_warnings(cells: Sequence[CellSummary], sweep: str) -> list[str]:
    """Return one clause for each cell without a value, and for each difference that depends on the choice of the values."""
    advice = {"smallest": "; add smaller values", "largest": "; add larger values", "": "; add smaller values"}
    curves = [(cell.name, cell.curve, describe_problem(cell.curve, sweep)) for cell in cells if cell.curve]
    warnings = [f"{name}: {problem}{advice[curve.edge]}" for name, curve, problem in curves if problem]
    withheld = [cell for cell in comparisons(cells) if cell.difference and cell.difference.no_test is NoTest.CHOICE]
    return [*warnings, *(f"{cell.name} and {cell.baseline}: no verdict, because {NoTest.CHOICE.value}" for cell in withheld)]


def describe_sweep(curves: Sequence[LearningRateCurve], spec: ComparisonSpec) -> str:
    """Return the paragraph above the plots: what was trained, and what is compared."""
    rates = sorted({rate for curve in curves for rate in curve.runs.tried})
    values = ", ".join(f"{rate:.4g}" for rate in rates)
    return (
        f"Every cell was trained at each {spec.estimator.sweep} ({values}) with every seed. Cells are compared at the best of "
        f"these, by their mean {spec.metric} on the validation split. Nothing is claimed about values between these, which are "
        f"{spacing(rates)} apart."
    )


def _plots(curves: Sequence[RateCurve], spec: ComparisonSpec) -> list[Figure]:
    limits = curve_limits(curves, direction=spec.direction)
    groups = [curves[i : i + MAX_CELLS] for i in range(0, len(curves), MAX_CELLS)]
    note = f"{better(spec.direction)}; ring: best; ×: diverged"
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
    """Return a table with one row per cell: the best value tried, the metric there, the difference, and the sensitivity."""
    has_differences = any(cell.difference for cell in cells)
    has_diverged = any(cell.curve.runs.diverged for cell in cells if cell.curve)
    columns = [Column("cell", is_text=True), Column(f"best {spec.estimator.sweep}"), Column(spec.metric)]
    columns += [
        *([Column("difference")] if has_differences else []),
        Column("sensitivity"),
        *([Column("diverged at")] if has_diverged else []),
    ]
    rows = []
    for cell in cells:
        if curve := cell.curve:
            texts = [cell.name, "" if curve.best is None else f"{curve.best:.4g}", format_interval(cell.value)]
            texts += [cell.difference.format() if cell.difference else ""] if has_differences else []
            texts.append(_sensitivity(curve))
            diverged = ", ".join(f"{rate:.4g} ({count(n, 'run')})" for rate, n in sorted(curve.runs.diverged.items()))
            texts += [diverged] if has_diverged else []
            rows.append(TableRow(texts, colors[cell.name], "" if curve.values else "missing"))
    return Table(columns, rows)


def _sensitivity(curve: LearningRateCurve) -> str:
    bound = "at least " if curve.sensitivity_is_bound and curve.sensitivity else ""
    return f"{bound}{format_interval(curve.sensitivity)}"


def _notes(curves: Sequence[LearningRateCurve]) -> Iterable[str]:
    if any(curve.sensitivity_is_bound for curve in curves):
        yield (
            "The loss of a diverged run counts as the largest mean loss that any cell completed with; the sensitivity of its "
            "cell is therefore a lower bound."
        )
    yield "Columns and what has no verdict: docs/studies/learning-rate.md."


class SweepAnalysis(Analysis[dict[str, LearningRateCurve]]):
    """The curves over a swept hyperparameter, their best values, and cells without a value."""

    def estimate(self, results: Results) -> dict[str, LearningRateCurve] | None:
        """Return cell -> curve, of the cells with a run that has ended."""
        return {cell.name: cell.curve for cell in results.cells if cell.curve} or None

    def lines(self, estimate: dict[str, LearningRateCurve], results: Results) -> Iterator[str]:
        """Yield a line for each cell or difference without a value or verdict."""
        for warning in sweep_warnings(results.cells, results.spec.estimator.sweep):
            yield f"note: {warning}"

    def section(self, estimate: dict[str, LearningRateCurve], results: Results) -> PageSection:
        """Return the section with the curves and the best values."""
        spec, curves = results.spec, list(estimate.values())
        return PageSection(
            hyperparameter_name(spec.estimator.sweep).capitalize(),
            [describe_sweep(curves, spec)],
            [f"{warning}." for warning in sweep_warnings(results.cells, spec.estimator.sweep)],
            _plots([RateCurve(name, results.colors[name], curve) for name, curve in estimate.items()], spec),
            _table(results.cells, spec, results.colors),
            list(_notes(curves)),
        )
