"""The number of runs that train at the same time, and the number of threads of each.

On a CPU, several runs of a small model with one thread each finish sooner than one after the other with all threads, which
spend much of each step waiting for each other. How much sooner depends on the model and on the machine, so it is measured: for
a second or two, with steps of the study's smallest cell.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from attnlab._util.memory import available_memory, peak_memory
from attnlab._util.plural import count
from attnlab._util.processors import processors
from attnlab.errors import UserError
from attnlab.study.execution.devices import visible_devices
from attnlab.study.execution.measurements import forked, load_measurements, measurement_key, receive, save_measurement
from attnlab.study.execution.worker import TRAIN, output_to

if TYPE_CHECKING:
    from attnlab.config.run import RunConfig
    from attnlab.planning.plan import Cell, Plan

Workers = int | Literal["auto"]

AUTO: Literal["auto"] = "auto"
VARIABLE = "ATTNLAB_WORKERS"
FILE = "step_times.json"  # in the runs folder
SECONDS = 0.5  # of each measurement
NOISE = 1.1  # a smaller gain is not worth waiting for all threads, which other programs on the machine slow down
MEMORY_SHARE = 0.8  # of the available memory that all runs together may need

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Concurrency:
    """The number of runs at a time, and the threads of each.

    Attributes:
        workers: the number of runs that train at the same time.
        threads: of each run whose configuration leaves their number open.
        reason: why, in one line, where it was measured or is surprising; else "".
    """

    workers: int
    threads: int
    reason: str = ""


@dataclass(frozen=True)
class StepTimes:
    """Measured times of training steps.

    Attributes:
        seconds: number of runs at a time -> seconds of a step of each of them.
        peak: the peak resident memory of a run of the largest cell in bytes.
    """

    seconds: Mapping[int, float]
    peak: int


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

    The numbers are those of the whole plan, not of the runs that are left: a run that is resumed alone computes with the
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
    if any(machine.device.startswith("cuda") for machine in machines):
        devices = visible_devices() if any(machine.device == "cuda" for machine in machines) else []
        number = min(max(1, len(devices)), runs)
        return Concurrency(number, recorded or max(1, threads // number))
    if is_fixed or recorded is not None:
        each = max(fixed) if is_fixed else recorded or 1
        return Concurrency(min(max(1, processors() // each), runs), each)
    layouts = _layouts(min(processors(), runs), threads)
    measurable = train == TRAIN and all(machine.processes_per_run == 1 for machine in machines)
    if len(layouts) == 1 or not measurable:
        return Concurrency(1, threads)
    times = _known_step_times(cells, layouts, root=root)
    if times is None and measure:
        times = _measured_step_times(cells, layouts, root=root)
    if times is None:
        return Concurrency(1, threads, "its steps could not be measured")
    return _fastest(times, layouts, runs=runs)


def _choose_for_programs(plan: Plan, workers: Workers, *, recorded: int | None) -> Concurrency:
    """Return one run at a time with all threads unless ``workers`` is a number: the steps of a program cannot be measured."""
    number = 1 if workers == AUTO else workers
    threads = os.environ.get("OMP_NUM_THREADS", "")
    every = int(threads) if threads.isdecimal() and int(threads) else processors()
    return Concurrency(number, recorded or max(1, every // min(number, max(1, plan.total))))


def _layouts(most: int, threads: int) -> dict[int, int]:
    """Return numbers of workers, the powers of two up to ``most`` and ``most`` itself -> the threads of each."""
    numbers = {2**i for i in range(most.bit_length()) if 2**i <= most} | {most}
    return {number: max(1, threads // number) for number in sorted(numbers)}


def _fastest(times: StepTimes, layouts: Mapping[int, int], *, runs: int) -> Concurrency:
    """Return the layout with which all runs end soonest, of those whose runs fit into the memory together."""
    available = available_memory()
    fits = [n for n in times.seconds if n == 1 or available is None or n * times.peak <= MEMORY_SHARE * available]
    total = {number: -(-runs // number) * times.seconds[number] for number in fits}
    best = max(number for number in fits if total[number] <= NOISE * min(total.values()))
    rates = {number: number / seconds for number, seconds in times.seconds.items()}
    gains = [
        f"{rates[best] / rate:.2g} times as many steps/s as {describe(Concurrency(number, layouts[number]))}"
        for number, rate in rates.items()
        if number != best
    ]
    memory = f"; more do not fit into {available / 2**30:.3g} GiB" if available and len(fits) < len(times.seconds) else ""
    return Concurrency(best, layouts[best], f"{', '.join(gains)}, as measured{memory}")


def known_step_seconds(plan: Plan, concurrency: Concurrency, *, root: Path) -> tuple[Cell, float] | None:
    """Return the smallest cell and the seconds of one of its steps, with so many runs at a time and threads of each.

    Steps that were measured with more runs at a time, which slow each other down, stand for those of fewer runs.

    Returns:
        None if this machine has not measured such steps of this plan.
    """
    import torch

    cells = [cell for cell in (*plan.stages, *plan.cells) if cell.refusal is None]
    layouts = _layouts(min(processors(), max(1, plan.total)), torch.get_num_threads())
    times = _known_step_times(cells, layouts, root=root) if cells else None
    alike = [n for n in times.seconds if n >= concurrency.workers and layouts[n] == concurrency.threads] if times else []
    return (_by_size(cells)[0], times.seconds[min(alike)]) if times and alike else None


def _by_size(cells: Sequence[Cell]) -> list[Cell]:
    return sorted(cells, key=lambda cell: cell.train_flops or 0)


def _known_step_times(cells: Sequence[Cell], layouts: Mapping[int, int], *, root: Path) -> StepTimes | None:
    """Return the times that an earlier measurement of the same cells on this machine left in the folder of runs, else None."""
    times = load_measurements(root / FILE).get(_key(cells, layouts))
    return StepTimes({int(n): value for n, value in times["seconds"].items()}, times["peak"]) if times else None


def _measured_step_times(cells: Sequence[Cell], layouts: Mapping[int, int], *, root: Path) -> StepTimes | None:
    """Measure the times of steps of the smallest cell and the memory of the largest one, and keep them; None if that fails."""
    by_size = _by_size(cells)
    logger.info("measuring steps of %s with %s runs at a time", by_size[0].name, " and ".join(map(str, layouts)))
    seconds = {}
    for number, threads in layouts.items():
        results = _measure([by_size[0].config] * number, threads=threads, seconds=SECONDS)
        if results is None:
            return None
        seconds[number] = sum(result[0] for result in results) / number
    peaks = _measure([by_size[-1].config], threads=max(layouts.values()), seconds=0.0)
    if peaks is None:
        return None
    times = StepTimes(seconds, peaks[0][1])
    save_measurement(root / FILE, _key(cells, layouts), {"seconds": seconds, "peak": times.peak})
    return times


def _key(cells: Sequence[Cell], layouts: Mapping[int, int]) -> str:
    """Return the key of a measurement of the smallest and the largest cell."""
    by_size = _by_size(cells)
    return measurement_key(dict(layouts), by_size[0].config.fingerprint(), by_size[-1].config.fingerprint())


def _measure(configs: Sequence[RunConfig], *, threads: int, seconds: float) -> list[tuple[float, int]] | None:
    """Return the seconds of a step and the peak memory in bytes of runs that train at the same time; None if one fails."""
    try:
        with forked(_take_steps, [(config, threads, seconds) for config in configs], name="attnlab-steps") as pipes:
            receive(pipes)  # each is ready
            for pipe in pipes:
                pipe.send("start")
            return receive(pipes)
    except (EOFError, OSError):  # a process ended, because the memory did not suffice or the user's code failed
        return None


def _take_steps(config: RunConfig, threads: int, seconds: float, pipe: Connection) -> None:
    """Send a message when the measurement can begin, and after an answer the seconds of a step and the peak memory."""
    import torch

    from attnlab.training.step_time import time_steps

    def ready() -> None:
        pipe.send("ready")
        pipe.recv()

    output_to(Path(os.devnull))
    torch.set_num_threads(config.machine.threads or threads)
    steps, elapsed = time_steps(config, seconds=seconds, ready=ready)
    pipe.send((elapsed / steps, peak_memory()))
