"""Measures that shorten the time to the verdicts of a study, each with the time that it saves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.config.design import default_fraction
from attnlab.config.factors import factorial_design
from attnlab.config.sweep import MIN_VALUES
from attnlab.stats.added_seeds import LARGE, added_seeds
from attnlab.stats.power import Spread, largest_spread, seeds_for_verdict
from attnlab.stats.variance_prior import MIN_COMPARISONS
from attnlab.study.adaptive import MAX_SEEDS
from attnlab.study.pace import known_pace

if TYPE_CHECKING:
    from attnlab.study.verdict_time import VerdictTime

LEAST = 0.05  # of the time: smaller savings are not worth a line
FIRST_LOOK = 3


@dataclass(frozen=True)
class Measure:
    """A change of the study, or of the command, that shortens it.

    Attributes:
        change: the change, as it is written.
        seconds: the time that it saves.
        condition: the price or the condition of the saving, or "".
    """

    change: str
    seconds: float
    condition: str = ""


def measures(time: VerdictTime, *, root: str | Path | None = None) -> list[Measure]:
    """Return the measures that save more than a twentieth of the time, the largest saving first.

    Args:
        time: of the study as it is planned.
        root: the runs folder; default ``ATTNLAB_RUNS``, else ``./runs``.
    """
    seeds = max(time.planned, time.needed or 0)
    total = time.pace.seconds(time.runs(seeds))
    found = [
        *_fewer_seeds(time),
        *_open_cells_only(time, seeds),
        *_seeds_added(time),
        *_moderated(time, seeds),
        *_fewer_values(time, seeds),
        *_fraction(time),
        *_early_stops(time, root),
        *_less_evaluation(time, seeds),
        *_more_workers(time, seeds, root),
    ]
    return sorted((measure for measure in found if measure.seconds > LEAST * total), key=lambda m: m.seconds, reverse=True)


def _saved(time: VerdictTime, before: list[float], after: list[float]) -> float:
    return time.pace.seconds(before) - time.pace.seconds(after)


def _fewer_seeds(time: VerdictTime) -> Iterator[Measure]:
    """Yield the number of seeds that is enough, if more are planned."""
    needed = time.needed
    if needed is not None and needed < time.planned:
        yield Measure(f"{needed} seeds", _saved(time, time.runs(time.planned), time.runs(needed)))


def _open_cells_only(time: VerdictTime, seeds: int) -> Iterator[Measure]:
    """Yield the selection of the inconclusive cells and their baselines. The curves of a sweep need all cells."""
    names = {name for comparison in time.open for name in (comparison.name, comparison.baseline)}
    if names and time.plan.study.sweep is None:
        saved = _saved(time, time.runs(seeds), time.runs(seeds, cells=names | {stage.name for stage in time.plan.stages}))
        yield Measure("--only, with the inconclusive cells and their baselines", saved)


def _seeds_added(time: VerdictTime) -> Iterator[Measure]:
    """Yield the option to add seeds, for a study without results whose planned seeds are just enough."""
    study, planned = time.plan.study, time.planned
    designs = [group.design for group in time.groups if group.design is not None]
    if time.finished or len(designs) != 1 or study.sweep or study.search or not FIRST_LOOK < planned <= MAX_SEEDS:
        return
    sd = largest_spread(designs[0], planned)
    outcome = added_seeds(designs[0], sd, first=FIRST_LOOK, fixed=planned) if sd else None
    if outcome is None:
        return
    all_runs = time.pace.seconds(time.runs(planned))
    large, equal = (1 - mean / planned for mean in (outcome.large, outcome.equal))
    others = f"{100 * abs(equal):.0f} % {'less' if equal > 0 else 'more'} where there are none"
    condition = f"where differences are {LARGE:g} times the margin or more ({others})"
    first = ",".join(map(str, time.plan.seeds[:FIRST_LOOK]))
    yield Measure(f"--seeds {first} --until-conclusive --max-seeds {outcome.last}", large * all_runs, condition)


def _moderated(time: VerdictTime, seeds: int) -> Iterator[Measure]:
    """Yield moderated t-tests, where the study turns them off."""
    if time.plan.study.moderate or not time.groups:
        return
    numbers = []
    for group in time.groups:
        if group.design is None:
            return
        spread = group.spread or Spread(largest_spread(group.design, seeds) or 0)
        sharing = len(group.comparisons) or group.design.comparisons // len(time.groups)
        number = seeds_for_verdict(replace(group.design, sharing=sharing), spread) if spread.sd else None
        if number is None or sharing < MIN_COMPARISONS:
            return
        numbers.append(number)
    saved = _saved(time, time.runs(seeds), time.runs(max(numbers)))
    yield Measure(f"moderate: true, with {max(numbers)} seeds", saved, "if the differences of all cells scatter alike")


def _fewer_values(time: VerdictTime, seeds: int) -> Iterator[Measure]:
    """Yield the fewest values of a sweep."""
    sweep = time.plan.study.sweep
    if sweep is not None and len(sweep.values) > MIN_VALUES:
        values = len(time.plan.sweep_values) - len(sweep.values) + MIN_VALUES
        saved = _saved(time, time.runs(seeds), time.runs(seeds, values=values))
        yield Measure(f"{MIN_VALUES} values of {sweep.path}", saved, "if the optima of all cells lie close together")


def _fraction(time: VerdictTime) -> Iterator[Measure]:
    """Yield a fraction of a full factorial design."""
    design = factorial_design(time.plan.study)
    cells = default_fraction(len(design.factors)) if design and design.name == "full" else None
    if design is None or cells is None or any(len(factor.levels) > 2 for factor in design.factors):
        return
    saved = (1 - cells / design.size) * time.pace.seconds(time.runs(time.planned))
    runs = f"main effects then come from {cells} instead of {design.size} cells"
    yield Measure("design: fractional", saved, runs)


def _early_stops(time: VerdictTime, root: str | Path | None) -> Iterator[Measure]:
    """Yield the score at which runs may end, of a study of solve rates whose finished runs show when they reach it."""
    from attnlab.tracking.runs import load_curves

    plan, threshold = time.plan, time.plan.estimand.threshold
    may_end = any(cell.config.train.may_end_early for cell in plan.cells)
    if not time.finished or may_end or plan.tasks or plan.direction != "max" or threshold is None or threshold >= 1:
        return
    score, taken, total = (1 + threshold) / 2, 0, 0
    curves = load_curves(plan.study.study, root)
    for _, curve in curves[curves["metric"] == f"valid/{plan.metric}"].groupby("run_id"):
        points = sorted(zip(curve["step"].tolist(), curve["value"].tolist(), strict=True))
        last = points[-1][0]
        taken, total = taken + next((step for step, value in points if value >= score), last), total + last
    if total:
        saved = (1 - taken / total) * time.pace.seconds(time.runs(time.planned))
        yield Measure(f"train.stop_at: {score:g}", saved, "if the runs that are left learn as the finished ones did")


def _less_evaluation(time: VerdictTime, seeds: int) -> Iterator[Measure]:
    """Yield limits of the evaluation, where `valid` and `test` are read completely."""
    evaluations = [cell.config.evaluate for cell in time.plan.cells if cell.refusal is None]
    if all(evaluate.valid_limit is None and evaluate.test_limit is None for evaluate in evaluations):
        saved = _saved(time, time.runs(seeds), time.runs(seeds, evaluation=False))
        yield Measure("evaluate: {valid_limit: ..., test_limit: ...}", saved, "less the time of what is still read")


def _more_workers(time: VerdictTime, seeds: int, root: str | Path | None) -> Iterator[Measure]:
    """Yield the number of workers that was measured to be the fastest, if another one is set."""
    best = known_pace(time.plan, workers="auto", root=root)
    if best is not None and best.workers != time.pace.workers and best.source == time.pace.source:
        runs = time.runs(seeds)
        yield Measure(f"--workers {best.workers}", time.pace.seconds(runs) - best.seconds(runs))
