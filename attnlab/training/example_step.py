"""A training step on an example batch, to time and to compare settings of the machine. It needs no data and trains no run."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, process_time

import torch
from torch import Tensor

from attnlab._util.user_code import load_sources
from attnlab.config.run import RunConfig
from attnlab.models.build import build
from attnlab.registry import TASKS
from attnlab.training.costs import full_memory, micro_batch
from attnlab.training.device import set_up_run, synchronise
from attnlab.training.distributed import Group
from attnlab.training.gradients import RankBatch, backward
from attnlab.training.optim import build_optimizer
from attnlab.training.trainer import Trainer

WARMUP = 2  # steps before the measurement: the first ones allocate memory and choose kernels


class ExampleStep:
    """A training step of a configuration on one micro-batch of full length. The model is not compiled.

    Args:
        config: resolved, for one process.
    """

    def __init__(self, config: RunConfig) -> None:
        load_sources(config.sources)
        self.config, self.device = config, set_up_run(config)
        self.task = TASKS.get(config.task.name)(**config.task.options)
        self.model = build(config, self.task).to(self.device).train()
        self.optimizer = build_optimizer(self.model, config.train)
        rows = micro_batch(config)
        batch = self.model.example_batch(self.task, rows, device=self.device, padded=True)
        self._batch = RankBatch([batch], [1.0], batch.tokens)
        self._memory = full_memory(config, rows, like=next(self.model.parameters()))

    def gradients(self) -> tuple[Tensor, list[Tensor]]:
        """Return the loss and the gradients of the present weights, with the same dropout at each call."""
        set_up_run(self.config)
        torch.manual_seed(self.config.seed)
        self.optimizer.zero_grad()
        loss = self._backward()
        return loss, [p.grad.clone() for p in self.model.parameters() if p.grad is not None]

    def seconds(self) -> float:
        """Take a step, and return the CPU time of clearing the gradients, forward, backward and update.

        The time of a single thread is the same on a busy machine, but for what caches and clocks do.
        """
        set_up_run(self.config)  # another step in this process may have other settings
        start = process_time()
        self.optimizer.zero_grad()
        self._backward()
        self.optimizer.step()
        return process_time() - start

    def _backward(self) -> Tensor:
        context = {"task": self.task, "config": self.config, "device": self.device, "group": Group()}
        return backward(self.model, self._batch, self._memory, **context)[0]


def relative_difference(values: tuple[Tensor, list[Tensor]], reference: tuple[Tensor, list[Tensor]]) -> float:
    """Return the difference of two losses or of their gradients, relative to the norm of the reference; the larger one.

    NaN when a value is not finite.
    """
    (loss, gradients), (reference_loss, reference_gradients) = values, reference
    pairs = [([loss], [reference_loss]), (gradients, reference_gradients)]
    return float(torch.stack([_relative(ours, theirs) for ours, theirs in pairs]).max())  # of NaN and a number: NaN


def _relative(values: list[Tensor], reference: list[Tensor]) -> Tensor:
    difference = _norm([ours.double() - theirs.double() for ours, theirs in zip(values, reference, strict=True)])
    return difference / _norm(reference) if difference else difference


def _norm(tensors: list[Tensor]) -> Tensor:
    return torch.stack([torch.linalg.vector_norm(tensor.double()) for tensor in tensors]).norm()


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
