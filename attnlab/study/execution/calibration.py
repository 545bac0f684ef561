"""Measure the settings of the machine that `auto` chooses from: training steps under each of them, on this machine.

The settings take turns, so that other programs on the machine slow all of them. The steps of all configurations run at the
same time, as runs of a study do. Buffers that malloc keeps stay with a process, so steps with and without `reuse_memory` have
a process each; the precision of training and of products is switched within a process.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from attnlab._util.known_code import state_folder
from attnlab.errors import UserError
from attnlab.planning.machine import FASTER, MATMUL, PRECISION, StepTime, is_clear
from attnlab.study.execution.child import output_to
from attnlab.study.execution.measurements import forked, load_measurements, measurement_key, receive, save_measurement
from attnlab.tracking.client import import_mlflow

if TYPE_CHECKING:
    from attnlab.config.run import RunConfig
    from attnlab.training.example_step import ExampleStep

FILE = "machine-settings.json"  # in the user's state folder
FORGET = "ATTNLAB_MEASURE_AGAIN"  # a variable: any value but an empty one measures again
MIN_ROUNDS = 8  # resamples of fewer rounds vary less than measurements do
MAX_SECONDS = 15.0  # of a choice that does not become clear
LONGEST = 40.0  # after which there may be fewer rounds: on a busy machine, or if a step of long sequences takes seconds
# Of the steps with one setting in a round, so that a small cell takes several: on Zen 4, ratios of the shortest of 20 steps had
# a standard deviation of 3.7 %, those of the shortest of 4 steps 6.5 %.
TURN_SECONDS = 0.05

Changed = tuple[str, ...]  # paths of the fields that have their value in `FASTER`

logger = logging.getLogger(__name__)


def measure_steps(configs: Sequence[RunConfig], paths: Sequence[str]) -> list[list[StepTime]] | None:
    """Return the steps of each configuration with each set of changed fields, or None when one of them cannot be measured.

    A measurement is kept in the user's state folder, for this processor, the version of PyTorch, and the configurations with
    their shapes, so that the same machine chooses the same. The variable ``ATTNLAB_MEASURE_AGAIN`` replaces it.

    Args:
        configs: resolved, for one thread of a CPU.
        paths: the fields that may be changed.
    """
    file = state_folder() / FILE
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
        with forked(_take_steps, arguments, name="attnlab-calibration") as pipes:
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


def _take_steps(config: RunConfig, group: Sequence[Changed], pipe: Connection) -> None:
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
