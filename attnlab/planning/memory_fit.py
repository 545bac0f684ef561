"""Estimate the CUDA memory of each cell, and compare it with the memory of the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attnlab._util.progress import Progress, no_progress, track
from attnlab.config.run import RunConfig
from attnlab.training import device as training_device
from attnlab.training.device import format_bytes

if TYPE_CHECKING:
    from attnlab.planning.cell import Cell

MIB = 2**20
OVERHEAD = 1024  # MiB for the CUDA context, workspaces of libraries and fragmentation


def cuda_peaks(cells: Sequence[Cell], *, progress: Progress = no_progress) -> dict[str, float | str]:
    """Return cell name -> estimated peak memory of a training step in MiB, or the reason why there is no estimate.

    Cells that differ only in fields without an effect on memory are estimated once.
    """
    peaks: dict[str, float | str] = {}
    known: dict[str, float | str] = {}
    for cell in track(cells, "estimating CUDA memory", progress):
        if cell.refusal is None or _lacks_device(cell):
            shape = _shape(cell)
            key = shape.to_json()
            if key not in known:
                known[key] = _estimate(shape)
            peaks[cell.name] = known[key]
    return peaks


def requests_cuda(cell: Cell) -> bool:
    """Return True when the cell is for a CUDA device, whether this machine has one or not."""
    return cell.config.machine.device.startswith("cuda")


def _lacks_device(cell: Cell) -> bool:
    """Return True when the cell is refused because this machine has no CUDA device, the first rule of ``planning.support``."""
    device = cell.config.machine.device
    return device.startswith("cuda") and cell.refusal == training_device.unsupported(device)


def _shape(cell: Cell) -> RunConfig:
    """Return the configuration on CUDA, reduced to the fields that affect the memory of a step."""
    from attnlab.training.costs import one_step

    return one_step(cell.config).model_copy(update={"backend": cell.cuda_backend})


def _estimate(config: RunConfig) -> float | str:
    from attnlab.registry import TASKS
    from attnlab.training.cuda_memory import cuda_peak_mib

    try:
        return cuda_peak_mib(config, TASKS.get(config.task.name)(**config.task.options))
    except Exception as error:  # a user's variant may read values of a tensor, which fake tensors lack
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"


def memory_notes(cells: Sequence[Cell], peaks: Mapping[str, float | str]) -> Iterator[str]:
    """Yield notes on cells without an estimate, and on cells that do not fit into the memory of their device."""
    import torch

    for cell in cells:
        peak, device = peaks.get(cell.name), cell.config.machine.device
        if isinstance(peak, str):
            yield f"{cell.name!r} has no estimate of its memory on CUDA: {peak}"
        elif peak is not None and device.startswith("cuda") and torch.cuda.is_available():
            properties = torch.cuda.get_device_properties(torch.device(device))
            if peak + OVERHEAD > properties.total_memory / MIB:
                need, has = format_bytes((peak + OVERHEAD) * MIB), format_bytes(properties.total_memory)
                yield f"{cell.name!r} will not fit: about {need} with CUDA's own, and {properties.name} has {has}"
