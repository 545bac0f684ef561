"""A training step on an example batch, to time and to compare settings of the machine. It needs no data."""

from time import process_time

import torch
from torch import Tensor

from attnlab._util.user_code import load_sources
from attnlab.config.run import RunConfig
from attnlab.models.build import build
from attnlab.registry import TASKS
from attnlab.training.costs import micro_batch
from attnlab.training.decoding_costs import full_memory
from attnlab.training.device import set_up_run
from attnlab.training.distributed.group import Group
from attnlab.training.gradients import backward
from attnlab.training.optim import build_optimizer
from attnlab.training.prefetch import RankBatch


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

    NaN if a value is not finite.
    """
    (loss, gradients), (reference_loss, reference_gradients) = values, reference
    pairs = [([loss], [reference_loss]), (gradients, reference_gradients)]
    return float(torch.stack([_relative(ours, theirs) for ours, theirs in pairs]).max())  # of NaN and a number: NaN


def _relative(values: list[Tensor], reference: list[Tensor]) -> Tensor:
    difference = _norm([ours.double() - theirs.double() for ours, theirs in zip(values, reference, strict=True)])
    return difference / _norm(reference) if difference else difference


def _norm(tensors: list[Tensor]) -> Tensor:
    return torch.stack([torch.linalg.vector_norm(tensor.double()) for tensor in tensors]).norm()
