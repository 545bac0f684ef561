"""The rate at which the runs of a study train on this machine, as far as it is known without training."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.study.execution.concurrency import choose, known_step_seconds, requested_workers
from attnlab.study.record import recorded_threads
from attnlab.tracking.client import runs_folder

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan


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
        """Return the time of runs with these FLOPs, in seconds; it is never less than that of the longest run."""
        return max(sum(flops) / self.workers, max(flops, default=0)) / self.tflops / 1e12


def known_pace(plan: Plan, root: str | Path | None = None) -> Pace | None:
    """Return the rate from the steps that an earlier run of a study measured on this machine; None if there are none.

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
