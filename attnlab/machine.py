"""What a run asks of its process and its device, all of it opt-in and recorded with the run."""

import contextlib
import ctypes
import sys
from contextlib import AbstractContextManager

import torch

from attnlab.config import MachineConfig

# malloc.h of glibc
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def resolve_device(device: str) -> str:
    """``auto`` -> ``"cuda"`` where there is one, else ``"cpu"``; anything else unchanged."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def set_up(machine: MachineConfig) -> torch.device:
    """Apply the settings to this process and return the device to compute on."""
    if machine.threads is not None:
        torch.set_num_threads(machine.threads)
    torch.set_float32_matmul_precision(machine.matmul_precision)
    if machine.reuse_memory:
        reuse_freed_memory()
    device = torch.device(resolve_device(machine.device))
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.cuda.reset_peak_memory_stats(device)
    return device


def reuse_freed_memory() -> None:
    """Let malloc keep large freed buffers instead of returning them to the kernel, which hands them back page by page.

    glibc only; elsewhere it changes nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):  # musl has a mallopt of its own meaning
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Inside, matrix products run in ``precision`` (``fp32`` or ``bf16``)."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what was asked of it, so that a clock read next tells the truth."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
