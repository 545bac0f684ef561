"""The shares of training of a study's cells, from their curves or from trainings of several lengths.

See `attnlab.stats.training_share`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from attnlab._util.run_state import RunState
from attnlab.stats.chains import TRAINING_PASSES
from attnlab.stats.compare import CellSummary, ComparisonSpec, cell_of, comparisons, runs_at_best
from attnlab.stats.paired import NoTest
from attnlab.stats.records import finite
from attnlab.stats.training_share import (
    MIN_LOSSES,
    MIN_POINTS,
    Curve,
    TrainingShare,
    running_mean,
    training_share,
)
from attnlab.stats.trend import Trend, TrendReason

if TYPE_CHECKING:
    import pandas

LENGTH_AXES = ("train.steps", "train.epochs")  # axes of `over` whose levels are lengths of training

SeedCurves = Mapping[tuple[str, int], Curve]  # (cell, seed) -> curve


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
        others: (choice, share) of the share without a choice of records (`attnlab.stats.corrections`).
    """

    name: str
    baseline: str
    cell: str
    base_cell: str
    share: TrainingShare
    source: ShareSource
    levels: tuple[float, ...] = ()
    others: tuple[tuple[str, TrainingShare | None], ...] = ()


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
