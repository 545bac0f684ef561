"""Curves of a metric over a swept learning rate, and the optimum of each cell.

A verdict at one learning rate depends on the luck with which that rate was chosen for each cell. In a study with ``sweep``,
every cell is trained at the same learning rates with the same seeds, and cells are compared at the optima of their curves.
The curves of all cells have one shape in log10 of the rate (`attnlab.stats.shared_curve`); each seed contributes one value to
a cell's optimum, so that the optima are compared by the same paired tests as other values. The fit uses the metric on the
test split, which each run reads once; the best rate tried, around which it is centered, is chosen on the validation split.

A cell has no fitted optimum, and therefore no verdict, if its best rate is the smallest or largest tried, or if the curve
does not fit. A rate at which a run of the cell diverged is worse than any other: it bounds the optimum and is not fitted.
A cell with the same metric at every rate, such as a control at chance level, is compared by that metric without a fit.

The *learning-rate sensitivity* of a cell is the mean over the swept range, uniform in log10 of the rate, of its loss minus
the loss at its optimum, after Wortsman et al. (2023). They cap losses at that of the untrained model. Here the loss of a
diverged run counts as the largest mean loss that any cell of the table completed with, so the sensitivity of a cell with
diverged runs is a lower bound.

References:
    Wortsman, M. et al. (2023). Small-scale proxies for large-scale Transformer training instabilities. arXiv:2309.14322.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from attnlab._util.run_state import RunState
from attnlab.stats import paired
from attnlab.stats.records import finite, is_infinite
from attnlab.stats.shared_curve import CellLosses, FittedOptimum, SharedCurve, fit_shared_curve
from attnlab.stats.sweep import PHASE, best_value, mean_scores

if TYPE_CHECKING:
    import numpy

WINDOW = 5  # rates that a cell's curve is fitted to, around its best; curves are polynomials only near their minimum

SeedValues = Mapping[int, float]


class CurveProblem(StrEnum):
    """The reason why a cell has no fitted optimum."""

    SMALLEST_TRIED = "the best value is the smallest tried"
    LARGEST_TRIED = "the best value is the largest tried"
    TOO_FEW_VALUES = "too few values completed"
    INCOMPLETE_SEEDS = "no seed completed at all values"
    NO_MINIMUM = "the curve has no minimum among the values that completed"
    MISFIT = "the curve does not fit"


@dataclass(frozen=True)
class SweptRuns:
    """The runs of one cell.

    Attributes:
        values: Rate -> seed -> metric of the completed runs.
        scores: Rate -> mean score on the validation split (`attnlab.stats.sweep.mean_scores`), which decides on the best.
        diverged: Rate -> number of diverged runs.
    """

    values: Mapping[float, SeedValues]
    scores: Mapping[float, float]
    diverged: Mapping[float, int] = field(default_factory=dict)

    @property
    def tried(self) -> list[float]:
        """Rates with a completed or diverged run, ascending."""
        return sorted({*self.values, *self.diverged})

    @property
    def usable(self) -> list[float]:
        """Rates at which runs completed and none diverged, ascending."""
        return sorted(self.values.keys() - self.diverged.keys())


@dataclass(frozen=True)
class LearningRateCurve:
    """The curve of one cell over the swept hyperparameter.

    Attributes:
        runs: The runs.
        best: Best rate tried, on the validation split; None if fewer than two completed.
        problem: Reason why there is no fitted optimum, else None.
        fitted: Rates that the curve is fitted to.
        optimum: log10 of the optimal rate, with its interval over seeds; None if all rates are equally good.
        values: Seed -> its contribution to the metric at the optimum, whose mean is the fitted metric at the optimum.
        shape: Coefficients of the second and higher powers of log10(rate) - log10(optimum), in the metric's unit.
        fit_p: P-value of the test for lack of fit; None if it cannot be tested.
        shared_with: Number of cells whose curves have this shape, this one included.
        sensitivity: Learning-rate sensitivity, with its interval over seeds.
        sensitivity_is_bound: Runs diverged, so that `sensitivity` is a lower bound.
    """

    runs: SweptRuns
    best: float | None = None
    problem: CurveProblem | None = None
    fitted: tuple[float, ...] = ()
    optimum: paired.Interval | None = None
    values: SeedValues = field(default_factory=dict)
    shape: tuple[float, ...] = ()
    fit_p: float | None = None
    shared_with: int = 0
    sensitivity: paired.Interval | None = None
    sensitivity_is_bound: bool = False

    @property
    def is_flat(self) -> bool:
        """True for a cell that has the same metric at every rate, in each seed."""
        return bool(self.values) and self.optimum is None

    def at(self, rate: float) -> float:
        """Return the fitted metric at a rate."""
        assert self.optimum is not None
        distance = math.log10(rate) - self.optimum.mean
        rise = sum(coefficient * distance**power for power, coefficient in enumerate(self.shape, start=2))
        return math.fsum(self.values.values()) / len(self.values) + rise


def collect_runs(records: Sequence[Mapping[str, Any]], *, path: str, metric: str, direction: str) -> SweptRuns:
    """Collect the runs of one cell.

    Args:
        records: Runs as `attnlab.load_runs` returns them; those that are not part of a sweep are ignored.
        path: Dotted path of the swept hyperparameter.
        metric: Name of the metric.
        direction: "min" where smaller values of the metric are better, else "max".
    """
    values: dict[float, dict[int, float]] = {}
    diverged: dict[float, int] = {}
    for record in records:
        params = record.get("params")
        if record.get("phase") != PHASE or not isinstance(params, Mapping) or path not in params:
            continue
        rate, seed = float(params[path]), int(record["seed"])
        value = finite(record.get(metric))
        if record["state"] == RunState.DIVERGED or is_infinite(record.get(metric)):
            diverged[rate] = diverged.get(rate, 0) + 1
        elif record["state"] == RunState.COMPLETED and value is not None:
            values.setdefault(rate, {})[seed] = value
    scores = mean_scores(records, path=path, metric=metric, direction=direction)
    return SweptRuns(values, next(iter(scores.values()), {}), diverged)


def fit_curves(cells: Mapping[str, SweptRuns], *, direction: str) -> dict[str, LearningRateCurve]:
    """Fit curves of one shape to several cells.

    A cell whose values the common shape misses is left out of the fit, the worst first, until the curve fits the others.

    Args:
        cells: Cell -> its runs. Cells without a completed run have no curve.
        direction: "min" where smaller values of the metric are better, else "max".
    """
    sign = 1.0 if direction == "min" else -1.0
    curves = {name: _without_fit(runs, direction) for name, runs in cells.items() if runs.tried}
    names = [name for name, curve in curves.items() if curve.problem is None and not curve.is_flat]
    while names:
        losses = [_losses(curves[name], sign) for name in names]
        many = max(len(cell.positions) for cell in losses) > 2
        fit = fit_shared_curve(losses) if many else None
        if fit is None:
            problem = CurveProblem.NO_MINIMUM if many else CurveProblem.TOO_FEW_VALUES
            curves |= {name: replace(curves[name], problem=problem) for name in names}
            break
        if fit.p is None or fit.p >= paired.LEVEL:
            fitted = zip(names, losses, fit.optima, strict=True)
            curves |= {name: _with_fit(curves[name], cell, optimum, fit, sign) for name, cell, optimum in fitted}
            break
        misfits = [optimum.misfit for optimum in fit.optima]
        worst = names[misfits.index(max(misfits))]
        for name in [worst] if len(names) > 2 else list(names):
            curves[name] = replace(curves[name], problem=CurveProblem.MISFIT, fit_p=fit.p)
            names.remove(name)
    return _with_sensitivities(curves, sign)


def _without_fit(runs: SweptRuns, direction: str) -> LearningRateCurve:
    """Return a cell's best rate and the rates to fit, or the problem that rules out a fit."""
    usable = runs.usable
    if len(usable) < 2:
        return LearningRateCurve(runs, problem=CurveProblem.TOO_FEW_VALUES)
    best = best_value("", runs.scores, direction=direction)
    start = min(max(bisect_left(usable, best.value) - WINDOW // 2, 0), max(len(usable) - WINDOW, 0))
    curve = LearningRateCurve(runs, best.value, fitted=tuple(usable[start : start + WINDOW]))
    if flat := _flat_values(runs):
        return replace(curve, values=flat)
    if best.edge:
        return replace(curve, problem=CurveProblem.SMALLEST_TRIED if best.is_smallest else CurveProblem.LARGEST_TRIED)
    if not _common_seeds(runs.values, curve.fitted):
        return replace(curve, problem=CurveProblem.INCOMPLETE_SEEDS)
    return curve


def _flat_values(runs: SweptRuns) -> SeedValues:
    """Return seed -> metric if each seed has one metric, to within the noise, at all rates tried; else an empty mapping."""
    seeds = _common_seeds(runs.values, runs.usable)
    first = {seed: runs.values[runs.usable[0]][seed] for seed in seeds}
    by_seed = [[runs.values[rate][seed] for rate in runs.usable] for seed in seeds]
    complete = all(runs.values[rate].keys() == first.keys() for rate in runs.usable)
    is_flat = not runs.diverged and complete and all(map(paired.is_constant, by_seed))
    return first if is_flat else {}


def _common_seeds(values: Mapping[float, SeedValues], rates: Sequence[float]) -> list[int]:
    """Return the seeds that have a value at each of the rates."""
    return sorted(set.intersection(*(set(values[rate]) for rate in rates)))


def _losses(curve: LearningRateCurve, sign: float) -> CellLosses:
    import numpy

    seeds = _common_seeds(curve.runs.values, curve.fitted)
    table = [[sign * curve.runs.values[rate][seed] for seed in seeds] for rate in curve.fitted]
    return CellLosses(numpy.log10(curve.fitted), numpy.array(table), tuple(seeds))


def _with_fit(
    curve: LearningRateCurve, cell: CellLosses, optimum: FittedOptimum, fit: SharedCurve, sign: float
) -> LearningRateCurve:
    curve = replace(curve, fit_p=fit.p, shared_with=len(fit.optima))
    if not optimum.inside:
        return replace(curve, problem=CurveProblem.NO_MINIMUM)
    return replace(
        curve,
        optimum=paired.interval(optimum.seed_positions),
        values={seed: sign * loss for seed, loss in zip(cell.seeds, optimum.seed_losses, strict=True)},
        shape=tuple(sign * coefficient for coefficient in fit.shape),
    )


def _with_sensitivities(curves: Mapping[str, LearningRateCurve], sign: float) -> dict[str, LearningRateCurve]:
    """Fill in the sensitivities over the rates that any of the cells tried."""
    import numpy

    rates = sorted({rate for curve in curves.values() for rate in curve.runs.tried})
    means = [sign * math.fsum(seeds.values()) / len(seeds) for curve in curves.values() for seeds in curve.runs.values.values()]
    if len(rates) < 2 or not means:
        return dict(curves)
    positions = numpy.log10(rates)
    gaps = numpy.diff(positions)
    weights = (numpy.append(gaps, 0) + numpy.append(0, gaps)) / 2 / gaps.sum()  # of the trapezoidal rule
    filled = {}
    for name, curve in curves.items():
        interval = _sensitivity(curve, rates, weights, cap=max(means), sign=sign)
        filled[name] = replace(curve, sensitivity=interval, sensitivity_is_bound=bool(interval and curve.runs.diverged))
    return filled


def _sensitivity(
    curve: LearningRateCurve, rates: Sequence[float], weights: numpy.ndarray, *, cap: float, sign: float
) -> paired.Interval | None:
    """Return the sensitivity over seeds; None where a rate has neither completed nor diverged."""
    runs = curve.runs
    usable = runs.usable
    if set(rates) - set(runs.tried) or not usable:
        return None
    seeds = _common_seeds(runs.values, usable)
    if curve.values:
        seeds = [seed for seed in seeds if seed in curve.values]
    optima = curve.values or runs.values.get(curve.best or 0.0, {})
    excess = []
    for seed in seeds if optima else ():
        losses = [cap if rate in runs.diverged else min(cap, sign * runs.values[rate][seed]) for rate in rates]
        excess.append(float(weights @ losses) - sign * optima[seed])
    return paired.interval(excess) if excess else None


def hyperparameter_name(path: str) -> str:
    """Return the name of a swept hyperparameter in prose: "learning rate" for `train.lr`."""
    leaf = path.rpartition(".")[2]
    return "learning rate" if leaf == "lr" else leaf.replace("_", " ")


def describe_problem(curve: LearningRateCurve, path: str) -> str:
    """Return the reason why a cell has no fitted optimum as a clause; "" if it has one."""
    name = hyperparameter_name(path)
    match curve.problem:
        case CurveProblem.SMALLEST_TRIED:
            return f"its best {name}, {curve.best:.4g}, is the smallest tried"
        case CurveProblem.LARGEST_TRIED:
            return f"its best {name}, {curve.best:.4g}, is the largest tried"
        case CurveProblem.TOO_FEW_VALUES if curve.runs.diverged:
            return f"runs diverged at {len(curve.runs.diverged)} of its {len(curve.runs.tried)} {name}s"
        case CurveProblem.TOO_FEW_VALUES:
            return f"too few of its {name}s completed to fit a curve"
        case CurveProblem.INCOMPLETE_SEEDS:
            return f"no seed has completed at each {name}"
        case CurveProblem.NO_MINIMUM:
            return f"its fitted curve has no minimum between the {name}s that completed"
        case CurveProblem.MISFIT:
            return "the fitted curve misses its values by more than the seeds scatter"
        case None:
            return ""
