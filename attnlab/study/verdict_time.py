"""The expected time to the verdicts of a study, before its runs are trained.

How many seeds a verdict takes depends on the spread of the paired differences (`attnlab.stats.predict`). It is estimated
from the finished runs of the study's cells; without any, only the seeds for a given spread are known.
``Pace`` is the rate at which the runs of a study train on this machine: of earlier steps, else of matrix products.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.errors import UserError
from attnlab.stats.cells import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.predict import Spread, TableDesign, largest_spread, pooled_spread, seeds_for_verdict, verdict_probability
from attnlab.stats.sequential import Looks
from attnlab.stats.variance_prior import MAX_DEGREES_OF_FREEDOM, MAX_DEGREES_OF_FREEDOM_OF_GROUPS
from attnlab.stats.verdict import Reason
from attnlab.study.adaptive import count_comparisons, table, with_seeds
from attnlab.study.execution.concurrency import choose, known_step_seconds, requested_workers
from attnlab.study.execution.rows import row_of_record
from attnlab.study.looks import look_history
from attnlab.study.plan import finished_records, recorded_seeds, recorded_threads
from attnlab.study.result import StudyResult
from attnlab.tracking.client import runs_folder

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan


MEASURED_SECONDS = 0.5  # of matrix products
EXAMPLES = (5, 10)  # numbers of seeds, besides the planned one, for which the largest spread is stated


@dataclass(frozen=True)
class Pace:
    """A rate of training.

    Attributes:
        tflops: of each run, in TFLOP/s.
        workers: number of runs at a time.
        source: a description of the measurement.
    """

    tflops: float
    workers: int
    source: str

    def seconds(self, flops: Collection[float]) -> float:
        """Return the time of runs with these FLOPs, in seconds; it is never less than the time of the longest run."""
        return max(sum(flops) / self.workers, max(flops, default=0)) / self.tflops / 1e12


def known_pace(plan: Plan, root: str | Path | None = None) -> Pace | None:
    """Return the rate from the steps that an earlier run of a study measured on this machine; None when there are none.

    The steps are taken from the smallest cell; in others, small operations take a smaller part of the time.

    Args:
        plan: the study.
        root: the runs folder; default ``ATTNLAB_RUNS``, else ``./runs``.

    Raises:
        UserError: the MLflow store cannot be used or does not respond, or ``ATTNLAB_WORKERS`` has no valid number.
    """
    from attnlab.registry import TASKS
    from attnlab.training.optim import total_steps

    if not plan.total:
        return None
    folder, requested = runs_folder(root), requested_workers(None)
    chosen = choose(plan, requested, root=folder, recorded=recorded_threads(plan.study.study, root), measure=False)
    known = known_step_seconds(plan, chosen, root=folder)
    if known is None:
        return None
    (cell, seconds), config = known, known[0].config
    if not cell.train_flops:
        return None
    steps = total_steps(config.train, TASKS.get(config.task.name)(**config.task.options))
    return Pace(cell.train_flops / steps / seconds / 1e12, chosen.workers, f"measured with steps of {cell.name}")


@dataclass(frozen=True)
class Group:
    """Comparisons with one margin and equal scatter of their differences: of one task, at one level of `over`.

    Attributes:
        label: the task and the level, when the study has several; else "".
        design: the table; None without a margin in the metric's unit.
        comparisons: those with a result.
        spread: of their differences; None when too few pairs estimate it.
    """

    label: str
    design: TableDesign | None
    comparisons: Sequence[CellSummary] = ()
    spread: Spread | None = None

    @cached_property
    def seeds(self) -> int | None:
        """The number of seeds with which verdicts are right with probability `POWER`; None when it is not known."""
        return seeds_for_verdict(self.design, self.spread) if self.design and self.spread else None

    def probability(self, seeds: int) -> float | None:
        """Return the probability of the right verdict with a number of seeds; None when it is not known."""
        if self.design is None or self.spread is None or seeds < 2:
            return None
        looks = self.design.looks
        is_first = looks is not None and not looks.announced and seeds <= looks.latest
        return verdict_probability(replace(self.design, looks=None) if is_first else self.design, seeds, self.spread)


@dataclass(frozen=True)
class Open:
    """An inconclusive comparison.

    Attributes:
        name: of its cell.
        seeds: the number of seeds in total with which it is conclusive with probability `POWER`; None when it is not known.
        is_predicted: the number follows from its result, and not only from the margin and the spread of its group.
    """

    name: str
    seeds: int | None
    is_predicted: bool


@dataclass(frozen=True)
class VerdictTime:
    """The seeds and the time that the verdicts of a study take.

    Attributes:
        plan: the study.
        pace: the rate of training.
        comparisons: number of comparisons of the study; 0: it makes none by t-tests.
        groups: of these comparisons.
        judged: number of comparisons with a result.
        open: the inconclusive ones among them.
        finished: name of a cell -> number of its finished runs.
    """

    plan: Plan
    pace: Pace
    comparisons: int
    groups: Sequence[Group] = ()
    judged: int = 0
    open: Sequence[Open] = ()
    finished: Mapping[str, int] = field(default_factory=dict)

    @property
    def planned(self) -> int:
        """The number of seeds of the plan."""
        return len(self.plan.seeds)

    @property
    def numbers(self) -> list[int]:
        """Numbers of seeds that are of interest before the verdicts: the planned one, and others up to the most in a study."""
        most = self.plan.study.max_seeds
        return sorted({self.planned, *(seeds for seeds in EXAMPLES if most is None or seeds < most), most or self.planned})

    @property
    def needed(self) -> int | None:
        """The number of seeds with which each comparison is conclusive with probability `POWER`; None when it is not known."""
        numbers = [comparison.seeds for comparison in self.open]
        numbers += [group.seeds for group in self.groups] if self.rests_on_groups else []
        known = [number for number in numbers if number is not None]
        return max(known, default=None) if len(known) == len(numbers) else None

    @property
    def rests_on_groups(self) -> bool:
        """True when the number of seeds of a comparison follows from the spread of its group, without a prediction."""
        return self.judged < self.comparisons or not all(comparison.is_predicted for comparison in self.open)

    @property
    def is_conclusive(self) -> bool:
        """True when every comparison has a verdict."""
        return self.judged == self.comparisons > 0 and not self.open

    def runs(self, seeds: int) -> list[float]:
        """Return the FLOPs of each run that is left, with ``seeds`` seeds of each cell."""
        plan, trials = self.plan, self.plan.study.search.trials if self.plan.study.search else 0
        values = max(1, len(plan.sweep_values))
        counts = [(cell, trials + seeds * values) for cell in plan.cells if cell.refusal is None]
        counts += [(stage, seeds + bool(trials)) for stage in plan.stages]
        left = [(cell, max(0, n - self.finished.get(cell.name, 0))) for cell, n in counts]
        return [float((cell.train_flops or 0) + (cell.eval_flops or 0)) for cell, n in left for _ in range(n)]

    def examples(self, group: Group) -> Iterator[tuple[int, float]]:
        """Yield numbers of seeds, and the largest standard deviation with which they are enough."""
        for seeds in self.numbers:
            sd = largest_spread(group.design, seeds) if group.design else None
            if sd is not None:
                yield seeds, sd

    def settled(self, group: Group) -> Iterator[tuple[int, float]]:
        """Yield numbers of seeds, and the smallest difference that they find with probability `POWER`.

        With the same probability, cells without a difference are called equivalent within a margin of this size.
        """
        if group.design is not None and group.spread is not None:
            for seeds in self.numbers:
                sd = largest_spread(group.design, seeds, degrees_of_freedom=group.spread.degrees_of_freedom)
                if sd is not None:
                    yield seeds, group.design.margin * group.spread.sd / sd


def verdict_time(plan: Plan, pace: Pace, *, root: str | Path | None = None) -> VerdictTime:
    """Return the seeds and the time that the verdicts of a study take, as far as finished runs show it.

    Args:
        plan: the study.
        pace: the rate of training.
        root: the runs folder; default ``ATTNLAB_RUNS``, else ``./runs``.

    Raises:
        UserError: the MLflow store cannot be used or does not respond.
    """
    asked = 0 if plan.estimator.is_exact else count_comparisons(plan)  # by the first question, for which seeds are added
    total = asked * (1 + len(plan.further))  # that are corrected together
    result = _finished_result(plan, root)
    finished = Counter(row.cell for row in result.rows)
    if not total:
        return VerdictTime(plan, pace, 0, finished=finished)
    if not finished:
        return VerdictTime(plan, pace, asked, _planned_groups(plan, total))
    history = look_history(plan.study.study, root)
    spec = result.comparison(history=history)
    rows = [row for row in comparisons(table(result, history)) if row.difference is not None]
    groups = list(_groups(rows, spec, total))
    seeds_of = {row: group.seeds for group in groups for row in map(_key, group.comparisons)}
    undecided = [_open(row, seeds_of[_key(row)]) for row in rows if row.is_inconclusive]
    return VerdictTime(plan, pace, asked, groups, len(rows), undecided, finished)


def _key(row: CellSummary) -> tuple[str, str]:
    return row.name, row.baseline


def _open(row: CellSummary, in_group: int | None) -> Open:
    """Return an inconclusive comparison; with too few pairs for a prediction, its number of seeds is its group's."""
    assert row.verdict is not None
    is_predicted = row.verdict.reason is Reason.MORE_SEEDS
    return Open(row.name, row.verdict.needed if is_predicted else in_group, is_predicted)


