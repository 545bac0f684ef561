"""Differences as a share of training: the steps in which one cell reaches the final score of another.

For each seed, the share is the step at which the cell's curve first reaches the final value of the
baseline's curve, divided by the steps of the baseline. A cell that never reaches it is described the other
way round, by the share of the cell's training in which the baseline reaches the cell's final value; the
reciprocal of that share then stands for the seed. Shares are averaged over seeds as logarithms. Exchanging
the cell and the baseline turns the logarithm round for every seed, so that two equal cells have a mean of
zero however noisy their curves are. The interval is a t-interval of the logarithms.

A share of the steps becomes one of the FLOPs and of the time by the ratio of the costs of one step. Both include the stages
that a run builds on: they are trained before its first step.

An intermediate point of a curve is not the result of a shorter training if the learning rate decays: the
shorter training would have decayed it earlier and ended with a better score. Scores of trainings of several
lengths do not have this problem.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from attnlab._util.run_state import RunState
from attnlab.stats.compare import CellSummary, ComparisonSpec, cell_of, comparisons, runs_at_best
from attnlab.stats.paired import Interval, NoTest, interval
from attnlab.stats.records import TRAINING_PASSES, finite
from attnlab.stats.trend import Trend, TrendReason

if TYPE_CHECKING:
    import pandas

MIN_POINTS = 4  # of a curve on the validation split
MIN_LOSSES = 10  # points of the training loss, which is noisier
WINDOWS = 10  # the running mean of the training loss covers one part in so many of its points, and at least three

NO_STAGES: Mapping[int, tuple[float, float]] = MappingProxyType({})

Curve = Sequence[tuple[float, float]]  # (step, value), by step

LENGTH_AXES = ("train.steps", "train.epochs")  # axes of `over` whose levels are lengths of training

SeedCurves = Mapping[tuple[str, int], Curve]  # (cell, seed) -> curve


@dataclass(frozen=True)
class TrainingShare:
    """The share of the baseline's training in which a cell reaches the baseline's final score.

    Attributes:
        log_ratio: Logarithm of the share of the steps, over seeds; negative where the cell is faster.
        flops: The same of the FLOPs; None when they are not recorded.
        seconds: The same of the time of the training steps; None when the speed is not recorded.
        bounded: In some seeds the score is reached before the first point of the curve: the share is at
        most that large.
        has_stages: A run builds on stages, which count in the FLOPs and the time, but not in the steps.
    """

    log_ratio: Interval
    flops: Interval | None = None
    seconds: Interval | None = None
    bounded: bool = False
    has_stages: bool = False

    @property
    def reversed(self) -> bool:
        """True when the baseline reaches the cell's final score, and False when the cell reaches the baseline's."""
        return self.log_ratio.mean > 0

    def shares(self) -> tuple[Interval | None, ...]:
        """Return the shares of the steps, the FLOPs and the seconds, of the baseline or, if `reversed`, of the cell."""
        return tuple(
            None if log is None else share_of(log, reverse=self.reversed) for log in (self.log_ratio, self.flops, self.seconds)
        )


def share_of(log_ratio: Interval, *, reverse: bool = False) -> Interval:
    """Return a share with its interval from the interval of its logarithm; `sd` is None, because it has no meaning there.

    Args:
        log_ratio: Mean and interval of the logarithm.
        reverse: Return the reciprocal, with its interval.
    """
    ends = [None if end is None else math.exp(-end if reverse else end) for end in (log_ratio.low, log_ratio.high)]
    low, high = reversed(ends) if reverse else ends
    return Interval(log_ratio.n, math.exp(-log_ratio.mean if reverse else log_ratio.mean), None, low, high)


def training_share(
    cell: Mapping[int, Curve],
    baseline: Mapping[int, Curve],
    *,
    direction: str,
    log_steps: bool = False,
    flops: float | None = None,
    seconds: Mapping[int, float] | None = None,
    stage_flops: Mapping[int, tuple[float, float]] = NO_STAGES,
    stage_seconds: Mapping[int, tuple[float, float]] = NO_STAGES,
) -> TrainingShare | None:
    """Return the share of the baseline's training in which a cell reaches the baseline's final score.

    Args:
        cell: Seed -> (step, value) points of the curve, by step. Values between two points are interpolated.
        baseline: The same of the baseline.
        direction: "min" when smaller values are better, else "max".
        log_steps: Interpolate over the logarithm of the steps, for points far apart.
        flops: FLOPs of one step of the cell over the baseline's; None when unknown.
        seconds: Seed -> time of one step of the cell over the baseline's; None when unknown.
        stage_flops: Seed -> FLOPs of the stages that the cell and the baseline build on, each in steps of that run: as many
            steps cost as much. Seeds without stages are left out.
        stage_seconds: The same of their time.

    Returns: The share over the seeds of which both have a curve of at least two points; None when there is no
        such seed.
    """
    ratios: dict[int, _LogRatios] = {}
    for seed in sorted(cell.keys() & baseline.keys()):
        curves = [_ascending(curve, direction) for curve in (cell[seed], baseline[seed])]
        if min(map(len, curves)) >= 2:
            none = (0.0, 0.0)
            stages = {"flops": stage_flops.get(seed, none), "seconds": stage_seconds.get(seed, none)}
            ratios[seed] = _log_ratios(*curves, **stages, log_steps=log_steps)
    if not ratios:
        return None
    timed = [ratio.seconds + math.log(seconds[seed]) for seed, ratio in ratios.items() if seed in seconds] if seconds else []
    return TrainingShare(
        interval([ratio.steps for ratio in ratios.values()]),
        None if flops is None else interval([ratio.flops + math.log(flops) for ratio in ratios.values()]),
        interval(timed) if len(timed) == len(ratios) else None,
        any(ratio.bounded for ratio in ratios.values()),
        bool(ratios.keys() & (stage_flops.keys() | stage_seconds.keys())),
    )


def running_mean(curve: Curve) -> Curve:
    """Smooth the curve of a training loss: the mean over a window of points, at the mean of their steps."""
    window = max(3, round(len(curve) / WINDOWS))
    windows = (curve[i : i + window] for i in range(len(curve) - window + 1))
    return [(math.fsum(step for step, _ in part) / window, math.fsum(value for _, value in part) / window) for part in windows]


def _ascending(curve: Curve, direction: str) -> Curve:
    """Return the finite points of a curve, with the sign of values turned so that larger ones are better."""
    sign = -1.0 if direction == "min" else 1.0
    return [(step, sign * value) for step, value in curve if step > 0 and math.isfinite(value)]


class _LogRatios(NamedTuple):
    """Logarithms of one seed's share of the steps, and of the FLOPs and the time if all steps cost alike."""

    steps: float
    flops: float
    seconds: float
    bounded: bool


