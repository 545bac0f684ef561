"""What a run asks of its process and its device, all of it opt-in and recorded with the run."""

import contextlib
import ctypes
import importlib.util
import os
import resource
import shutil
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch import nn

from attnlab.config.run import MachineConfig
from attnlab.errors import UserError

# malloc.h of glibc
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


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
    reset_host_peak()
    device = torch.device(resolve_device(machine.device))
    if device.type == "cuda":
        device = torch.device("cuda", rank) if machine.processes_per_run > 1 else device
        torch.cuda.init()
        torch.cuda.set_device(device.index or 0)  # it takes no device that has no index
        torch.cuda.reset_peak_memory_stats(device)
    return device


def cannot_compile(device: str) -> str | None:
    """Why ``torch.compile`` makes no kernels for ``device`` (``"cpu"``, ``"cuda"``) here; None when it does."""
    if device.startswith("cuda"):
        return None if importlib.util.find_spec("triton") else "torch.compile needs triton for CUDA, which is not installed"
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    return None if shutil.which(compiler) else f"torch.compile needs a C++ compiler, and {compiler} is not found (see CXX)"


def compile_each(blocks: Iterable[nn.Module]) -> None:
    """Let ``torch.compile`` fuse what stands between the matrix products of equal modules, from their first call on.

    In place, so that weights keep their names; what is compiled for one serves all. A second shape (in evaluation, or reviews
    of other lengths) compiles once more, for any shape; of the backend with which it would not, the plan makes no compiled run
    (``backends.not_compiled``). Kernels are chosen without timing them, so that a run repeats.
    """
    for block in blocks:
        block.compile(options={"deterministic": True})


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


def limit_memory(limit: int) -> None:
    """Let this process, and what it starts, have at most ``limit`` bytes of memory of its own.

    Who asks for more is told so, and the run ends as ``out_of_memory``, before the kernel ends some process of its
    own choice. RLIMIT_DATA counts what is private and can be written to; RLIMIT_AS would count address space too, of
    which CUDA reserves terabytes and torch's libraries gigabytes that they never fill.

    Raises:
        UserError: the process has more than that already.
    """
    has = _status("VmData")
    if has is not None and has >= limit:
        raise UserError(f"expected a limit above the {has:,} bytes that a run has before it begins, got {limit:,} bytes")
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))


def reset_host_peak() -> None:
    """Begin anew to watch the largest memory use of the process; where the system cannot, it is that since its start."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def host_peak() -> int:
    """Bytes of the process that were in memory at most.

    From Linux's own account: ``ru_maxrss`` also remembers what the process was before it became this program.
    """
    peak = _status("VmHWM")
    if peak is not None:
        return peak
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def free_memory() -> int | None:
    """Bytes that new processes could still have on this machine; None where the system does not tell."""
    return _figure(Path("/proc/meminfo"), "MemAvailable")


def _status(name: str) -> int | None:
    """A figure of Linux's account of this process, in bytes; None on other systems."""
    return _figure(Path("/proc/self/status"), name)


def _figure(account: Path, name: str) -> int | None:
    try:
        lines = account.read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(found[0]) * 1024 if found else None


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
