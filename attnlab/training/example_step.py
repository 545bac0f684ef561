"""Training steps that are timed and not recorded."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch

from attnlab._util.user_code import load_sources
from attnlab.config.run import RunConfig
from attnlab.training.device import set_up_run, synchronise
from attnlab.training.distributed import Group
from attnlab.training.trainer import Trainer

WARMUP = 2  # steps before the measurement: the first ones allocate memory and choose kernels


def time_steps(config: RunConfig, *, seconds: float, ready: Callable[[], None]) -> tuple[int, float, torch.device]:
    """Take training steps for a while, and return their number, the seconds that they took, and their device.

    Nothing is recorded.

    Args:
        config: resolved, for one process. Training starts from random weights even when the run starts from a stage.
        seconds: the time after which no further step begins; at least one is taken.
        ready: called before the measurement, after the warm-up; it may wait for other processes.
    """
    load_sources(config.sources)
    device = set_up_run(config)
    trainer = Trainer(config, group=Group(), folder=None, device=device, report=lambda step, metrics: False)
    for _ in range(WARMUP):
        trainer.take_step()
    synchronise(device)
    ready()
    start, first = perf_counter(), trainer.step
    while trainer.step == first or perf_counter() - start < seconds:
        trainer.take_step()
    synchronise(device)
    return trainer.step - first, perf_counter() - start, device
