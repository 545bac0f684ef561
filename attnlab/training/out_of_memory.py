"""Telling that memory ran out from every other error, and saying how much was asked for."""

import errno
import re

import torch

# What stands in an error where memory ran out and Python has no class for it: torch's allocator on the CPU, C++
# libraries, cuBLAS and cuDNN, the dynamic linker, the kernel.
_SIGNS = re.compile(
    r"can't allocate memory|cannot allocate memory|bad_alloc|out of memory|ALLOC_FAILED|could not create a memory",
    re.IGNORECASE,
)
_ASKED = re.compile(r"(?:tried|unable) to allocate ([\d.]+) (bytes|[KMGTPE]iB)", re.IGNORECASE)
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that there was no memory left, on the host or on a CUDA device."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    return isinstance(error, (RuntimeError, ImportError)) and _SIGNS.search(str(error)) is not None


def reason(error: BaseException, *, step: int, peaks: dict[str, float]) -> str:
    """One line: when memory ran out, what was asked for, and the most that was held of the memory that ran out.

    Args:
        step: the last step taken; 0 before the first.
        peaks: as ``measure.peaks`` gives them.
    """
    on_device = isinstance(error, torch.OutOfMemoryError) or re.search(r"\bcu(da|blas|dnn)", str(error), re.IGNORECASE)
    peak = peaks.get("gpu_peak_mib" if on_device else "host_peak_mib", peaks["host_peak_mib"]) * 2**20
    when = f"at step {step}" if step else "before the first step"
    return f"out of memory {when}: asked for {asked(error)}, peak {size(peak)}"


def asked(error: BaseException) -> str:
    """How much was asked for, as exactly as the error says it."""
    found = _ASKED.search(str(error))
    if found is None:
        return "an amount that the error does not tell"
    number, unit = found.groups()
    return f"{size(int(number))} ({int(number):,} bytes)" if unit == "bytes" else f"{number} {unit}"


def size(count: float) -> str:
    """A number of bytes for people: ``1.2 GiB``."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.1f} {_UNITS[unit]}" if unit else f"{count:.0f} bytes"
