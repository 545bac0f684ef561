"""The gradient of one batch, rank by rank and micro-batch by micro-batch."""

import torch
from torch import Tensor

from attnlab import machine
from attnlab.config import RunConfig
from attnlab.evaluate import forward
from attnlab.model import Classifier, LanguageModel
from attnlab.parallel.group import Group
from attnlab.tasks import Batch, Task

Memory = list[Tensor] | None  # of each block the hidden states before this segment


def backward(
    model: LanguageModel | Classifier,
    batch: Batch,
    memory: Memory,
    *,
    task: Task,
    config: RunConfig,
    device: torch.device,
    group: Group,
) -> tuple[Tensor, Memory]:
    """Leave in ``model`` the gradient of the mean loss over all that ``batch`` wants predicted.

    Args:
        batch: the whole batch, on the CPU; each rank computes its own rows.
        memory: what this rank's rows remember.

    Returns:
        The loss of the whole batch, still on the device, and the memory for the next one.
    """
    counted = (batch.targets >= 0).sum().item()
    mine, counts = group.rows(batch)
    parts = mine.to(device).split(config.train.accumulate)
    memories = _split(memory, len(parts))
    loss = torch.zeros((), device=device)
    for i, part in enumerate(parts):
        share = (part.targets >= 0).sum() * counts / counted
        with machine.autocast(device, config.train.precision):
            logits, memories[i] = forward(model, part, memories[i])
            part_loss = task.loss(logits, part) * share
        part_loss.backward()
        loss += part_loss.detach()
    group.add_up([loss, *(p.grad for p in model.parameters() if p.grad is not None)])
    return loss, _join(memories)


def _split(memory: Memory, parts: int) -> list[Memory]:
    if not memory:
        return [None] * parts
    return [list(rows) for rows in zip(*(m.tensor_split(parts) for m in memory), strict=True)]


def _join(memories: list[Memory]) -> Memory:
    kept = [m for m in memories if m]
    return [torch.cat(rows) for rows in zip(*kept, strict=True)] if kept else None
