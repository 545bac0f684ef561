"""attnlab's side of comparisons: a resolved configuration, and a trainer that is ready for its next step."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import attnlab
from attnlab.config.run import RunConfig
from attnlab.training import device as machine
from attnlab.training.distributed import Group
from attnlab.training.trainer import Trainer
from benchmarks.speed.case import Case, Size, own_settings


def config(case: Case, size: Size, *, settings: dict[str, Any] | None = None, **changes: Any) -> RunConfig:
    """Return a configuration resolved like those of studies.

    Args:
        settings: the ``machine`` settings; default: ``own_settings``.
        **changes: dotted paths, with ``__`` for the dot.
    """
    base = {
        "task": {"name": "pydocs", "length": size.length},
        "position": "learned",
        "model": {"dim": size.dim, "depth": size.depth, "heads": size.heads},
        "train": {"steps": 1_000, "batch_size": size.batch, "lr": size.lr, "precision": case.precision},
        "machine": {"device": case.device, **(own_settings(case) if settings is None else settings)},
    }
    grid = {"variant": [changes.pop("variant", "dense")]}
    sets = {name.replace("__", "."): value for name, value in changes.items()}
    cell = attnlab.plan({"study": "speed", "base": base, "grid": grid, "seeds": [0]}, sets=sets).cells[0]
    if cell.refusal:
        raise RuntimeError(f"{case}: {cell.refusal}")
    return cell.config


def training(run_config: RunConfig) -> Trainer:
    """Return a trainer as ``attnlab.training.train`` sets it up."""
    device = machine.set_up(run_config.machine)
    return Trainer(run_config, group=Group(), folder=None, device=device, report=lambda step, metrics: False)


def stepper(run: Trainer) -> Callable[[], Tensor]:
    """Return a function that takes the run's next step, including data and clipping, and returns the loss."""

    def step() -> Tensor:
        run.take_step()
        return run.pending[-1]

    return step


def parameters(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
