"""A swept learning rate: the best value tried in each cell, and the optimum of a curve through all of them.

The best value tried decides on extensions of the sweep. A run that diverged is worse than any other. A value counts as not
tried when all its runs failed or ran out of memory.

A verdict at one learning rate depends on the luck with which that rate was chosen for each cell. In a study with ``sweep``,
every cell is trained at the same learning rates with the same seeds, and cells are compared at the optima of their curves.

The curve of a cell is the polynomial in log10 of the rate that passes through its means over seeds at the `WINDOW` rates
around its best one. The cell's optimum is the lowest point of the polynomial. Cells share no shape: those with a sharper or a
more lopsided curve would otherwise seem better or worse than they are. A wall next to the optimum bends the polynomial below
the means: with 7 seeds, 73 to 85 % of simulated pairs of equal cells were called different. A verdict therefore needs a second
reading, the paired tests at the best rates tried, which must give the same verdict (2 to 5 % in the same simulations).
A polynomial that only comes close to the means has less variance, but errs by an amount that depends on the shape and on the
place of the optimum between the rates, and this error does not shrink with more seeds (``reports/validity``). A seed
contributes the value of its polynomial, through its losses, at the cell's optimum; the mean of these values is the lowest
point. Optima are therefore compared by the same paired tests as other values. The fit uses the metric on the test split,
which each run reads once; the best rate tried, around which it is centered, is chosen on the validation split.

A cell has no fitted optimum, and therefore no verdict, if its best rate is the smallest or largest tried, or if fewer than
`MIN_FITTED` rates completed: three cannot show that a curve is lopsided. Nor has it one if a gap between these rates is more
than `MAX_GAP_RATIO` times as wide as another. A rate at which a run of the cell diverged is worse
than any other: it bounds the optimum and is not fitted. A cell with the same metric at every rate, for example a control at
chance level, is compared by that metric without a fit.

The *learning-rate sensitivity* of a cell is the mean over the swept range, uniform in log10 of the rate, of its loss minus
the loss at its optimum, after Wortsman et al. (2023). They cap losses at the untrained model's loss. Here the loss of a
diverged run counts as the largest mean loss that any cell of the table completed with, so the sensitivity of a cell with
diverged runs is a lower bound.

References:
    Wortsman, M. et al. (2023). Small-scale proxies for large-scale Transformer training instabilities. arXiv:2309.14322.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

from attnlab._util.run_state import RunState
from attnlab.stats import paired
from attnlab.stats.records import RunRow, finite, is_infinite

if TYPE_CHECKING:
    import numpy

PHASE = "sweep"  # of the runs of a sweep
MIN_FITTED = 4  # values without a diverged run that a curve needs; the parabola through three cannot be lopsided

WINDOW = 5  # rates that a curve is fitted to: polynomials through more rates oscillate between them

MAX_GAP_RATIO = 4.0  # a polynomial through values close to each other swings far off in a wide gap next to them
NEGLIGIBLE = 1e-6  # relative size of a coefficient, and imaginary part of a root, that are nearly zero

SeedValues = Mapping[int, float]


@dataclass(frozen=True)
class BestValue:
    """The best value of a sweep in one cell, by the mean over seeds of the metric on `valid`.

    Attributes:
        cell: Name of the cell.
        value: The best value; of several equally good ones, one that is neither the smallest nor the largest if there is one.
        score: Mean of the metric at the best value; infinite if all runs diverged.
        is_smallest, is_largest: The best value is the smallest or largest tried. If all runs diverged, it is the smallest.
        usable: Number of values at which no run diverged.
    """

    cell: str
    value: float
    score: float
    is_smallest: bool
    is_largest: bool
    usable: int

    @property
    def edge(self) -> str:
        """The words "smallest" or "largest"; "" for a best value between others."""
        return "smallest" if self.is_smallest else "largest" if self.is_largest else ""


def best_values(runs: Iterable[RunRow], *, path: str, metric: str, direction: str) -> list[BestValue]:
    """Return the best value of each cell with a completed or diverged run, in the order in which cells first appear.

    Args:
        runs: Rows with `cell`, `state`, `params` and the metrics, as `attnlab.load_runs` returns them.
        path: The swept field.
        metric: The metric that the study compares; its value on `valid` decides.
        direction: `min` or `max`.
    """
    means = mean_scores(runs, path=path, metric=metric, direction=direction)
    return [best_value(cell, of_cell, direction=direction) for cell, of_cell in means.items()]


def mean_scores(runs: Iterable[RunRow], *, path: str, metric: str, direction: str) -> dict[str, dict[float, float]]:
    """Return the mean score on `valid` of each cell at each value; takes the arguments of `best_values`.

    Smaller scores are better: with direction "max" they are the negative metric. The score is infinite where a run
    diverged.
    """
    sign = 1 if direction == "min" else -1
    scores: dict[str, dict[float, list[float]]] = {}
    for run in runs:
        if run.get("phase") == "sweep" and run["state"] in (RunState.COMPLETED, RunState.DIVERGED) and path in run["params"]:
            score = finite(run.get(f"valid_{metric}"))
            usable = run["state"] == RunState.COMPLETED
            of_cell = scores.setdefault(str(run["cell"]), {})
            of_cell.setdefault(float(run["params"][path]), []).append(
                sign * score if usable and score is not None else math.inf
            )
    return {cell: {value: fmean(values) for value, values in of_cell.items()} for cell, of_cell in scores.items()}


def best_value(cell: str, means: Mapping[float, float], *, direction: str) -> BestValue:
    """Return the best of the values, for each of which `means` has a score as `mean_scores` returns it."""
    sign = 1 if direction == "min" else -1
    smallest, largest, score = min(means), max(means), min(means.values())
    tied = sorted(v for v, mean in means.items() if mean == score or abs(mean - score) <= paired.noise(score, mean) < math.inf)
    inner = [value for value in tied if smallest < value < largest] if math.isfinite(score) else []
    value = inner[0] if inner else tied[0]
    usable = sum(map(math.isfinite, means.values()))
    return BestValue(cell, value, sign * score, value == smallest, value == largest and value != smallest, usable)


def swept_path(records: Iterable[RunRow]) -> str | None:
    """Return the dotted path of the hyperparameter that the runs sweep; None when they are not runs of a sweep."""
    return next((path for record in records if record.get("phase") == PHASE for path in record["params"]), None)


class CurveProblem(StrEnum):
    """The reason why a cell has no fitted optimum."""

    SMALLEST_TRIED = "the best value is the smallest tried"
    LARGEST_TRIED = "the best value is the largest tried"
    TOO_FEW_VALUES = "too few values completed"
    UNEVEN = "the values are too unevenly spaced"
    INCOMPLETE_SEEDS = "no seed completed at all values"
    NO_MINIMUM = "the curve has no minimum among the values that completed"


@dataclass(frozen=True)
class SweptRuns:
    """The runs of one cell.

    Attributes:
        values: Rate -> seed -> metric of the completed runs.
        scores: Rate -> mean score on the validation split (`mean_scores`), which decides on the best.
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
        best: Best rate tried, on the validation split; None when fewer than two completed.
        problem: Reason why there is no fitted optimum, else None.
        fitted: Rates that the curve is fitted to.
        optimum: log10 of the optimal rate, with its interval over seeds; None when all rates are equally good.
        values: Seed -> its contribution to the metric at the optimum; their mean is the fitted metric at the optimum.
        shape: Coefficients of the second and higher powers of log10(rate) - log10(optimum), in the metric's unit.
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
    sensitivity: paired.Interval | None = None
    sensitivity_is_bound: bool = False

    @property
    def is_flat(self) -> bool:
        """True for a cell that has the same metric at every rate, in each seed."""
        return bool(self.values) and self.optimum is None

    @property
    def best_values(self) -> SeedValues:
        """Seed -> metric at the best rate tried."""
        return self.runs.values.get(self.best, {}) if self.best is not None else {}

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
        direction: "min" when smaller values of the metric are better, else "max".
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
    """Fit a curve to each of several cells.

    Args:
        cells: Cell -> its runs. Cells without a completed run have no curve.
        direction: "min" when smaller values of the metric are better, else "max".
    """
    sign = 1.0 if direction == "min" else -1.0
    curves = {name: _without_fit(runs, direction) for name, runs in cells.items() if runs.tried}
    fitted = {name: curve if curve.problem or curve.is_flat else _fit(curve, sign) for name, curve in curves.items()}
    return _with_sensitivities(fitted, sign)


