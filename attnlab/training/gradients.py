"""The gradient of one batch, rank by rank and micro-batch by micro-batch."""

import torch
from torch import Tensor

from attnlab.config.run import RunConfig
from attnlab.models.classifier import Classifier
from attnlab.models.language_model import LanguageModel
from attnlab.tasks import Task
from attnlab.training import device as machine
from attnlab.training.distributed.group import Group
from attnlab.training.evaluate import forward
from attnlab.training.prefetch import RankBatch

Memory = list[Tensor] | None  # of each block the hidden states before this segment


def backward(
    model: LanguageModel | Classifier,
    portion: RankBatch,
    memory: Memory,
    *,
    task: Task,
    config: RunConfig,
    device: torch.device,
    group: Group,
) -> tuple[Tensor, Memory]:
    """Leave in ``model`` the gradient of the mean loss over all that a batch wants predicted.

    Args:
        portion: this rank's of the batch.
        memory: what its rows remember.

    Returns:
        The loss of the whole batch, still on the device, and the memory for the next one.
    """
    memories = _split(memory, len(portion.parts))
    loss = torch.zeros((), device=device)
    for i, (part, share) in enumerate(zip(portion.parts, portion.shares, strict=True)):
        with machine.autocast(device, config.train.precision):
            logits, memories[i] = forward(model, part, memories[i])
            # a mean over nothing is no number, however little it counts; gradients there must be: ranks add them up together
            part_loss = task.loss(logits, part) * share if share else logits.float().sum() * 0
        del logits  # or they would lie there during the backward pass, which keeps what it needs of them
        part_loss.backward()
        loss += part_loss.detach()
    group.all_reduce([loss, *(p.grad for p in model.parameters() if p.grad is not None)])
    return loss, _join(memories)


def _split(memory: Memory, parts: int) -> list[Memory]:
    if not memory:
        return [None] * parts
    return [list(rows) for rows in zip(*(m.tensor_split(parts) for m in memory), strict=True)]


def _join(memories: list[Memory]) -> Memory:
    kept = [m for m in memories if m]
    return [torch.cat(rows) for rows in zip(*kept, strict=True)] if kept else None
