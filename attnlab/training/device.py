"""Device and process settings of a run; all are opt-in and recorded with the run.
``is_out_of_memory`` recognizes out-of-memory errors, and ``requested_memory`` returns the amount that was requested.
"""

import contextlib
import errno
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from attnlab._util.machine import reset_peak_memory, reuse_freed_memory
from attnlab.config.run import MachineConfig, RunConfig
from attnlab.errors import UserError
from attnlab.nn import processor
from attnlab.nn.processor import DTYPES
from attnlab.registry import TASKS

# Messages of out-of-memory errors that have no class of their own: torch's allocator on the CPU, C++ libraries, cuBLAS and
# cuDNN, the dynamic linker, the kernel.
_SIGNS = re.compile(
    r"can't allocate memory|cannot allocate memory|bad_alloc|out of memory|ALLOC_FAILED|could not create a memory",
    re.IGNORECASE,
)
_REQUESTED = re.compile(r"(?:tried|unable) to allocate ([\d.]+) (bytes|[KMGTPE]iB)", re.IGNORECASE)
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def resolve_device(device: str) -> str:
    """Return ``"cuda"`` or ``"cpu"`` for ``auto``, depending on whether CUDA is available, and other values unchanged."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def resolve_precision(precision: str, device: str) -> str:
    """Return ``"bf16"`` or ``"fp32"`` for ``auto``, by the instructions of the device, and other values unchanged.

    Args:
        device: resolved.
    """
    if precision != "auto":
        return precision
    has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False) if device.startswith("cuda") else processor.has_bf16()
    return "bf16" if has_bf16 else "fp32"


def set_up_run(config: RunConfig, *, rank: int = 0) -> torch.device:
    """Apply the settings of a run's machine, as ``set_up`` does."""
    return set_up(config.machine, rank=rank, shapes_vary=TASKS.get(config.task.name).shapes_vary)


def set_up(machine: MachineConfig, *, rank: int = 0, shapes_vary: bool = False) -> torch.device:
    """Apply the settings to this process, reset its peak memory, and return the device to compute on.

    Args:
        rank: this process's rank. The ranks of a run share its threads; each has its own CUDA device.
        shapes_vary: whether the shapes of batches vary (``Task.shapes_vary``).
    """
    if machine.threads is not None:
        torch.set_num_threads(max(1, machine.threads // machine.processes_per_run))
    torch.set_float32_matmul_precision(machine.matmul_precision)
    torch.backends.cudnn.allow_tf32 = (
        machine.matmul_precision != "highest"
    )  # convolutions and recurrent layers; torch's default: True
    if machine.reuse_memory:
        reuse_freed_memory(shapes_vary=shapes_vary)
    reset_peak_memory()
    device = torch.device(resolve_device(machine.device))
    if device.type == "cuda":
        device = torch.device("cuda", rank) if machine.processes_per_run > 1 else device
        torch.cuda.init()
        torch.cuda.set_device(device.index or 0)  # set_device requires an index
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


def compile_step(loss: Callable[..., Any], *, cuda_graphs: bool) -> Callable[..., Any]:
    """Compile the loss of a training step with ``torch.compile``, at its first call and again for a second shape.

    No kernel is autotuned, so that runs repeat. ``cuda_graphs`` launches all of a step at once (``mode="reduce-overhead"``).
    """
    return torch.compile(loss, options={"deterministic": True, "triton.cudagraphs": cuda_graphs})


def compilations() -> dict[str, float]:
    """Return the numbers of graphs that ``torch.compile`` made in this process, and of breaks between them, as costs."""
    from torch._dynamo.utils import counters

    return {"compiled_graphs": counters["stats"]["unique_graphs"], "graph_breaks": sum(counters["graph_break"].values())}


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Return a context in which matrix products run in ``precision`` (``fp32``, ``bf16`` or ``fp16``).

    Raises:
        UserError: for any other value, for example ``auto``, which the plan resolves.
    """
    if precision == "fp32":
        return contextlib.nullcontext()
    if precision not in DTYPES:
        raise UserError(f"train.precision: expected fp32, bf16 or fp16, got {precision!r} (the plan resolves auto)")
    return torch.autocast(device.type, DTYPES[precision])


def synchronise(device: torch.device) -> None:
    """Wait until all work submitted to the device is done, so that a following timestamp is correct."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def is_out_of_memory(error: BaseException) -> bool:
    """Return True when ``error`` means that the host or a CUDA device ran out of memory."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    return isinstance(error, (RuntimeError, ImportError)) and _SIGNS.search(str(error)) is not None


def describe_out_of_memory(error: BaseException, *, step: int, peaks: dict[str, float]) -> str:
    """Return one line: when memory ran out, how much was requested, and the peak use of that memory.

    Args:
        step: the last step taken; 0 before the first.
        peaks: as ``costs.peaks`` returns them.
    """
    on_device = isinstance(error, torch.OutOfMemoryError) or re.search(r"\bcu(da|blas|dnn)", str(error), re.IGNORECASE)
    peak = peaks.get("gpu_peak_mib" if on_device else "host_peak_mib", peaks["host_peak_mib"]) * 2**20
    when = f"at step {step}" if step else "before the first step"
    return f"out of memory {when}: requested {requested_memory(error)}, peak {format_bytes(peak)}"


def requested_memory(error: BaseException) -> str:
    """Return the requested amount of memory, as exactly as the message of ``error`` states it."""
    match = _REQUESTED.search(str(error))
    if match is None:
        return "an unknown amount"
    number, unit = match.groups()
    return f"{format_bytes(int(number))} ({int(number):,} bytes)" if unit == "bytes" else f"{number} {unit}"


def format_bytes(count: float) -> str:
    """Format a number of bytes: ``1.2 GiB``."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.1f} {_UNITS[unit]}" if unit else f"{count:.0f} bytes"
