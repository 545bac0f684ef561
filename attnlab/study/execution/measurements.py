"""Measurements of training steps, several runs at a time, in separate processes, and the files that keep them for a machine.

A layout is a number of runs that train at the same time, with the number of CPU threads of each. On CUDA, all of them use one
device.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.files import replacing, require_no_pipe
from attnlab._util.process import fork_with_pipe
from attnlab._version import __version__
from attnlab.errors import UserError
from attnlab.study.execution.child import output_to
from attnlab.study.execution.job import PRELOAD
from attnlab.tracking.tags import device_name

if TYPE_CHECKING:
    import torch

    from attnlab.config.run import RunConfig
    from attnlab.planning.plan import Cell

FILE = "step_times.json"  # in the runs folder
SECONDS = 0.5  # of each measurement
LARGEST_BATCH = 0.0  # seconds of a measurement of memory: where shapes vary, of a batch of the longest rows
CUDA_CONTEXT = 600 * 2**20  # bytes of a device that each process needs for its context and kernels, besides its tensors

Layouts = Mapping[int, int]  # number of runs at a time -> threads of each

logger = logging.getLogger(__name__)
PATIENCE = 120.0  # seconds until a process is ready, or has taken its steps


def measurement_key(*content: Any) -> str:
    """Return the key of a measurement on this machine: its processor, the versions, and ``content``, which JSON can hold."""
    import torch

    instructions = [torch.backends.cpu.get_cpu_capability(), os.environ.get("ONEDNN_MAX_CPU_ISA")]
    text = json.dumps([device_name("cpu"), instructions, torch.__version__, __version__, *content])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_measurements(path: Path) -> dict[str, Any]:
    """Return the measurements in a file; none if it is missing or damaged."""
    with suppress(OSError, ValueError, UserError):
        require_no_pipe(path)
        known = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(known, dict):
            return known
    return {}


def save_measurement(path: Path, key: str, value: Any) -> None:
    """Add a measurement to a file."""
    known = load_measurements(path) | {key: value}
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(known, indent=1), encoding="utf-8")


@contextmanager
def forked(target: Callable[..., None], arguments: Iterable[tuple[Any, ...]], *, name: str) -> Iterator[list[Connection]]:
    """Start a process that calls ``target(*of_one, pipe)`` for each entry of ``arguments``, and end them all with the block.

    Yields:
        The other ends of their pipes, in order.

    Raises:
        UserError: as ``fork_with_pipe``.
    """
    processes, pipes = [], []
    try:
        for of_one in arguments:
            process, pipe = fork_with_pipe(target, *of_one, name=name, preload=PRELOAD)
            processes.append(process)
            pipes.append(pipe)
        yield pipes
    finally:
        for process in processes:
            process.kill()
            process.join()
        for pipe in pipes:
            pipe.close()


def receive(pipes: Sequence[Connection]) -> list[Any]:
    """Return a message from each pipe.

    Raises:
        TimeoutError: none came.
        EOFError: the process at the other end ended.
    """
    if not all(pipe.poll(PATIENCE) for pipe in pipes):
        raise TimeoutError
    return [pipe.recv() for pipe in pipes]


@dataclass(frozen=True)
class StepTimes:
    """Measured times of training steps.

    Attributes:
        seconds: number of runs at a time -> seconds of a step of each of them.
        peak: the peak memory of a run of the largest cell in bytes: resident memory, on CUDA memory of the device.
        device_memory: the memory of the CUDA device in bytes; None on a CPU.
    """

    seconds: Mapping[int, float]
    peak: int
    device_memory: int | None = None


def by_size(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells in the order of the FLOPs of their training."""
    return sorted(cells, key=lambda cell: cell.train_flops or 0)


def known_step_times(cells: Sequence[Cell], layouts: Layouts, *, root: Path) -> StepTimes | None:
    """Return the times that an earlier measurement of the same cells on this machine left in the folder of runs, else None."""
    times = load_measurements(root / FILE).get(_key(cells, layouts))
    if not times:
        return None
    return StepTimes({int(n): value for n, value in times["seconds"].items()}, times["peak"], times["device_memory"])


def measured_step_times(cells: Sequence[Cell], layouts: Layouts, *, root: Path) -> StepTimes | None:
    """Measure the times of steps of the smallest cell and the memory of the largest one, and keep them; None on failure."""
    ordered = by_size(cells)
    logger.info("measuring steps of %s with %s runs at a time", ordered[0].name, " and ".join(map(str, layouts)))
    seconds = {}
    for number, threads in layouts.items():
        results = measure([ordered[0].config] * number, threads=threads, seconds=SECONDS)
        if results is None:
            return None
        seconds[number] = sum(result[0] for result in results) / number
    alone = measure([ordered[-1].config], threads=max(layouts.values()), seconds=LARGEST_BATCH)
    if alone is None:
        return None
    ((_, peak, device_memory),) = alone
    save_measurement(root / FILE, _key(cells, layouts), {"seconds": seconds, "peak": peak, "device_memory": device_memory})
    return StepTimes(seconds, peak, device_memory)


def _key(cells: Sequence[Cell], layouts: Layouts) -> str:
    """Return the key of a measurement of the smallest and the largest cell."""
    from attnlab.tracking.tags import device_name

    ordered = by_size(cells)
    device = device_name(ordered[0].config.machine.device)
    return measurement_key(device, dict(layouts), ordered[0].config.fingerprint(), ordered[-1].config.fingerprint())


def measure(configs: Sequence[RunConfig], *, threads: int, seconds: float) -> list[tuple[float, int, int | None]] | None:
    """Return the seconds of a step, the peak memory and the memory of the CUDA device of runs that train at the same time.

    Memory is in bytes. The result is None when a run fails.
    """
    try:
        with forked(_take_steps, [(config, threads, seconds) for config in configs], name="attnlab-steps") as pipes:
            receive(pipes)  # each is ready
            for pipe in pipes:
                pipe.send("start")
            return receive(pipes)
    except (EOFError, OSError):  # a process ended, because the memory did not suffice or the user's code failed
        return None


def _take_steps(config: RunConfig, threads: int, seconds: float, pipe: Connection) -> None:
    """Send a message when the measurement can begin, and after an answer the result of ``measure``."""
    import torch

    from attnlab._util.memory import room_for_kept
    from attnlab.registry import TASKS
    from attnlab.training.example_step import ExampleStep, time_steps

    def ready() -> None:
        pipe.send("ready")
        pipe.recv()

    output_to(Path(os.devnull))
    torch.set_num_threads(config.machine.threads or threads)
    if seconds == LARGEST_BATCH and TASKS.get(config.task.name).shapes_vary:
        step = ExampleStep(config.replace({"machine.threads": config.machine.threads or threads}))
        ready()
        # At worst, the largest batch of a run reuses nothing of what smaller ones have left.
        unused = room_for_kept() if config.machine.reuse_memory and step.device.type == "cpu" else 0
        seconds, (peak, device_memory) = step.seconds(), _memory(step.device)
        pipe.send((seconds, peak + unused, device_memory))
        return
    steps, elapsed, device = time_steps(config, seconds=seconds, ready=ready)
    pipe.send((elapsed / steps, *_memory(device)))


def _memory(device: torch.device) -> tuple[int, int | None]:
    """Return the peak memory of this process, and the memory of a CUDA device, in bytes."""
    import torch

    from attnlab._util.memory import peak_memory

    if device.type != "cuda":
        return peak_memory(), None
    _, total = torch.cuda.mem_get_info(device)
    return torch.cuda.max_memory_reserved(device) + CUDA_CONTEXT, total