def _log_ratios(
    cell: Curve, baseline: Curve, *, flops: tuple[float, float], seconds: tuple[float, float], log_steps: bool
) -> _LogRatios:
    """Return the logarithms of one seed's shares; `bounded` if a score is reached at the first point of a curve.

    Of two curves with noise, each may reach the other's final value: then it is the mean of both logarithms.

    Args:
        flops, seconds: Stages of the cell and of the baseline, in steps.
    """
    reached: list[list[float]] = []
    at_start = False
    for curve, other, sign in ((cell, baseline, 1), (baseline, cell, -1)):
        step, last = _first_step(curve, other[-1][1], log_steps=log_steps), other[-1][0]
        if step is None:
            continue
        share = math.log(step / last)
        stages = [(0.0, 0.0), flops[::sign], seconds[::sign]]  # of this curve and of the other
        reached.append([sign * (share + math.log1p(own / step) - math.log1p(others / last)) for own, others in stages])
        at_start = at_start or step == curve[0][0]
    steps, of_flops, of_seconds = (math.fsum(values) / len(reached) for values in zip(*reached, strict=True))
    return _LogRatios(steps, of_flops, of_seconds, at_start)


def _first_step(curve: Curve, target: float, *, log_steps: bool) -> float | None:
    """Return the step at which a curve first reaches a value, interpolated between points; None when it never does."""
    previous: tuple[float, float] | None = None
    for step, value in curve:
        if value >= target:
            if previous is None:
                return step
            before, low = previous
            part = (target - low) / (value - low)
            return before * (step / before) ** part if log_steps else before + part * (step - before)
        previous = step, value
    return None


