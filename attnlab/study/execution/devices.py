"""The CUDA devices of a study's workers: each worker has one, in turn."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan, Run


def cuda_devices(plan: Plan, *, workers: int) -> list[str]:
    """Return the devices to divide among several workers, as CUDA_VISIBLE_DEVICES names them; empty if none are divided."""
    if workers == 1 or plan.study.command is not None:  # a program chooses its device itself
        return []
    return [] if all(cell.config.machine.device != "cuda" for cell in plan.cells) else visible_devices()


def visible_devices() -> list[str]:
    """Return the CUDA devices that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",") if visible else [str(i) for i in range(torch.cuda.device_count())]


def device_environment(run: Run, devices: Sequence[str], *, slot: int) -> dict[str, str]:
    """Return environment variables that give a worker its device; a run that names one (``cuda:1``) keeps it."""
    if not devices or run.config.machine.device != "cuda":
        return {}
    return {"CUDA_VISIBLE_DEVICES": devices[slot % len(devices)]}
