"""Memory of a process and of the machine (limits, peaks, the kernel's out-of-memory killer), and the processors of a process.

The only module that reads ``/proc``. Outside Linux most figures are unknown, which each function states.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

from attnlab.errors import UserError

CGROUP = Path("/sys/fs/cgroup")

MAX_RESIDENT = 1 << 30  # bytes of a process that keeps freed buffers of varying sizes, between two steps
MAX_KEPT = 1 << 29  # bytes, of a process that needs more

# malloc.h of glibc
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def peak_memory() -> int:
    """Return the peak resident size of this process in bytes.

    Linux's record comes first: ``ru_maxrss`` also covers the program that the process ran before ``exec``.
    """
    peak = _process_field("self", "VmHWM")
    if peak is not None:
        return peak
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def resident_memory() -> int:
    """Return the present resident size of this process in bytes, or 0 when the system is not Linux."""
    return _process_field("self", "VmRSS") or 0


def peak_memory_of(pid: int) -> int:
    """Return the peak resident size of process ``pid`` in bytes, or 0 when it has exited or the system is not Linux."""
    return _process_field(str(pid), "VmHWM") or 0


def reset_peak_memory() -> None:
    """Reset the peak of this process to its present size. Without kernel support, the peak since its start remains."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def available_memory() -> int | None:
    """Return the bytes of memory that new processes can use on this machine, or None when the system does not report it."""
    return _field(Path("/proc/meminfo"), "MemAvailable")


def limit_memory(limit: int) -> None:
    """Limit the private memory of this process and of its children to ``limit`` bytes.

    An allocation beyond the limit fails in the process that makes it, so the run ends as ``out_of_memory`` before the
    kernel kills a separate process choice. RLIMIT_DATA counts private writable memory; RLIMIT_AS would also count
    address space, of which CUDA reserves terabytes and torch's libraries gigabytes that they never fill.

    Raises:
        UserError: the process already uses more than ``limit`` bytes.
    """
    used = _process_field("self", "VmData")
    if used is not None and used >= limit:
        raise UserError(f"expected a memory limit above the {used:,} bytes that a run uses at its start, got {limit:,} bytes")
    _, hard_limit = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard_limit))


def describe_address_limit(error: BaseException) -> str | None:
    """Return one line for an error that a limit on address space (``ulimit -v``) may have caused, or None.

    Libraries report such a limit in many ways: importing pandas, for example, ends in a ``SystemError``.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    short = isinstance(error, MemoryError | SystemError | ImportError) or getattr(error, "errno", None) == errno.ENOMEM
    if limit == resource.RLIM_INFINITY or not short:
        return None
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    return f"expected more address space than `ulimit -v` allows here, {limit >> 10:,} KiB: raise the limit ({reason})"


def reuse_freed_memory(*, shapes_vary: bool = False) -> None:
    """Make malloc keep large freed buffers instead of returning them to the kernel, which would page them in again.

    Affects glibc only.

    Args:
        shapes_vary: keep only buffers below 64 MiB: a larger one rarely fits into the gap that one of another size has left, so
            that the heap would grow with each longer batch, in multi30k-cpu to 7 GB.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):  # musl's mallopt has other parameters
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 26 if shapes_vary else 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


class KeptMemory:
    """Bounds the freed memory that malloc keeps, which grows where the sizes of buffers vary."""

    def __init__(self) -> None:
        self._most = MAX_RESIDENT

    def release(self) -> None:
        """Return freed memory to the kernel if this process holds more than ``MAX_RESIDENT``, or 512 MiB more than it needs."""
        if resident_memory() <= self._most:
            return
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)
        self._most = max(MAX_RESIDENT, resident_memory() + MAX_KEPT)


def oom_kills() -> int:
    """Return the number of processes that the out-of-memory killer has ended, in this container or else on the machine."""
    for path in (CGROUP / "memory.events", Path("/proc/vmstat")):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        counts = [int(line.split()[1]) for line in lines if line.split()[0] == "oom_kill"]
        if counts:
            return counts[0]
    return 0


def _process_field(process: str, name: str) -> int | None:
    return _field(Path(f"/proc/{process}/status"), name)


def _field(path: Path, name: str) -> int | None:
    """Read the field ``name:   123 kB`` of a file under ``/proc``, in bytes; None when it is missing."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    sizes = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(sizes[0]) * 1024 if sizes else None


def processors() -> int:
    """Return their number: those that the process may run on, and no more than the quota of its container."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # not Linux, another version of cgroups, or "max": no quota
        quota, period = map(int, (CGROUP / "cpu.max").read_text(encoding="utf-8").split())
        count = min(count, max(1, quota // period))
    return count
