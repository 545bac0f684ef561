"""The batches of training, and the gradient of one batch, over its ranks and micro-batches, with loss scaling in fp16.

Batches are drawn one step ahead and moved to the device, so that no step waits for data.

Loss scaling: Micikevicius et al. 2018, "Mixed Precision Training", arXiv:1710.03740, section 3.2. Gradients below 6e-8 are 0 in
fp16, so that the loss is multiplied by a scale before the backward pass and gradients are divided by it after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attnlab.config.run import RunConfig
from attnlab.models.base import Model
from attnlab.nn.functions import layer_losses_times
from attnlab.tasks import Batch, Task
from attnlab.training.device import autocast
from attnlab.training.distributed import Group

INITIAL_SCALE, MOST_SKIPPED = 2.0**16, 50  # of the loss; steps in a row, after which the scale is 2^-50 of what it was

Memory = list[Tensor] | None  # for each block, the hidden states before this segment: (rows, mem_len, dim)


def loss_of(model: Model, task: Task, batch: Batch, memory: Memory) -> tuple[Tensor, Memory]:
    """Return the mean loss over the targets of a batch, and the memory for the next one."""
    output, memory = model.forward_batch(batch, memory)
    return task.loss(output, batch), memory


def backward(
    model: Model,
    batch: RankBatch,
    memory: Memory,
    *,
    task: Task,
    config: RunConfig,
    device: torch.device,
    group: Group,
    scaler: LossScaler | None = None,
    compute: Callable[..., tuple[Tensor, Memory]] = loss_of,
) -> tuple[Tensor, Memory]:
    """Accumulate in ``model`` the gradient of the mean loss over all targets of a batch, summed over the ranks.

    Args:
        batch: this rank's part of the batch.
        memory: the hidden states of its rows; None or empty without memory.
        scaler: scales the gradients; None does not.
        compute: ``loss_of``, or the same compiled.

    Returns:
        The loss of the whole batch, a scalar still on the device, and the memory for the next batch.
    """
    memories = _split(memory, len(batch.parts))
    loss, scale = torch.zeros((), device=device), torch.ones((), device=device)
    if scaler is not None:
        scale = scaler.scale(scale)
    for i, (part, share) in enumerate(zip(batch.parts, batch.shares, strict=True)):
        with layer_losses_times(scale * share):
            with autocast(device, config.train.precision):
                # A compiled step has one graph for batches that start with an empty memory, and one for the others.
                before, part = None if part.fresh else memories[i], replace(part, fresh=False)
                if share:
                    part_loss, memories[i] = compute(model, task, part, before)
                else:  # the mean over no targets is NaN; gradients must exist all the same: all ranks sum theirs
                    output, memories[i] = model.forward_batch(part, before)
                    part_loss = _zero(output)
            (part_loss * share * scale).backward()
        loss += part_loss.detach() * share
    # One message: the loss travels with the gradients.
    group.all_reduce([loss, *(p.grad for p in model.parameters() if p.grad is not None)])
    return loss, _join(memories)


class LossScaler:
    """Dynamic loss scaling in fp16 (``torch.amp.GradScaler``); in other precisions, it does nothing.

    The scale is halved after a step with gradients that are not finite, which is skipped, and doubled after 2,000 others.

    Attributes:
        skipped: steps that were skipped so far.
        in_a_row: steps that were skipped since the last update of the weights.
    """

    def __init__(self, precision: str, device: torch.device) -> None:
        self._scaler = torch.amp.GradScaler(device.type, init_scale=INITIAL_SCALE, enabled=precision == "fp16")
        self.skipped = self.in_a_row = 0

    @property
    def is_active(self) -> bool:
        """True in fp16."""
        return self._scaler.is_enabled()

    @property
    def is_stuck(self) -> bool:
        """True when no scale makes the gradients finite."""
        return self.in_a_row >= MOST_SKIPPED

    def scale(self, loss: Tensor) -> Tensor:
        """Return the loss multiplied by the scale."""
        return self._scaler.scale(loss)

    def step(self, optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], *, grad_clip: float | None) -> bool:
        """Clip the gradients and update the weights; return False if the step is skipped.

        In fp16, the device is waited for, as the optimizer needs to know whether the gradients are finite.
        """
        if self.is_active:
            self._scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(parameters, math.inf if grad_clip is None else grad_clip)
            is_finite = bool(norm.isfinite())
            self._scaler.update()
            self.skipped, self.in_a_row = self.skipped + (not is_finite), 0 if is_finite else self.in_a_row + 1
            if not is_finite:
                return False
        elif grad_clip is not None:
            nn.utils.clip_grad_norm_(parameters, grad_clip)
        optimizer.step()
        return True

    def figures(self) -> dict[str, float]:
        """Return a point of the curve of the scale; {} in other precisions."""
        return {"train/loss_scale": self._scaler.get_scale()} if self.is_active else {}

    def state(self) -> dict[str, Any]:
        """Return the state that a checkpoint stores."""
        return {"scaler": self._scaler.state_dict(), "skipped": self.skipped, "in_a_row": self.in_a_row}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from ``state``."""
        self._scaler.load_state_dict(state["scaler"])
        self.skipped, self.in_a_row = state["skipped"], state["in_a_row"]


def _zero(output: Any) -> Tensor:
    """Return a zero that depends on every tensor of an output."""
    return torch.stack([z.float().sum() for z in tree_leaves(output)]).sum() * 0


def _split(memory: Memory, parts: int) -> list[Memory]:
    """Split the memory by rows, one part for each micro-batch."""
    if not memory:
        return [None] * parts
    return [list(rows) for rows in zip(*(m.tensor_split(parts) for m in memory), strict=True)]


def _join(memories: list[Memory]) -> Memory:
    kept = [m for m in memories if m]
    return [torch.cat(rows) for rows in zip(*kept, strict=True)] if kept else None


@dataclass(frozen=True)
class RankBatch:
    """One rank's part of a batch, on its device.

    Attributes:
        parts: the rank's micro-batches.
        shares: of all targets in the whole batch, the fraction in each micro-batch.
        tokens: tokens of the whole batch.
    """

    parts: list[Batch]
    shares: list[float]
    tokens: int


class Prefetcher:
    """Draw one rank's parts of the training batches.

    On CUDA a step runs asynchronously: a batch that ``prefetch`` draws meanwhile is pinned and on its way before the device
    needs it. Targets are counted on the CPU, so that no step synchronises with the device.

    Attributes:
        seconds: time that the program spent on drawing batches and on starting their copies.
    """

    def __init__(self, task: Task, config: RunConfig, *, group: Group, device: torch.device) -> None:
        self._task, self._config, self._group, self._device = task, config, group, device
        self._ahead: dict[int, RankBatch] = {}
        self.seconds = 0.0

    def take(self, step: int) -> RankBatch:
        """Return the batch of ``step``, drawing it now if it was not prefetched, and forget it."""
        if step not in self._ahead:
            self.prefetch(step)
        return self._ahead.pop(step)

    def prefetch(self, step: int) -> None:
        """Draw the batch of a coming step."""
        start = perf_counter()
        train_config = self._config.train
        batch = self._task.train_batch(step, seed=self._config.seed, batch_size=train_config.batch_size)
        targets = max(1, int((batch.targets >= 0).sum()))  # a batch without targets has shares of 0
        rows, counts = self._group.rows(batch)
        parts = rows.split(train_config.gradient_accumulation)
        shares = [int((part.targets >= 0).sum()) * counts / targets for part in parts]
        self._ahead = {step: RankBatch([part.to(self._device) for part in parts], shares, batch.tokens)}
        self.seconds += perf_counter() - start
