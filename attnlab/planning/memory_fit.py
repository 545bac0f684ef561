"""What each cell would take of a CUDA device's memory, and whether the device that is there has as much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attnlab.config.run import EvaluateConfig, RunConfig, TrainConfig
from attnlab.training import device as training_device
from attnlab.training.out_of_memory import format_bytes

if TYPE_CHECKING:
    from attnlab.planning.cell import Cell

MIB = 2**20
OVERHEAD = 1024  # MiB that the CUDA context, libraries' workspaces and fragments take besides
DECIDES = ("batch_size", "gradient_accumulation", "precision", "activation_checkpointing")  # fields of train that move the peak


def cuda_peaks(cells: Sequence[Cell]) -> dict[str, float | str]:
    """The estimated peak of each cell's training step in MiB by the cell's name, or why there is none.

    Cells that a device cannot tell apart are estimated once.
    """
    found: dict[str, float | str] = {}
    known: dict[str, float | str] = {}
    for cell in cells:
        if cell.refusal is None or _lacks_device(cell):
            shape = _shape(cell)
            key = shape.to_json()
            if key not in known:
                known[key] = _estimate(shape)
            found[cell.name] = known[key]
    return found


def _lacks_device(cell: Cell) -> bool:
    """Return True if the cell is refused because this machine has no CUDA device, the first rule of ``planning.support``."""
    device = cell.config.machine.device
    return device.startswith("cuda") and cell.refusal == training_device.unsupported(device)


def _shape(cell: Cell) -> RunConfig:
    """The configuration on CUDA, without what has no part in how much memory a step takes."""
    train = TrainConfig(steps=1, **{name: getattr(cell.config.train, name) for name in DECIDES})
    changes = {"backend": cell.cuda_backend, "train": train, "evaluate": EvaluateConfig(), "seed": 0}
    return cell.config.model_copy(update=changes)


def _estimate(config: RunConfig) -> float | str:
    from attnlab.registry import TASKS
    from attnlab.training.cuda_memory import cuda_peak_mib

    try:
        return cuda_peak_mib(config, TASKS.get(config.task.name)(**config.task.options))
    except Exception as error:  # a variant of someone else's may ask a tensor for its values, which a fake one lacks
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"


def about_fit(cells: Sequence[Cell], peaks: Mapping[str, float | str]) -> Iterator[str]:
    """Notes on cells that have no estimate, and on those that do not fit into the device that they are for."""
    import torch

    for cell in cells:
        peak, device = peaks.get(cell.name), cell.config.machine.device
        if isinstance(peak, str):
            yield f"{cell.name!r} has no estimate of its memory on CUDA: {peak}"
        elif peak is not None and device.startswith("cuda") and torch.cuda.is_available():
            there = torch.cuda.get_device_properties(torch.device(device))
            if peak + OVERHEAD > there.total_memory / MIB:
                need, has = format_bytes((peak + OVERHEAD) * MIB), format_bytes(there.total_memory)
                yield f"{cell.name!r} will not fit: about {need} with CUDA's own, and {there.name} has {has}"
