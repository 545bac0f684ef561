"""The optimiser and the learning-rate schedule."""

import math

import torch
from torch import nn

from attnlab.config.run import TrainConfig
from attnlab.tasks import Task
from attnlab.training.fine_tuning import learning_rate_scales


def total_steps(config: TrainConfig, task: Task) -> int:
    """Return the number of optimiser steps of the whole run."""
    if config.steps is not None:
        return config.steps
    assert config.epochs is not None  # exactly one of the two is set
    return max(1, round(config.epochs * task.steps_per_epoch(config.batch_size)))


def learning_rate(step: int, total: int, config: TrainConfig) -> float:
    """Return the learning rate of a step, as a pure function of it.

    The rate warms up linearly, then stays constant or follows half a cosine down to ``final_lr`` x ``lr``.

    Args:
        step: 0 to ``total - 1``.
    """
    warmup = config.warmup if isinstance(config.warmup, int) else round(config.warmup * total)
    if step < warmup:
        return config.lr * (step + 1) / warmup
    if config.schedule == "constant":
        return config.lr
    progress = (step - warmup) / max(1, total - warmup)
    return config.lr * (config.final_lr + (1 - config.final_lr) * (1 + math.cos(math.pi * progress)) / 2)


def adamw(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Return AdamW with weight decay on matrices, and none on gains, biases and other vectors.

    Each group has an ``lr_scale``, the factor of its learning rate (``train.layer_lr_decay``). Frozen parameters have no group.
    """
    trained = [(p, scale) for p, scale in learning_rate_scales(model, config) if p.requires_grad]
    groups = [
        {"params": [p for p, own in trained if own == scale and (p.dim() >= 2) == is_matrix], "lr_scale": scale} | decay
        for scale in sorted({scale for _, scale in trained}, reverse=True)
        for is_matrix, decay in ((True, {}), (False, {"weight_decay": 0.0}))
    ]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group to ``rate`` times its ``lr_scale``."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["lr_scale"]
