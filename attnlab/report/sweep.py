"""The report's section on a swept hyperparameter: curves, optima, and cells without one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attnlab.report.analysis import Analysis, Results
from attnlab.report.plots.rate_curves import RateCurve, curve_limits, rate_plot
from attnlab.report.section import Figure, PageSection
from attnlab.report.table import Column, Table, TableRow
from attnlab.report.wording import better, count, format_interval, format_p_value
from attnlab.stats.compare import CellSummary, ComparisonSpec
from attnlab.stats.lr_curve import WINDOW, CurveProblem, LearningRateCurve, describe_problem, hyperparameter_name
from attnlab.stats.paired import LEVEL

MAX_CELLS = 6  # cells in one plot


def sweep_warnings(cells: Sequence[CellSummary], sweep: str) -> list[str]:
    """Return one clause for each cell without a fitted optimum: the reason, and what to change."""
    curves = [(cell.name, cell.curve) for cell in cells if cell.curve and cell.curve.problem]
    return [f"{name}: {describe_problem(curve, sweep)}{_advice(curve)}" for name, curve in curves]


def _advice(curve: LearningRateCurve) -> str:
    """Return the change of the study with which a cell may have a fitted optimum; "" if there is none."""
    match curve.problem:
        case CurveProblem.SMALLEST_TRIED:
            return "; add smaller values"
        case CurveProblem.LARGEST_TRIED:
            return "; add larger values"
        case CurveProblem.MISFIT:
            return f" (lack of fit, p {format_p_value(curve.fit_p, equals=True)}); add values closer to its best"
        case CurveProblem.TOO_FEW_VALUES if curve.runs.diverged:
            return "; add values at which no run diverges"
        case CurveProblem.NO_MINIMUM | CurveProblem.TOO_FEW_VALUES:
            return "; add values closer to its best"
        case _:
            return ""


def describe_sweep(curves: Sequence[LearningRateCurve], spec: ComparisonSpec) -> str:
    """Return a paragraph on how the curves are fitted and compared."""
    rates = sorted({rate for curve in curves for rate in curve.runs.tried})
    values = ", ".join(f"{rate:.4g}" for rate in rates)
    sweep = spec.estimator.sweep
    name = hyperparameter_name(sweep)
    return (
        f"Every cell was trained at each {sweep} ({values}) with every seed. A curve over log10 {sweep} is fitted to "
        f"its {spec.metric} on the test split, and cells are compared at the optima of their curves. {_describe_shape(curves)} "
        "A seed's contribution to an optimum is the first-order change of the optimum with the seed's runs; differences, "
        "intervals and p-values are those of the contributions, paired by seed, and include the uncertainty of the shape and "
        f"of the optimal {name}. The best {name} tried, around which a curve is fitted, is chosen on the validation split."
    )


def _describe_shape(curves: Sequence[LearningRateCurve]) -> str:
    fits = Counter((len(curve.shape) + 1, curve.shared_with, curve.fit_p) for curve in curves if curve.optimum)
    if not fits:
        return "No curve could be fitted."
    texts = []
    for degree, cells, p in sorted(fits, key=str):
        curve = "a parabola" if degree == 2 else f"a polynomial of degree {degree}"
        shared = "with one curvature for" if degree == 2 else "of one shape for"
        alike = fits[degree, cells, p]
        of = f"{shared} {cells} cells" if cells > 1 else f"for each of {alike} cells" if alike > 1 else "for 1 cell"
        tested = "its fit cannot be tested" if p is None else f"lack of fit: p {format_p_value(p, equals=True)}"
        texts.append(f"{curve} {of} ({tested})")
    return f"The curve is {'; '.join(texts)}, over at most {WINDOW} values around the best of each cell."


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
    """Return a table with one row per cell: the best value tried, the optimum with its interval, and the sensitivity."""
    has_diverged = any(cell.curve.runs.diverged for cell in cells if cell.curve)
    sweep = spec.estimator.sweep
    columns = [Column("cell", is_text=True), Column(f"best {sweep} tried"), Column(f"optimal {sweep}")]
    columns += [
        Column(f"{spec.metric} at the optimum"),
        Column("sensitivity"),
        *([Column("diverged at")] if has_diverged else []),
    ]
    rows = []
    for cell in cells:
        if curve := cell.curve:
            best = "" if curve.best is None else f"{curve.best:.4g}"
            texts = [cell.name, best, format_optimum(curve), format_interval(cell.value), _sensitivity(curve)]
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
    sweep = spec.estimator.sweep
    name = hyperparameter_name(sweep)
    yield (
        f"Intervals of the optimal {name} are 95 % t-intervals over seeds of its logarithm. Sensitivity: the mean of the loss "
        f"(for a metric to be maximized, its negative) over the swept range, uniform in log10 {sweep}, minus the loss at "
        "the optimum, or at the best value tried where there is no optimum, after Wortsman et al. (2023, arXiv:2309.14322)."
    )
    if any(curve.sensitivity_is_bound for curve in curves):
        yield (
            "The loss of a diverged run counts as the largest mean loss that any cell completed with; the sensitivity of its "
            "cell is therefore a lower bound. A value at which a run diverged is worse than any other and is not fitted."
        )
    if any(curve.optimum and len(curve.fitted) < 4 for curve in curves):
        yield (
            "Three values determine a parabola, which cannot show that a curve is lopsided. If it is, and the optima of two "
            "cells lie apart, false verdicts are more frequent than promised; five values allow for it."
        )
    if any(curve.is_flat for curve in curves):
        yield f"Any: the cell has the same {spec.metric} at every {name} tried, and is compared by it without a fit."
    yield (
        f"A cell has no verdict if its best {name} is the smallest or largest tried, or if the test for lack of fit rejects "
        f"its curve at the {100 * LEVEL:.0f} % level."
    )


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
