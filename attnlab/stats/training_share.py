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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from attnlab.stats.paired import Interval, interval

MIN_POINTS = 4  # of a curve on the validation split
MIN_LOSSES = 10  # points of the training loss, which is noisier
WINDOWS = 10  # the running mean of the training loss covers one part in so many of its points, and at least three

NO_STAGES: Mapping[int, tuple[float, float]] = MappingProxyType({})

Curve = Sequence[tuple[float, float]]  # (step, value), by step


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