def difference_at_best(
    cell: LearningRateCurve, baseline: LearningRateCurve, *, margin: float | None = None
) -> paired.Difference | None:
    """Compare two cells at their best rates tried, alone; None when the two share no seed there."""
    return paired.correct([paired.difference(cell.best_values, baseline.best_values, margin=margin)])[0]


def readings_part(difference: paired.Difference, cell: LearningRateCurve, baseline: LearningRateCurve) -> bool:
    """Return True when the difference at the optima, tested alone, has a verdict that the best rates tried do not show."""
    (alone,) = paired.correct([difference])
    tried = difference_at_best(cell, baseline, margin=difference.margin)
    if alone is None or not alone.conclusion or tried is None:
        return bool(alone and alone.conclusion)
    return not tried.within_margin if alone.conclusion == "equivalent" else tried.conclusion != alone.conclusion


def _without_fit(runs: SweptRuns, direction: str) -> LearningRateCurve:
    """Return a cell's best rate and the rates to fit, or the problem that rules out a fit."""
    usable = runs.usable
    if len(usable) < 2:
        return LearningRateCurve(runs, problem=CurveProblem.TOO_FEW_VALUES)
    best = best_value("", runs.scores, direction=direction)
    curve = LearningRateCurve(runs, best.value, fitted=_window(usable, best.value))
    if flat := _flat_values(runs):
        return replace(curve, values=flat)
    if best.edge:
        return replace(curve, problem=CurveProblem.SMALLEST_TRIED if best.is_smallest else CurveProblem.LARGEST_TRIED)
    if len(curve.fitted) < MIN_FITTED:
        return replace(curve, problem=CurveProblem.TOO_FEW_VALUES)
    if not _is_even(curve.fitted):
        return replace(curve, problem=CurveProblem.UNEVEN)
    if not _common_seeds(runs.values, curve.fitted):
        return replace(curve, problem=CurveProblem.INCOMPLETE_SEEDS)
    return curve


