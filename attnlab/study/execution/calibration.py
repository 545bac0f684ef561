"""Measure the settings of the machine that `auto` chooses from: training steps under each of them, on this machine.

The settings take turns, so that other programs on the machine slow all of them. The steps of all configurations run at the
same time, as runs of a study do. Buffers that malloc keeps stay with a process, so steps with and without `reuse_memory` have
a process each; precision and that of products are switched within a process.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from attnlab.errors import UserError
from attnlab.planning.machine import FASTER, MATMUL, PRECISION, StepTime
from attnlab.study.execution.child import output_to
from attnlab.study.execution.measurements import forked, load_measurements, measurement_key, receive, save_measurement
from attnlab.tracking.client import import_mlflow

if TYPE_CHECKING:
    from attnlab.config.run import RunConfig
    from attnlab.training.example_step import ExampleStep

FILE = "machine_settings.json"  # in the runs folder
SECONDS = 2.5  # of the measurement
MIN_ROUNDS = 3
MAX_SECONDS = 10.0  # after which there may be fewer rounds: a step of long sequences takes seconds
# Of the steps with one setting in a round, so that a small cell takes several: on Zen 4, ratios of the shortest of 20 steps had
# a standard deviation of 3.7 %, those of the shortest of 4 steps 6.5 %.
TURN_SECONDS = 0.1

Changed = tuple[str, ...]  # paths of the fields that have their value in `FASTER`

logger = logging.getLogger(__name__)


def measure_steps(configs: Sequence[RunConfig], paths: Sequence[str], *, root: Path) -> list[list[StepTime]] | None:
    """Return the steps of each configuration with each set of changed fields, or None if one of them cannot be measured.

    Args:
        configs: resolved, for one thread of a CPU.
        paths: the fields that may be changed.
        root: the folder of runs, which keeps measurements.
    """
    key = measurement_key(list(paths), [config.fingerprint() for config in configs])
    known = load_measurements(root / FILE).get(key, [])
    if not known:
        logger.info("measuring training steps to choose %s", " and ".join(paths))
        with ThreadPoolExecutor(1) as pool:
            pool.submit(import_mlflow)  # a study needs it next; most of the import passes while the processes start
            measured = _measure(configs, paths)
        if measured is None:
            return None
        known = measured
        with suppress(OSError):  # a plan needs no folder of runs
            save_measurement(root / FILE, key, known)
    return [[StepTime(tuple(changed), seconds, difference) for changed, seconds, difference in of_one] for of_one in known]


def _measure(configs: Sequence[RunConfig], paths: Sequence[str]) -> list[list[tuple[Changed, float, float]]] | None:
    """Return, for each configuration, changed fields, seconds and difference of each step; None if a process fails."""
    groups: list[list[Changed]] = [[()]]  # one for each process
    for path in paths:
        with_path = [[(*changed, path) for changed in group] for group in groups]
        if path in (MATMUL, PRECISION):
            groups = [group + others for group, others in zip(groups, with_path, strict=True)]
        else:
            groups += with_path
    settings = [changed for group in groups for changed in group]
    rounds: list[list[list[float]]] = []  # in a round, the seconds of each configuration with each of the settings
    try:
        arguments = [(config, group) for group in groups for config in configs]
        with forked(_take_steps, arguments, name="attnlab-calibration") as pipes:
            turns = [pipes[i : i + len(configs)] for i in range(0, len(pipes), len(configs))]  # the processes of each group
            differences = _take_turns(turns)
            start, elapsed = perf_counter(), 0.0
            while elapsed < (SECONDS if len(rounds) >= MIN_ROUNDS else MAX_SECONDS):
                rounds.append(_take_turns(turns, "step"))
                elapsed = perf_counter() - start
    except (EOFError, OSError, UserError):  # a process ended, because the memory did not suffice or the user's code failed
        return None
    shortest = [[min(times) for times in zip(*of_one, strict=True)] for of_one in zip(*rounds, strict=True)]
    return [list(zip(settings, *of_one, strict=True)) for of_one in zip(shortest, differences, strict=True)]


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


def _take_steps(config: RunConfig, group: Sequence[Changed], pipe: Connection) -> None:
    """Send the differences of the gradients, then for each message the seconds of a step with each set of changed fields.

    They are those of the shortest of the steps that fit into ``TURN_SECONDS``.
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
