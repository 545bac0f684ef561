"""How weights move: the optimiser, and the learning rate as a pure function of the step."""

import math

import torch
from torch import nn

from attnlab.config.run import TrainConfig
from attnlab.tasks import Task


def total_steps(config: TrainConfig, task: Task) -> int:
    """Optimiser steps of the whole run."""
    if config.steps is not None:
        return config.steps
    assert config.epochs is not None  # exactly one of the two is set
    return max(1, round(config.epochs * task.steps_per_epoch(config.batch_size)))


def learning_rate(step: int, total: int, config: TrainConfig) -> float:
    """The rate of step 0 .. total-1: linear warm-up, then constant or half a cosine down to ``final_lr`` x ``lr``."""
    warmup = config.warmup if isinstance(config.warmup, int) else round(config.warmup * total)
    if step < warmup:
        return config.lr * (step + 1) / warmup
    if config.schedule == "constant":
        return config.lr
    progress = (step - warmup) / max(1, total - warmup)
    return config.lr * (config.final_lr + (1 - config.final_lr) * (1 + math.cos(math.pi * progress)) / 2)


def adamw(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW that decays matrices and leaves gains, biases and vectors alone."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay, fused=True)
