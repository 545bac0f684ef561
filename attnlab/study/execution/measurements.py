"""Measurements of training steps in separate processes, and the files that keep them for a machine.

- For the number of runs at a time: steps in several layouts. A layout is a number of runs that train at the same time, with the
  number of CPU threads of each. On CUDA, all of them use one device.
- For the settings of the machine that `auto` chooses from: steps under each of them. The settings take turns, so that other
  programs on the machine slow all of them. The steps of all configurations run at the same time, as runs of a study do. Buffers
  that malloc keeps stay with a process, so steps with and without `reuse_memory` have a process each; the precision of training
  and of products is switched within a process.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from attnlab._util.code_digest import state_folder
from attnlab._util.files import replacing, require_no_pipe
from attnlab._util.process import fork_with_pipe
from attnlab._version import __version__
from attnlab.errors import UserError
from attnlab.planning.machine import FASTER, MATMUL, PRECISION, StepTime, is_clear
from attnlab.study.execution.child import output_to
from attnlab.study.execution.job import PRELOAD
from attnlab.tracking.client import import_mlflow
from attnlab.tracking.tags import device_name

if TYPE_CHECKING:
    import torch

    from attnlab.config.run import RunConfig
    from attnlab.planning.plan import Cell
    from attnlab.training.example_step import ExampleStep

logger = logging.getLogger(__name__)

FILE = "step_times.json"  # in the runs folder
SECONDS = 0.5  # of each measurement
LARGEST_BATCH = 0.0  # seconds of a measurement of memory: where shapes vary, of a batch of the longest rows
CUDA_CONTEXT = 600 * 2**20  # bytes of a device that each process needs for its context and kernels, besides its tensors

SETTINGS_FILE = "machine-settings.json"  # in the user's state folder
FORGET = "ATTNLAB_MEASURE_AGAIN"  # a variable: any value but an empty one measures again
MIN_ROUNDS = 8  # resamples of fewer rounds vary less than measurements do
MAX_SECONDS = 15.0  # of a choice that does not become clear
LONGEST = 40.0  # after which there may be fewer rounds: on a busy machine, or if a step of long sequences takes seconds
# Of the steps with one setting in a round, so that a small cell takes several: on Zen 4, ratios of the shortest of 20 steps had
# a standard deviation of 3.7 %, those of the shortest of 4 steps 6.5 %.
TURN_SECONDS = 0.05

Layouts = Mapping[int, int]  # number of runs at a time -> threads of each
Changed = tuple[str, ...]  # paths of the fields that have their value in `FASTER`

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

    from attnlab._util.machine import room_for_kept
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

    from attnlab._util.machine import peak_memory

    if device.type != "cuda":
        return peak_memory(), None
    _, total = torch.cuda.mem_get_info(device)
    return torch.cuda.max_memory_reserved(device) + CUDA_CONTEXT, total


def measure_steps(configs: Sequence[RunConfig], paths: Sequence[str]) -> list[list[StepTime]] | None:
    """Return the steps of each configuration with each set of changed fields, or None when one of them cannot be measured.

    A measurement is kept in the user's state folder, for this processor, the version of PyTorch, and the configurations with
    their shapes, so that the same machine chooses the same. The variable ``ATTNLAB_MEASURE_AGAIN`` replaces it.

    Args:
        configs: resolved, for one thread of a CPU.
        paths: the fields that may be changed.
    """
    file = state_folder() / SETTINGS_FILE
    key = measurement_key(list(paths), [config.fingerprint() for config in configs], os.cpu_count())
    known = None if os.environ.get(FORGET) else _checked(load_measurements(file).get(key), paths, len(configs))
    if known is None:
        logger.info("measuring training steps to choose %s", " and ".join(paths))
        with ThreadPoolExecutor(1) as pool:
            pool.submit(import_mlflow)  # a study needs it next; most of the import passes while the processes start
            known = _measure(configs, paths)
        if known is None:
            return None
        with suppress(OSError):  # a plan needs no folder that can be written
            file.parent.mkdir(parents=True, exist_ok=True)
            save_measurement(file, key, [[astuple(step) for step in of_one] for of_one in known])
    return known


def _checked(content: Any, paths: Sequence[str], count: int) -> list[list[StepTime]] | None:
    """Return the steps that a file has for ``count`` configurations; None when they do not come from a measurement."""
    try:
        steps = [
            [
                StepTime(tuple(map(str, changed)), float(seconds), float(difference), tuple(map(float, rounds)))
                for changed, seconds, difference, rounds in of_one
            ]
            for of_one in content
        ]
    except (TypeError, ValueError):
        return None
    expected = {changed for group in _groups(paths) for changed in group}
    for of_one in steps:
        times = [time for step in of_one for time in (step.seconds, *step.rounds)]
        same_rounds = len({len(step.rounds) for step in of_one}) == 1
        if {step.changed for step in of_one} != expected or not same_rounds or not all(0 < time < math.inf for time in times):
            return None
    return steps if len(steps) == count else None


def _groups(paths: Sequence[str]) -> list[list[Changed]]:
    """Return the sets of changed fields, grouped by process."""
    groups: list[list[Changed]] = [[()]]
    for path in paths:
        with_path = [[(*changed, path) for changed in group] for group in groups]
        if path in (MATMUL, PRECISION):
            groups = [group + others for group, others in zip(groups, with_path, strict=True)]
        else:
            groups += with_path
    return groups


def _measure(configs: Sequence[RunConfig], paths: Sequence[str]) -> list[list[StepTime]] | None:
    """Return the steps of each configuration, measured until the choice is clear; None when a process fails."""
    groups = _groups(paths)
    settings = [changed for group in groups for changed in group]
    rounds: list[list[list[float]]] = []  # in a round, the seconds of each configuration with each of the settings
    try:
        arguments = [(config, group) for group in groups for config in configs]
        with forked(_take_steps_with, arguments, name="attnlab-calibration") as pipes:
            turns = [pipes[i : i + len(configs)] for i in range(0, len(pipes), len(configs))]  # the processes of each group
            differences = _take_turns(turns)
            start, steps = perf_counter(), [list[StepTime]()]
            while True:
                rounds.append(_take_turns(turns, "step"))
                steps = [_steps(settings, *of_one) for of_one in zip(zip(*rounds, strict=True), differences, strict=True)]
                is_enough = len(rounds) >= MIN_ROUNDS and is_clear(paths, {str(i): of_one for i, of_one in enumerate(steps)})
                if is_enough or perf_counter() - start >= (MAX_SECONDS if len(rounds) >= MIN_ROUNDS else LONGEST):
                    return steps
    except (EOFError, OSError, UserError):  # a process ended, because the memory did not suffice or the user's code failed
        return None


def _steps(settings: Sequence[Changed], rounds: Sequence[Sequence[float]], differences: Sequence[float]) -> list[StepTime]:
    """Return the step of one configuration with each of the settings, relative to the first one in the same round.

    A load that lasts for some rounds then slows no setting more than another.

    Args:
        settings: the sets of changed fields.
        rounds: in each round, the seconds with each of the settings.
        differences: of the gradients, with each of them.
    """
    scale = median(of_round[0] for of_round in rounds)
    relative = [
        tuple(seconds * scale / of_round[0] for seconds, of_round in zip(times, rounds, strict=True))
        for times in zip(*rounds, strict=True)
    ]
    return [
        StepTime(changed, median(times), difference, times)
        for changed, times, difference in zip(settings, relative, differences, strict=True)
    ]


def _take_turns(turns: Sequence[Sequence[Connection]], message: str | None = None) -> list[list[float]]:
    """Return the values of each configuration, which the processes of one group after another send.

    Args:
        turns: the pipes of each group, one for each configuration.
        message: is sent to the processes of a group before they answer; None: they answer unasked.
    """
    answers: list[list[list[float]]] = []
    for pipes in turns:
        for pipe in pipes:
            if message is not None:
                pipe.send(message)
        answers.append(receive(pipes))
    return [[value for values in of_one for value in values] for of_one in zip(*answers, strict=True)]


def _take_steps_with(config: RunConfig, group: Sequence[Changed], pipe: Connection) -> None:
    """Send the differences of the gradients, then for each message the seconds of a step with each set of changed fields.

    They come from the shortest of the steps that fit into ``TURN_SECONDS``.
    """
    from attnlab.training.example_step import ExampleStep, relative_difference

    output_to(Path(os.devnull))
    reference = ExampleStep(config).gradients()
    steps = [ExampleStep(config.replace({path: FASTER[path] for path in changed})) for changed in group]
    pipe.send([relative_difference(step.gradients(), reference) for step in steps])
    with suppress(EOFError):
        while pipe.recv():
            pipe.send([_shortest(step) for step in steps])


def _shortest(step: ExampleStep) -> float:
    start, times = perf_counter(), [step.seconds()]
    while perf_counter() - start < TURN_SECONDS:
        times.append(step.seconds())
    return min(times)
