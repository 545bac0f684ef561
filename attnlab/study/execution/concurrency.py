"""The number of runs that train at the same time, and the number of threads of each.

On a CPU, several runs of a small model with one thread each finish sooner than one after the other with all threads, which
spend much of each step waiting for each other. On a CUDA device, a small model leaves most of the processors idle, which other
runs can use. How much sooner depends on the model and on the machine, so it is measured: for a second or two, with steps of the
study's smallest cell.
Each worker has one CUDA device, in turn.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from attnlab._util.code_digest import remember
from attnlab._util.cost_metrics import significant
from attnlab._util.machine import available_memory, processors
from attnlab._util.process import start_fork_server
from attnlab._util.text import count
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.registry import TASKS
from attnlab.study.execution.job import PRELOAD, PRELOAD_OF_COMMANDS, TRAIN
from attnlab.study.execution.measurements import Layouts, StepTimes, by_size, known_step_times, measured_step_times

if TYPE_CHECKING:
    from attnlab.planning.plan import Cell, Plan, Run


Workers = int | Literal["auto"]

AUTO: Literal["auto"] = "auto"
VARIABLE = "ATTNLAB_WORKERS"
NOISE = 1.1  # a smaller gain is not worth waiting for all threads, which other programs on the machine slow down
MEMORY_SHARE = 0.8  # of the available memory that all runs together may need
MAX_SHARING = 8  # runs that share a CUDA device


@dataclass(frozen=True)
class Concurrency:
    """The number of runs at a time, and the threads of each.

    Attributes:
        workers: the number of runs that train at the same time.
        threads: of each run that leaves their number open.
        reason: why, in one line, when it was measured or is surprising; else "".
    """

    workers: int
    threads: int
    reason: str = ""


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


def describe(concurrency: Concurrency) -> str:
    """Return "2 runs at a time with 1 thread each"."""
    each = " each" if concurrency.workers > 1 else ""
    return f"{count(concurrency.workers, 'run')} at a time with {count(concurrency.threads, 'thread')}{each}"


def choose(
    plan: Plan, workers: Workers, *, root: Path, recorded: int | None = None, train: str = TRAIN, measure: bool = True
) -> Concurrency:
    """Return how many runs of a plan train at the same time, and with how many threads each.

    The numbers describe the whole plan, not the runs that are left: a run that is resumed alone computes with the
    threads that it began with.

    Args:
        plan: of which at least one cell is not refused.
        workers: as requested.
        root: the folder of runs, which keeps measurements.
        recorded: the number of threads with which the study began; None: it begins now.
        train: the function that trains a run.
        measure: measure steps where no earlier measurement is known.
    """
    if plan.study.command is not None:
        return _choose_for_programs(plan, workers, recorded=recorded)
    import torch

    threads, runs = torch.get_num_threads(), max(1, plan.total)
    cells = [cell for cell in (*plan.stages, *plan.cells) if cell.refusal is None]
    machines = [cell.config.machine for cell in cells]
    fixed = [machine.threads for machine in machines if machine.threads is not None]
    is_fixed = len(fixed) == len(machines)  # no run uses the number that is recorded
    if workers != AUTO:
        own = recorded or max(1, threads // min(workers, runs))
        crowded = not is_fixed and workers * own > processors() and recorded is not None
        began = f"the study began with {count(own, 'thread')} in each run, so that they share processors"
        return Concurrency(workers, own, began if crowded else "")
    measurable = train == TRAIN and all(machine.processes_per_run == 1 for machine in machines)
    if any(machine.device.startswith("cuda") for machine in machines):
        return _choose_on_cuda(cells, runs, threads=threads, root=root, recorded=recorded, measure=measurable and measure)
    if is_fixed or recorded is not None:
        each = max(fixed) if is_fixed else recorded or 1
        most = Concurrency(min(max(1, processors() // each), runs), each)
        vary = any(TASKS.get(cell.config.task.name).shapes_vary for cell in cells)
        if most.workers == 1 or not vary or not measurable:
            return most
        times = _step_times(cells, {1: each}, root=root, measure=measure)
        return most if times is None else _fitting(most, times.peak)
    layouts = _layouts(min(processors(), runs), threads)
    if len(layouts) == 1 or not measurable:
        return Concurrency(1, threads)
    times = _step_times(cells, layouts, root=root, measure=measure)
    if times is None:
        return Concurrency(1, threads, "its steps could not be measured")
    return _fastest(times, layouts, runs=runs)


def _choose_on_cuda(
    cells: Sequence[Cell], runs: int, *, threads: int, root: Path, recorded: int | None, measure: bool
) -> Concurrency:
    """Return one run on each device, or several that share it where all of them end sooner and fit into its memory."""
    on_cuda = [cell.config.machine.device for cell in cells if cell.config.machine.device.startswith("cuda")]
    devices = max(1, len(visible_devices())) if "cuda" in on_cuda else 1
    of_device = -(-runs // devices)
    most = max(1, min(processors() // devices, of_device, MAX_SHARING))
    layouts = _layouts(most, max(1, threads // devices))
    times = None
    if len(layouts) > 1 and len(on_cuda) == len(cells):
        times = _step_times(cells, layouts, root=root, measure=measure)
    if times is None:
        number = min(devices, runs)
        return Concurrency(number, recorded or max(1, threads // number))
    chosen = _fastest(times, layouts, runs=of_device)
    return Concurrency(min(devices * chosen.workers, runs), recorded or chosen.threads, f"on each device, {chosen.reason}")


def _step_times(cells: Sequence[Cell], layouts: Layouts, *, root: Path, measure: bool) -> StepTimes | None:
    times = known_step_times(cells, layouts, root=root)
    return measured_step_times(cells, layouts, root=root) if times is None and measure else times


def _choose_for_programs(plan: Plan, workers: Workers, *, recorded: int | None) -> Concurrency:
    """Return one run at a time with all threads unless ``workers`` is a number: the steps of a program cannot be measured."""
    number = 1 if workers == AUTO else workers
    threads = os.environ.get("OMP_NUM_THREADS", "")
    every = int(threads) if threads.isdecimal() and int(threads) else processors()
    return Concurrency(number, recorded or max(1, every // min(number, max(1, plan.total))))


def _layouts(most: int, threads: int) -> Layouts:
    """Return numbers of workers, the powers of two up to ``most`` and ``most`` itself -> the threads of each."""
    numbers = {2**i for i in range(most.bit_length()) if 2**i <= most} | {most}
    return {number: max(1, threads // number) for number in sorted(numbers)}


def _fitting(most: Concurrency, peak: int) -> Concurrency:
    """Return as many runs at a time as fit into the memory together, of which each takes ``peak`` bytes."""
    available = available_memory()
    fit = most.workers if available is None else max(1, int(MEMORY_SHARE * available / peak))
    if fit >= most.workers:
        return most
    return Concurrency(fit, most.threads, _too_little(available, peak) if available else "")


def _too_little(available: int, peak: int) -> str:
    return f"more do not fit into {available / 2**30:.3g} GiB: a run takes up to {peak / 2**30:.2g} GiB"


def _fastest(times: StepTimes, layouts: Layouts, *, runs: int) -> Concurrency:
    """Return the layout with which all runs end soonest, among the layouts that fit into the memory."""
    available = available_memory() if times.device_memory is None else times.device_memory
    fits = [n for n in times.seconds if n == 1 or available is None or n * times.peak <= MEMORY_SHARE * available]
    total = {number: -(-runs // number) * times.seconds[number] for number in fits}
    best = max(number for number in fits if total[number] <= NOISE * min(total.values()))
    rates = {number: number / seconds for number, seconds in times.seconds.items()}
    gains = [
        f"{significant(rates[best] / rate, 2)} times as many steps/s as {describe(Concurrency(number, layouts[number]))}"
        for number, rate in rates.items()
        if number != best
    ]
    memory = f"; {_too_little(available, times.peak)}" if available and len(fits) < len(times.seconds) else ""
    return Concurrency(best, layouts[best], f"{', '.join(gains)}, as measured{memory}")


def known_step_seconds(plan: Plan, concurrency: Concurrency, *, root: Path) -> tuple[Cell, float] | None:
    """Return the smallest cell and the seconds of one of its steps, with so many runs at a time and threads of each.

    Steps that were measured with more runs at a time, which slow each other down, stand for steps of fewer runs.

    Returns:
        None when this machine has not measured such steps of this plan on its CPU.
    """
    import torch

    cells = [cell for cell in (*plan.stages, *plan.cells) if cell.refusal is None]
    if any(cell.config.machine.device.startswith("cuda") for cell in cells):
        return None
    layouts = _layouts(min(processors(), max(1, plan.total)), torch.get_num_threads())
    times = known_step_times(cells, layouts, root=root) if cells else None
    alike = [n for n in times.seconds if n >= concurrency.workers and layouts[n] == concurrency.threads] if times else []
    return (by_size(cells)[0], times.seconds[min(alike)]) if times and alike else None


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
    """Start the server that the workers of a study are forked from, and remember the code of the user that they run."""
    start_fork_server(PRELOAD if plan.study.command is None else PRELOAD_OF_COMMANDS)
    remember(_code(plan))


def _code(plan: Plan) -> dict[str, str]:
    """Return the users' files and modules that the plan runs -> digests."""
    configs = [cell.settings for cell in (*plan.stages, *plan.cells) if cell.refusal is None]
    configs = [config for config in configs if isinstance(config, RunConfig)]
    return {name: digest for config in configs for name, digest in {**config.sources, **config.packages}.items()}
