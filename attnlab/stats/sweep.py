"""A swept learning rate: every cell is trained at the same values, and compared at the best of them.

A verdict at one learning rate depends on the luck with which that rate was chosen for each cell. In a study with ``sweep``,
every cell is trained at the same learning rates with the same seeds. The mean over seeds of the metric on the validation split
decides which of them is best for a cell, and cells are compared there, on the test split, which each run reads once. Nothing is
assumed about the losses between the rates, and nothing is claimed about them: a difference is one between the best of the rates
that were tried.

The best of several noisy means is too good on average, and more so in a cell with several nearly equal rates: with 10 seeds,
9 % of simulated cells with 5 equally good rates were called different from an equal cell with one. A verdict therefore needs a
second reading, which must give the same: each seed at the rate that the *other* seeds choose. Where the best rate is clear,
both readings are one. The second alone errs in up to 23 %, because seeds that choose for each other depend on each other. With
both, at most 6 % of verdicts are false, whatever the shape of the losses over the rate (``reports/validity``).

A rate at which a run of the cell diverged is worse than any other. A cell whose best rate is the smallest or largest tried may
be better outside, and has no value: the study adds rates on that side (`attnlab.study.sweep`).

The *learning-rate sensitivity* of a cell is the mean over the swept range, uniform in log10 of the rate, of its loss minus
the loss at its best rate, after Wortsman et al. (2023). They cap losses at the untrained model's loss. Here the loss of a
diverged run counts as the largest mean loss that any cell of the table completed with, so the sensitivity of a cell with
diverged runs is a lower bound.

References:
    Wortsman, M. et al. (2023). Small-scale proxies for large-scale Transformer training instabilities. arXiv:2309.14322.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Any

from attnlab._util.run_state import RunState
from attnlab.stats import paired
from attnlab.stats.records import RunRow, finite, is_infinite

PHASE = "sweep"  # of the runs of a sweep

SeedValues = Mapping[int, float]
Scores = Mapping[float, SeedValues]  # value of the swept field -> seed -> score on `valid`


@dataclass(frozen=True)
class BestValue:
    """The best value of a sweep in one cell, by the mean over seeds of the metric on `valid`.

    Attributes:
        cell: Name of the cell.
        value: The best value; of several equally good ones, one that is neither the smallest nor the largest if there is one.
        score: Mean of the metric at the best value; infinite if all runs diverged.
        is_smallest, is_largest: The best value is the smallest or largest tried. If all runs diverged, it is the smallest.
    """

    cell: str
    value: float
    score: float
    is_smallest: bool
    is_largest: bool

    @property
    def edge(self) -> str:
        """The words "smallest" or "largest"; "" for a best value between others."""
        return "smallest" if self.is_smallest else "largest" if self.is_largest else ""


def best_values(runs: Iterable[RunRow], *, path: str, metric: str, direction: str) -> list[BestValue]:
    """Return the best value of each cell with a completed or diverged run, in the order in which cells first appear.

    Args:
        runs: Rows with `cell`, `seed`, `state`, `params` and the metrics, as `attnlab.load_runs` returns them.
        path: The swept field.
        metric: The metric that the study compares; its value on `valid` decides.
        direction: `min` or `max`.
    """
    scores = validation_scores(runs, path=path, metric=metric, direction=direction)
    return [best_value(cell, of_cell, direction=direction) for cell, of_cell in scores.items()]


def validation_scores(runs: Iterable[RunRow], *, path: str, metric: str, direction: str) -> dict[str, Scores]:
    """Return the scores on `valid` of each cell; takes the arguments of `best_values`.

    Smaller scores are better: with direction "max" they are the negative metric. The score of a diverged run is infinite.
    A value counts as not tried when all its runs failed or ran out of memory.
    """
    sign = 1 if direction == "min" else -1
    scores: dict[str, dict[float, dict[int, float]]] = {}
    for run in runs:
        if run.get("phase") == PHASE and run["state"] in (RunState.COMPLETED, RunState.DIVERGED) and path in run["params"]:
            score = finite(run.get(f"valid_{metric}")) if run["state"] == RunState.COMPLETED else None
            of_cell = scores.setdefault(str(run["cell"]), {})
            of_value = of_cell.setdefault(float(run["params"][path]), {})
            of_value[int(run["seed"])] = math.inf if score is None else sign * score
    return {**scores}


def best_value(cell: str, scores: Scores, *, direction: str) -> BestValue:
    """Return the best value of a cell with these scores."""
    means = {value: fmean(of_value.values()) for value, of_value in scores.items()}
    sign = 1 if direction == "min" else -1
    smallest, largest, score = min(means), max(means), min(means.values())
    tied = sorted(v for v, mean in means.items() if mean == score or abs(mean - score) <= paired.noise(score, mean) < math.inf)
    inner = [value for value in tied if smallest < value < largest] if math.isfinite(score) else []
    value = inner[0] if inner else tied[0]
    return BestValue(cell, value, sign * score, value == smallest, value == largest and value != smallest)


@dataclass(frozen=True)
class SweptRuns:
    """The runs of one cell.

    Attributes:
        values: Rate -> seed -> metric of the completed runs.
        scores: Rate -> seed -> score on the validation split (`validation_scores`), which decides on the best.
        diverged: Rate -> number of diverged runs.
    """

    values: Mapping[float, SeedValues]
    scores: Scores
    diverged: Mapping[float, int] = field(default_factory=dict)

    @property
    def tried(self) -> list[float]:
        """Rates with a completed or diverged run, ascending."""
        return sorted({*self.values, *self.diverged})


@dataclass(frozen=True)
class LearningRateCurve:
    """The results of one cell over the swept hyperparameter.

    Attributes:
        runs: The runs.
        best: Best rate tried, on the validation split; None when runs diverged at every rate.
        edge: "smallest" or "largest" when the best rate is the smallest or largest tried, else "".
        crossed: Seed -> metric at the rate that is best for the other seeds.
        sensitivity: Learning-rate sensitivity, with its interval over seeds.
        sensitivity_is_bound: Runs diverged, so that `sensitivity` is a lower bound.
    """

    runs: SweptRuns
    best: float | None = None
    edge: str = ""
    crossed: SeedValues = field(default_factory=dict)
    sensitivity: paired.Interval | None = None
    sensitivity_is_bound: bool = False

    @property
    def values(self) -> SeedValues:
        """Seed -> metric at the best rate tried; empty unless that lies between others."""
        return self.runs.values.get(self.best, {}) if self.best is not None and not self.edge else {}

    @property
    def means(self) -> dict[float, float]:
        """Rate -> mean metric, ascending, of the rates at which runs completed."""
        return {rate: fmean(self.runs.values[rate].values()) for rate in sorted(self.runs.values)}


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
    scores = validation_scores(records, path=path, metric=metric, direction=direction)
    return SweptRuns(values, next(iter(scores.values()), {}), diverged)


def swept_curves(cells: Mapping[str, SweptRuns], *, direction: str) -> dict[str, LearningRateCurve]:
    """Find the best rate of each of several cells; cells without a completed run have none.

    Args:
        cells: Cell -> its runs.
        direction: "min" when smaller values of the metric are better, else "max".
    """
    sign = 1.0 if direction == "min" else -1.0
    tried = {name: runs for name, runs in cells.items() if runs.tried}
    rates = sorted({rate for runs in tried.values() for rate in runs.tried})
    means = [sign * fmean(seeds.values()) for runs in tried.values() for seeds in runs.values.values()]
    return {name: _curve(runs, direction, rates, max(means, default=0.0)) for name, runs in tried.items()}


def _curve(runs: SweptRuns, direction: str, rates: Sequence[float], cap: float) -> LearningRateCurve:
    """Return the results of a cell in a table with these rates and this largest mean loss."""
    usable = {rate: of_rate for rate, of_rate in runs.scores.items() if rate in runs.values and rate not in runs.diverged}
    if not usable:
        return LearningRateCurve(runs)
    best = best_value("", runs.scores, direction=direction)
    crossed = _crossed(runs, usable, best.value, direction)
    sensitivity = _sensitivity(runs, best.value, rates, cap=cap, sign=1.0 if direction == "min" else -1.0)
    return LearningRateCurve(runs, best.value, best.edge, crossed, sensitivity, bool(sensitivity and runs.diverged))


def _crossed(runs: SweptRuns, usable: Scores, best: float, direction: str) -> SeedValues:
    """Return seed -> metric at the best of the usable rates for the other seeds; for one seed, at its best."""
    values = {}
    for seed in runs.values.get(best, {}):
        others = {rate: {s: score for s, score in of_rate.items() if s != seed} for rate, of_rate in usable.items()}
        of_others = {rate: scores for rate, scores in others.items() if scores}
        chosen = best_value("", of_others, direction=direction).value if of_others else best
        if seed in runs.values[chosen]:
            values[seed] = runs.values[chosen][seed]
    return values


def depends_on_choice(difference: paired.Difference, cell: LearningRateCurve, baseline: LearningRateCurve) -> bool:
    """Return True when the difference at the best rates, tested alone, has a verdict that the second reading does not share.

    In the second reading, each seed is at the rate that the other seeds choose for its cell.
    """
    crossed = paired.difference(cell.crossed, baseline.crossed, margin=difference.margin, looks=difference.looks)
    alone, other = (paired.correct([reading])[0] for reading in (difference, crossed))
    if alone is None or not alone.conclusion or other is None:
        return bool(alone and alone.conclusion)
    return not other.within_margin if alone.conclusion == "equivalent" else other.conclusion != alone.conclusion


def _sensitivity(runs: SweptRuns, best: float, rates: Sequence[float], *, cap: float, sign: float) -> paired.Interval | None:
    """Return the sensitivity over seeds; None when a rate has neither completed nor diverged."""
    completed = [seeds.keys() for rate, seeds in runs.values.items() if rate not in runs.diverged]
    if set(rates) - set(runs.tried) or len(rates) < 2 or best not in runs.values:
        return None
    excess = []
    for seed in sorted(set.intersection(*map(set, completed))):
        losses = [cap if rate in runs.diverged else min(cap, sign * runs.values[rate][seed]) for rate in rates]
        points = [*zip(map(math.log10, rates), losses, strict=True)]
        area = math.fsum((x - at) * (first + second) / 2 for (at, first), (x, second) in pairwise(points))
        excess.append(area / (points[-1][0] - points[0][0]) - sign * runs.values[best][seed])
    return paired.interval(excess) if excess else None


def hyperparameter_name(path: str) -> str:
    """Return the name of a swept hyperparameter in prose: "learning rate" for `train.lr`."""
    leaf = path.rpartition(".")[2]
    return "learning rate" if leaf == "lr" else leaf.replace("_", " ")


def spacing(values: Sequence[float]) -> str:
    """Return the mean ratio of neighbors of ascending values as text: "a factor of 2"."""
    return f"a factor of {(values[-1] / values[0]) ** (1 / max(len(values) - 1, 1)):.2g}"


def describe_problem(curve: LearningRateCurve, path: str) -> str:
    """Return the reason why a cell has no value as a clause; "" if it has one."""
    name = hyperparameter_name(path)
    if curve.best is None:
        return f"runs diverged at each {name}"
    return f"its best {name}, {curve.best:.4g}, is the {curve.edge} tried" if curve.edge else ""
