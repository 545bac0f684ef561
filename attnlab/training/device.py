"""What a run asks of its process and its device, all of it opt-in and recorded with the run."""

import contextlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager

import torch
from torch import nn

from attnlab._util.memory import reset_peak_memory, reuse_freed_memory
from attnlab.config.run import MachineConfig
from attnlab.errors import UserError


def resolve_device(device: str) -> str:
    """``auto`` -> ``"cuda"`` where there is one, else ``"cpu"``; anything else unchanged."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def set_up(machine: MachineConfig, *, rank: int = 0) -> torch.device:
    """Apply the settings to this process, begin to measure its peak memory, and return the device to compute on.

    Args:
        rank: of the processes that share the run; they share the threads, and each has a CUDA device of its own.
    """
    if machine.threads is not None:
        torch.set_num_threads(max(1, machine.threads // machine.processes_per_run))
    torch.set_float32_matmul_precision(machine.matmul_precision)
    torch.backends.cudnn.allow_tf32 = machine.matmul_precision != "highest"  # convolutions and recurrences; torch's default: on
    if machine.reuse_memory:
        reuse_freed_memory()
    reset_peak_memory()
    device = torch.device(resolve_device(machine.device))
    if device.type == "cuda":
        device = torch.device("cuda", rank) if machine.processes_per_run > 1 else device
        torch.cuda.init()
        torch.cuda.set_device(device.index or 0)  # it takes no device that has no index
        torch.cuda.reset_peak_memory_stats(device)
    return device


def unsupported(device: str, *, compile: bool = False) -> str | None:
    """Return the reason why this machine cannot run on ``device``, or None.

    Args:
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
        compile: whether ``torch.compile`` generates kernels for the device.
    """
    on_cuda = device.startswith("cuda")
    if on_cuda and not torch.cuda.is_available():
        return f"device {device}: no CUDA device is available"
    if not compile:
        return None
    if on_cuda:
        return None if importlib.util.find_spec("triton") else "train.compile: torch.compile requires triton on CUDA"
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    return (
        None if shutil.which(compiler) else f"train.compile: torch.compile requires a C++ compiler, {compiler} (CXX) not found"
    )


def compile_each(blocks: Iterable[nn.Module]) -> None:
    """Let ``torch.compile`` fuse what stands between the matrix products of equal modules, from their first call on.

    In place, so that weights keep their names; what is compiled for one serves all. A second shape (in evaluation, or reviews
    of other lengths) compiles once more, for any shape; of the backend with which it would not, the plan makes no compiled run
    (``attnlab.nn.attention.unsupported``). Kernels are chosen without timing them, so that a run repeats.
    """
    for block in blocks:
        block.compile(options={"deterministic": True})


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Inside, matrix products run in ``precision`` (``fp32`` or ``bf16``).

    Raises:
        UserError: ``auto``, which only a plan resolves.
    """
    if precision == "fp32":
        return contextlib.nullcontext()
    if precision != "bf16":
        raise UserError(f"train.precision: expected fp32 or bf16, got {precision!r} (the plan resolves auto)")
    return torch.autocast(device.type, torch.bfloat16)


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what was asked of it, so that a clock read next tells the truth."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
