"""The number of runs that train at the same time, and the number of threads of each. A rule, which measures nothing.

On a CPU, several runs of a small model with one thread each finish sooner than one after the other with all threads, which
spend much of each step waiting for each other. On a CUDA device, a small model leaves most of the processors idle, which other
runs can use. `attnlab tune` measures what the rule assumes. Each worker has one CUDA device, in turn.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Literal

from attnlab._util.machine import processors
from attnlab._util.process import start_fork_server
from attnlab.errors import UserError
from attnlab.study.execution.job import PRELOAD, PRELOAD_OF_COMMANDS

if TYPE_CHECKING:
    from attnlab.planning.plan import Cell, Plan, Run


Workers = int | Literal["auto"]

AUTO: Literal["auto"] = "auto"
VARIABLE = "ATTNLAB_WORKERS"
SMALL_STEP = 1e11  # FLOPs: up to this size of a training step a run has one thread, or shares its CUDA device
MAX_SHARING = 8  # runs that share a CUDA device
MEMORY_SHARE = 0.8  # of a CUDA device that all of them may need


@dataclass(frozen=True)
class Concurrency:
    """The number of runs at a time, and the threads of each.

    Attributes:
        workers: the number of runs that train at the same time.
        threads: of each run that leaves their number open.
    """

    workers: int
    threads: int


def requested_workers(workers: object) -> Workers:
    """Return a valid number of workers; None is the value of ``ATTNLAB_WORKERS``, else ``"auto"``.

    Raises:
        UserError: it is neither a whole number of at least 1 nor ``"auto"``.
    """
    where = "workers"
    if workers is None:
        text = os.environ.get(VARIABLE, "")
        workers, where = int(text) if text.isdecimal() else text or AUTO, VARIABLE
    if workers == AUTO:
        return AUTO
    if not isinstance(workers, Integral) or isinstance(workers, bool) or workers < 1:
        raise UserError(f"expected a whole number of at least 1, or {AUTO!r}, got {workers!r}", where)
    return int(workers)


def choose(plan: Plan, workers: Workers, *, recorded: int | None = None) -> Concurrency:
    """Return how many runs of a plan train at the same time, and with how many threads each.

    The numbers describe the whole plan, not the runs that are left: a run that is resumed alone computes with the
    threads that it began with.

    Args:
        plan: of which at least one cell is not refused.
        workers: as requested.
        recorded: the number of threads with which the study began; None: it begins now.
    """
    runs, is_program = max(1, plan.total), plan.study.command is not None
    every = _threads_of_programs() if is_program else _threads()
    if workers != AUTO or is_program:  # a program may use all processors for one run
        number = 1 if workers == AUTO else workers
        return Concurrency(number, recorded or max(1, every // min(number, runs)))
    cells = [cell for cell in (*plan.stages, *plan.cells) if cell.refusal is None]
    machines = [cell.config.machine for cell in cells]
    is_small = max(map(_step_flops, cells)) <= SMALL_STEP and all(machine.processes_per_run == 1 for machine in machines)
    if any(machine.device.startswith("cuda") for machine in machines):
        devices = max(1, len(visible_devices())) if any(machine.device == "cuda" for machine in machines) else 1
        number = min(devices * (_runs_on_device(cells, -(-runs // devices)) if is_small else 1), runs)
        return Concurrency(number, recorded or max(1, every // number))
    threads = recorded or (1 if is_small else every)
    if all(machine.threads for machine in machines):  # the number that is recorded has no effect
        threads = max(machine.threads or 1 for machine in machines)
    return Concurrency(max(1, min(processors() // threads, runs)), threads)


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def _threads_of_programs() -> int:
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return int(threads) if threads.isdecimal() and int(threads) else processors()


def _step_flops(cell: Cell) -> float:
    """Return the FLOPs of a training step of a cell."""
    return (cell.train_flops or 0) / (cell.steps or 1)


def _runs_on_device(cells: Sequence[Cell], runs: int) -> int:
    """Return how many small runs share a CUDA device: as many as its memory holds, by the estimate for the largest cell."""
    import torch

    from attnlab.planning.costs import MIB, OVERHEAD, cuda_peaks

    largest = max(cells, key=_step_flops)
    peak = cuda_peaks([largest])[largest.name]
    if isinstance(peak, str):  # no estimate
        return 1
    memory = torch.cuda.get_device_properties(0).total_memory / MIB
    return max(1, min(MAX_SHARING, processors(), runs, int(MEMORY_SHARE * memory / (peak + OVERHEAD))))


def cuda_devices(plan: Plan, *, workers: int) -> list[str]:
    """Return the devices to divide among several workers, as CUDA_VISIBLE_DEVICES names them; empty when none are divided."""
    if workers == 1 or plan.study.command is not None:  # a program chooses its device itself
        return []
    return [] if all(cell.config.machine.device != "cuda" for cell in plan.cells) else visible_devices()


def visible_devices() -> list[str]:
    """Return the CUDA devices that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",") if visible else [str(i) for i in range(torch.cuda.device_count())]


def device_environment(run: Run, devices: Sequence[str], *, slot: int) -> dict[str, str]:
    """Return environment variables that give a worker its device; a run that names one (``cuda:1``) keeps it."""
    if not devices or run.config.machine.device != "cuda":
        return {}
    return {"CUDA_VISIBLE_DEVICES": devices[slot % len(devices)]}


def start_workers(plan: Plan) -> None:
    """Start the server that the workers of a study are forked from."""
    start_fork_server(PRELOAD if plan.study.command is None else PRELOAD_OF_COMMANDS)