def _window(usable: Sequence[float], best: float) -> tuple[float, ...]:
    """Return the rates that a curve is fitted to: without an outer one where the others alone are evenly spaced."""
    start = min(max(bisect_left(usable, best) - WINDOW // 2, 0), max(len(usable) - WINDOW, 0))
    rates = tuple(usable[start : start + WINDOW])
    parts = [part for part in (rates, rates[1:], rates[:-1]) if len(part) >= MIN_FITTED and part[0] < best < part[-1]]
    return next(filter(_is_even, parts), rates)


def _is_even(rates: Sequence[float]) -> bool:
    """Return True when no gap between neighbors, in logarithms, is more than `MAX_GAP_RATIO` times as wide as another."""
    gaps = [math.log(high / low) for low, high in pairwise(rates)]
    return max(gaps) <= MAX_GAP_RATIO * min(gaps)


def _flat_values(runs: SweptRuns) -> SeedValues:
    """Return seed -> metric if each seed has one metric, to within the noise, at all rates tried; else an empty mapping."""
    seeds = _common_seeds(runs.values, runs.usable)
    first = {seed: runs.values[runs.usable[0]][seed] for seed in seeds}
    by_seed = [[runs.values[rate][seed] for rate in runs.usable] for seed in seeds]
    complete = all(runs.values[rate].keys() == first.keys() for rate in runs.usable)
    is_flat = not runs.diverged and complete and all(paired.is_constant(scores, relative=paired.ROUNDING) for scores in by_seed)
    return first if is_flat else {}


def _common_seeds(values: Mapping[float, SeedValues], rates: Sequence[float]) -> list[int]:
    """Return the seeds that have a value at each of the rates."""
    return sorted(set.intersection(*(set(values[rate]) for rate in rates)))


def _fit(curve: LearningRateCurve, sign: float) -> LearningRateCurve:
    """Fit the polynomial through a cell's means, and read off its lowest point inside the fitted rates."""
    from numpy import array, log10
    from numpy.polynomial import polynomial

    seeds = _common_seeds(curve.runs.values, curve.fitted)
    losses = sign * array([[curve.runs.values[rate][seed] for seed in seeds] for rate in curve.fitted])
    means, offset = losses.mean(axis=1), losses.min()
    positions = log10(curve.fitted)
    middle, scale = (positions[0] + positions[-1]) / 2, (positions[-1] - positions[0]) / 2
    unit = (positions - middle) / scale
    of_seeds = polynomial.polyfit(unit, losses - offset, len(unit) - 1)  # coefficients x seeds
    of_means = of_seeds.mean(axis=1)
    lowest = _lowest_inside(of_means)
    ends = (means - offset)[[0, -1]].min()
    if lowest is None or polynomial.polyval(lowest, of_means) >= ends - paired.noise(offset):
        return replace(curve, problem=CurveProblem.NO_MINIMUM)
    slopes = polynomial.polyval(lowest, polynomial.polyder(of_seeds))
    shifts = -slopes / polynomial.polyval(lowest, polynomial.polyder(of_means, 2))  # of the optimum, to first order
    values = sign * (offset + polynomial.polyval(lowest, of_seeds))
    shape = polynomial.polyfit(unit - lowest, means - offset, len(unit) - 1)[2:]
    return replace(
        curve,
        optimum=paired.interval([float(middle + scale * (lowest + shift)) for shift in shifts]),
        values=dict(zip(seeds, values.tolist(), strict=True)),
        shape=tuple(float(sign * coefficient / scale**power) for power, coefficient in enumerate(shape, start=2)),
    )


def _lowest_inside(coefficients: numpy.ndarray) -> float | None:
    """Return the position of the lowest minimum of a polynomial between -1 and 1; None when it has none."""
    from numpy import abs as absolute
    from numpy.polynomial import polynomial

    slope, bend = polynomial.polyder(coefficients), polynomial.polyder(coefficients, 2)
    # A leading coefficient of nearly zero has a root far away, next to which the others lose their digits.
    roots = polynomial.polyroots(polynomial.polytrim(slope, NEGLIGIBLE * absolute(slope).max()))
    minima = [x.real for x in roots if abs(x.imag) < NEGLIGIBLE and polynomial.polyval(x.real, bend) > 0]
    for _ in range(2):  # Newton's method, because the trimmed polynomial has slightly different roots
        minima = [x - polynomial.polyval(x, slope) / polynomial.polyval(x, bend) for x in minima]
    inside = [float(x) for x in minima if -1 < x < 1]
    return min(inside, key=lambda x: polynomial.polyval(x, coefficients), default=None)


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
    """Return the sensitivity over seeds; None when a rate has neither completed nor diverged."""
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
            return f"a curve needs {MIN_FITTED} {name}s, and {len(curve.runs.usable)} completed"
        case CurveProblem.UNEVEN:
            return f"its {name}s around {curve.best:.4g} are too unevenly spaced for a curve"
        case CurveProblem.INCOMPLETE_SEEDS:
            return f"no seed has completed at each {name}"
        case CurveProblem.NO_MINIMUM:
            return f"its fitted curve has no minimum between the {name}s that completed"
        case None:
            return ""
