"""Recognition of out-of-memory errors, and the amount of memory that was requested."""

import errno
import re

import torch

# Messages of out-of-memory errors that have no class of their own: torch's allocator on the CPU, C++ libraries, cuBLAS and
# cuDNN, the dynamic linker, the kernel.
_SIGNS = re.compile(
    r"can't allocate memory|cannot allocate memory|bad_alloc|out of memory|ALLOC_FAILED|could not create a memory",
    re.IGNORECASE,
)
_REQUESTED = re.compile(r"(?:tried|unable) to allocate ([\d.]+) (bytes|[KMGTPE]iB)", re.IGNORECASE)
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if ``error`` means that the host or a CUDA device ran out of memory."""
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