@dataclass(frozen=True)
class StepCost:
    """The costs of one training step of a run, None when they are not recorded.

    Attributes:
        flops, seconds: Of one step.
        stage_flops, stage_seconds: Costs of the stages that the run builds on, in steps of the run; 0 without stages.
    """

    flops: float | None = None
    seconds: float | None = None
    stage_flops: float = 0.0
    stage_seconds: float = 0.0


StepCosts = Mapping[tuple[str, int], StepCost]  # by cell and seed


class ShareSource(StrEnum):
    """The curves that a share is read from."""

    LEVELS = "trainings of several lengths"
    VALIDATION = "validation curve"
    LOSS = "training loss"


@dataclass(frozen=True)
class CellShare:
    """The share of one comparison.

    Attributes:
        name: Name of the cell; without its level if the source is `ShareSource.LEVELS`.
        baseline: Name of its baseline, likewise.
        cell, base_cell: The cell that the share is one of, and its baseline's: at the highest level if the source is
            `ShareSource.LEVELS`.
        share: The share of the steps, the FLOPs and the time.
        source: The curves that it is read from.
        levels: Lengths of the trainings, for `ShareSource.LEVELS`; the share is one of the longest.
    """

    name: str
    baseline: str
    cell: str
    base_cell: str
    share: TrainingShare
    source: ShareSource
    levels: tuple[float, ...] = ()


def summarize_shares(
    cells: Sequence[CellSummary],
    records: Sequence[Mapping[str, Any]],
    curves: pandas.DataFrame,
    *,
    spec: ComparisonSpec,
    trends: Sequence[Trend] = (),
) -> list[CellShare]:
    """Return the share of each comparison that has curves, in the order of the cells.

    A study over lengths of training has one share per trend, read from the scores of its trainings. Any
    other share is read from the curves on the validation split if they have at least `MIN_POINTS` points,
    else from the running mean of the training loss. Losses per token of different tokens, for example bytes and
    subwords, are not comparable: these cells have no share without validation curves.

    Args:
        cells: As `attnlab.stats.compare.summarize_cells` returns them.
        records: The compared runs, as `attnlab.load_runs` returns them.
        curves: As `attnlab.load_curves` returns them.
        spec: The comparison that the study makes; a share is one of mean scores, and there is none for another estimand.
        trends: As `attnlab.stats.trend.summarize_trends` returns them.
    """
    if not spec.estimator.is_mean:
        return []
    completed = [record for record in runs_at_best(records, cells, spec) if record["state"] == RunState.COMPLETED]
    costs = {(cell_of(record, spec), int(record["seed"])): _step_cost(record) for record in completed}
    by_name = {cell.name: cell for cell in cells}
    if spec.over in LENGTH_AXES:
        shares = (_share_over_levels(trend, by_name, spec, costs) for trend in trends)
        return [share for share in shares if share is not None]
    valid = _curves_of(curves, f"valid/{spec.metric}", completed, spec)
    losses = _curves_of(curves, "train/loss", completed, spec)
    data = {cell_of(record, spec): record.get("data") for record in completed}
    compared = [cell for cell in comparisons(cells) if cell.difference and cell.difference.no_test is not NoTest.LOSSES]
    shares = (
        _share_of_curves(cell, valid, losses if data.get(cell.name) == data.get(cell.baseline) else {}, spec, costs)
        for cell in compared
    )
    return [share for share in shares if share is not None]


def _share_over_levels(
    trend: Trend, by_name: Mapping[str, CellSummary], spec: ComparisonSpec, costs: StepCosts
) -> CellShare | None:
    """Return the share of the longest training, interpolated between trainings of the seeds that completed all of them."""
    if trend.slope is None or trend.reason is TrendReason.LOSSES:
        return None
    bases = [by_name[comparison.baseline] for comparison in trend.comparisons]
    shared = set.intersection(*({*c.values} & {*base.values} for c, base in zip(trend.comparisons, bases, strict=True)))
    cell, baseline = (
        {seed: [(level, s.values[seed]) for level, s in zip(trend.levels, some, strict=True)] for seed in shared}
        for some in (trend.comparisons, bases)
    )
    names = trend.comparisons[-1].name, bases[-1].name
    share = training_share(cell, baseline, direction=spec.direction, log_steps=True, **_cost_ratios(*names, shared, costs))
    levels = {"source": ShareSource.LEVELS, "levels": trend.levels}
    return share and CellShare(trend.name, trend.baseline, *names, share, **levels)