def _finished_result(plan: Plan, root: str | Path | None) -> StudyResult:
    """Return the finished runs of all cells of a study, those with other seeds included, and without trials of a search."""
    seeds = sorted({*plan.seeds, *recorded_seeds(plan.study.study, root)})
    whole = replace(with_seeds(plan, seeds), cells=[*plan.cells, *plan.unselected], unselected=[])
    rows = [row_of_record(record, root=runs_folder(root)) for record in finished_records(whole, root).values()]
    return StudyResult(whole, rows)


def _planned_groups(plan: Plan, total: int) -> list[Group]:
    """Return a group for each task of a plan without results."""
    margins = plan.margin if isinstance(plan.margin, dict) else {"": plan.margin}
    levels = len(plan.study.over[plan.study.over_axis]) if plan.study.over else 1
    groups = len(margins) * levels * (1 + len(plan.further))
    most, first = plan.study.max_seeds, max(2, len(plan.seeds))
    looks = Looks(first, max(first, most)) if most else None
    designs = {
        label: _design(margin, total, total // groups, several=groups > 1, moderate=plan.study.moderate)
        for label, margin in margins.items()
    }
    return [Group(label, design and replace(design, looks=looks)) for label, design in designs.items()]


def _groups(rows: Sequence[CellSummary], spec: ComparisonSpec, total: int) -> Iterator[Group]:
    """Yield the comparisons with a result by task and level."""
    levels = dict.fromkeys(row.axes.get(spec.over, "") for row in rows)
    members = [
        (part, level, [row for row in rows if part.includes(row.axes) and row.axes.get(spec.over, "") == level])
        for part in spec.parts
        for level in levels
    ]
    members = [(part, level, group) for part, level, group in members if group]
    for part, level, group in members:
        options = {"several": len(members) > 1 or bool(spec.further), "moderate": spec.moderate}
        design = _design(part.margin, total, len(group), **options)
        spread = pooled_spread(row.difference.interval for row in group if row.difference)
        yield Group(" ".join(filter(None, (part.task, level))), design and replace(design, looks=spec.looks), group, spread)


def _design(margin: float | str | None, total: int, sharing: int, *, several: bool, moderate: bool) -> TableDesign | None:
    if not isinstance(margin, float | int):
        return None
    most = MAX_DEGREES_OF_FREEDOM_OF_GROUPS if several else MAX_DEGREES_OF_FREEDOM
    return TableDesign(float(margin), total, sharing if moderate else 0, most)


def estimate_pace(plan: Plan, tflops: float | None) -> Pace:
    """Return the rate that turns the FLOPs of a plan into time: given, known from earlier steps, or measured."""
    bound = "Small models reach only part of this rate"
    if tflops:
        return Pace(tflops, 1, f"given by --tflops. {bound}")
    try:
        known = known_pace(plan)
    except UserError:  # `attnlab plan` reports the same problem with the store
        known = None
    if known is not None:
        return known
    rate, source = measured_rate(plan)
    return Pace(rate, 1, f"{source}. {bound}")


def measured_rate(plan: Plan) -> tuple[float, str]:
    """Return the rate of square matrix products on the study's device in TFLOP/s, and a description of the measurement.

    The fastest product counts, because other programs slow most of them on a busy machine.
    """
    import torch

    from attnlab.nn.processor import DTYPES
    from attnlab.training.device import synchronise

    config = plan.cells[0].config
    device = torch.device(config.machine.device)
    if device.type == "cuda" and not torch.cuda.is_available():  # every cell is refused, so no time depends on the rate
        device = torch.device("cpu")
    torch.set_float32_matmul_precision(config.machine.matmul_precision)
    size = 4096 if device.type == "cuda" else 1024
    a = torch.ones(size, size, device=device, dtype=DTYPES.get(config.train.precision))
    seconds: list[float] = []
    with torch.inference_mode():
        torch.mm(a, a)
        synchronise(device)
        while sum(seconds) < MEASURED_SECONDS:
            begin = time.perf_counter()
            torch.mm(a, a)
            synchronise(device)
            seconds.append(time.perf_counter() - begin)
    source = f"measured with {config.train.precision} products of {size} x {size} on {device.type} (--tflops X sets it)"
    return 2 * size**3 / min(seconds) / 1e12, source
