"""The gradient of one batch, over its ranks and micro-batches."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from attnlab.config.run import RunConfig
from attnlab.models.base import Model
from attnlab.tasks import Task
from attnlab.training.device import autocast
from attnlab.training.distributed.group import Group
from attnlab.training.prefetch import RankBatch

Memory = list[Tensor] | None  # for each block, the hidden states before this segment: (rows, mem_len, dim)


def backward(
    model: Model,
    batch: RankBatch,
    memory: Memory,
    *,
    task: Task,
    config: RunConfig,
    device: torch.device,
    group: Group,
) -> tuple[Tensor, Memory]:
    """Accumulate in ``model`` the gradient of the mean loss over all targets of a batch, summed over the ranks.

    Args:
        batch: this rank's part of the batch.
        memory: the hidden states of its rows; None or empty without memory.

    Returns:
        The loss of the whole batch, a scalar still on the device, and the memory for the next batch.
    """
    memories = _split(memory, len(batch.parts))
    loss = torch.zeros((), device=device)
    for i, (part, share) in enumerate(zip(batch.parts, batch.shares, strict=True)):
        with autocast(device, config.train.precision):
            output, memories[i] = model.forward_batch(part, memories[i])
            # The mean over no targets is NaN even with weight 0. Gradients must exist all the same: all ranks sum theirs.
            part_loss = task.loss(output, part) * share if share else _zero(output)
        del output  # free them before the backward pass, which keeps the tensors that it needs
        part_loss.backward()
        loss += part_loss.detach()
    # One message: the loss travels with the gradients.
    group.all_reduce([loss, *(p.grad for p in model.parameters() if p.grad is not None)])
    return loss, _join(memories)


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