def _share_of_curves(
    cell: CellSummary, valid: SeedCurves, losses: SeedCurves, spec: ComparisonSpec, costs: StepCosts
) -> CellShare | None:
    """Return the share of one comparison from its curves; None when they have too few points."""
    for source, every, least, direction in (
        (ShareSource.VALIDATION, valid, MIN_POINTS, spec.direction),
        (ShareSource.LOSS, losses, MIN_LOSSES, "min"),
    ):
        own, base = ({seed: curve for (name, seed), curve in every.items() if name == of} for of in (cell.name, cell.baseline))
        shared = {seed for seed in own.keys() & base.keys() if min(len(own[seed]), len(base[seed])) >= least}
        if not shared:
            continue
        if source is ShareSource.LOSS:
            own, base = ({seed: running_mean(of[seed]) for seed in shared} for of in (own, base))
        own, base = ({seed: of[seed] for seed in shared} for of in (own, base))
        share = training_share(own, base, direction=direction, **_cost_ratios(cell.name, cell.baseline, shared, costs))
        return share and CellShare(cell.name, cell.baseline, cell.name, cell.baseline, share, source)
    return None


def _cost_ratios(cell: str, baseline: str, seeds: Iterable[int], costs: StepCosts) -> dict[str, Any]:
    """Return the costs of a cell next to its baseline's, where known, as `training_share` takes them."""
    flops: float | None = None
    seconds: dict[int, float] = {}
    stages: dict[str, dict[int, tuple[float, float]]] = {"stage_flops": {}, "stage_seconds": {}}
    for seed in sorted(seeds):
        own, base = (costs.get((name, seed), StepCost()) for name in (cell, baseline))
        if own.flops and base.flops:
            flops = own.flops / base.flops
        if own.seconds and base.seconds:
            seconds[seed] = own.seconds / base.seconds
        for name, of_seed in stages.items():
            if any(pair := (getattr(own, name), getattr(base, name))):
                of_seed[seed] = pair
    return {"flops": flops, "seconds": seconds, **stages}


def _step_cost(record: Mapping[str, Any]) -> StepCost:
    """Return the costs of one training step of a run, and of its stages."""
    tokens, steps = _number(record, "tokens"), _number(record, "steps")
    if tokens is None or steps is None:
        return StepCost()
    flops, speed = _number(record, "flops_per_token"), _number(record, "tokens_per_s")
    own_seconds, all_seconds = _number(record, "train_seconds"), _number(record, "chain_seconds")
    seconds = None if speed is None else tokens / steps / speed
    own_flops, all_flops = None if flops is None else TRAINING_PASSES * flops * tokens, _number(record, "chain_flops")
    return StepCost(
        None if flops is None else flops * tokens / steps,
        seconds,
        max(0.0, all_flops / own_flops - 1) * steps if all_flops and own_flops else 0.0,
        max(0.0, all_seconds - own_seconds) / seconds if all_seconds and own_seconds and seconds else 0.0,
    )


def _number(record: Mapping[str, Any], name: str) -> float | None:
    """Return a positive finite number of a run, or None; a table of runs is padded with NaN."""
    value = finite(record.get(name))
    return value if value is not None and value > 0 else None


def _curves_of(
    curves: pandas.DataFrame, metric: str, records: Iterable[Mapping[str, Any]], spec: ComparisonSpec
) -> dict[tuple[str, int], Curve]:
    """Return the points of a metric by cell and seed, each by step."""
    runs = {str(record["run_id"]): (cell_of(record, spec), int(record["seed"])) for record in records}
    points: dict[tuple[str, int], list[tuple[float, float]]] = {}
    selected = curves.loc[curves["metric"] == metric]
    for run_id, step, value in zip(selected["run_id"], selected["step"], selected["value"], strict=True):
        if run_id in runs and value == value:
            points.setdefault(runs[run_id], []).append((float(step), float(value)))
    return {key: sorted(values) for key, values in points.items()}
