"""`attnlab tune`: measure training steps on this machine, and print the fastest workers, threads and precision of a study.

A layout is a number of runs at the same time with the number of threads of each. Its runs train the largest cell of the study
for a few seconds, each in a process. Nothing is recorded.
"""

from __future__ import annotations

import os
from argparse import Namespace
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.cli._arguments import Parser
from attnlab.cli._printing import print_table, print_text, show_progress
from attnlab.cli._study import add_study_arguments, plan_study
from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.config.run import RunConfig

HELP = "measure training steps of a study on this machine and print the fastest workers, threads and precision"
SECONDS = 2.0  # of each measurement
PATIENCE = 300.0  # seconds until a process is ready, or has taken its steps
GAIN = 1.05  # smaller gains over fp32 and over fewer runs at a time may be noise


def add_arguments(parser: Parser) -> None:
    add_study_arguments(parser)


def main(arguments: Namespace) -> int:
    from attnlab._util.machine import processors
    from attnlab.registry import TASKS
    from attnlab.training.device import resolve_precision

    plan = plan_study(arguments)
    plan.require_runs()
    if plan.study.command is not None:
        raise UserError("expected a study of attnlab's training, got one of a program: measure it with its own tools")
    cell = max((cell for cell in plan.cells if cell.refusal is None), key=lambda cell: cell.train_flops or 0)
    config = cell.config
    TASKS.get(config.task.name)(**config.task.options).prepare()
    precisions = list(dict.fromkeys(("fp32", resolve_precision("auto", config.machine.device))))
    most = max(1, min(processors(), plan.total))
    layouts = {n: max(1, processors() // n) for n in sorted({2**i for i in range(most.bit_length()) if 2**i <= most} | {most})}
    rates: dict[tuple[str, int], float] = {}
    with show_progress() as progress:
        for precision in precisions:
            for workers, threads in layouts.items():
                progress(f"steps of {cell.name}: {precision}, {workers} at a time")
                changes = {"train.precision": precision, "machine.threads": threads}
                if (rate := steps_per_second(config.replace(changes), workers)) is not None:
                    rates[precision, workers] = rate
    if not rates:
        raise UserError(f"no step of {cell.name!r} could be measured: its memory did not suffice, or its code failed")
    print_text(f"Training steps of {cell.name!r}, the largest cell, of all runs together:")
    headings = ["precision", "runs at a time", "threads each", "steps/s"]
    print_table(headings, [[p, str(n), str(layouts[n]), f"{rate:.3g}"] for (p, n), rate in rates.items()])
    precision, workers = fastest(rates)
    print("\nLines for the base of the study:\n")
    print(f"base:\n  train: {{precision: {precision}}}\n  machine: {{threads: {layouts[workers]}}}\n")
    print(f"Then: attnlab run {arguments.study} --workers {workers}")
    return 0


def fastest(rates: dict[tuple[str, int], float]) -> tuple[str, int]:
    """Return the first precision and number of runs at a time that nothing exceeds by more than `GAIN`."""
    return next(key for key, rate in rates.items() if max(rates.values()) <= GAIN * rate)


def steps_per_second(config: RunConfig, workers: int, *, seconds: float = SECONDS) -> float | None:
    """Return the training steps per second of `workers` runs together; None when one of them fails."""
    from attnlab._util.process import fork_with_pipe
    from attnlab.study.execution.job import PRELOAD

    children = [fork_with_pipe(_take_steps, config, seconds, name="attnlab-tune", preload=PRELOAD) for _ in range(workers)]
    try:
        for _, pipe in children:
            _receive(pipe)  # it is ready
        for _, pipe in children:
            pipe.send("start")
        return sum(_receive(pipe) for _, pipe in children)
    except (EOFError, OSError):  # a process ended
        return None
    finally:
        for process, pipe in children:
            process.kill()
            process.join()
            pipe.close()


def _receive(pipe: Connection) -> float:
    if not pipe.poll(PATIENCE):
        raise TimeoutError
    return pipe.recv()


def _take_steps(config: RunConfig, seconds: float, pipe: Connection) -> None:
    from attnlab.study.execution.child import output_to
    from attnlab.training.example_step import time_steps

    def ready() -> None:
        pipe.send(0.0)
        pipe.recv()

    output_to(Path(os.devnull))
    with suppress(BrokenPipeError):
        steps, elapsed, _ = time_steps(config, seconds=seconds, ready=ready)
        pipe.send(steps / elapsed)
