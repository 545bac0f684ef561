"""Resolve ``train.precision: auto``, and note configurations in which bf16 is slow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from attnlab.config.grid import CellConfig
from attnlab.config.run import RunConfig
from attnlab.nn import processor
from attnlab.planning.resolve import ResolvedCell
from attnlab.training.device import resolve_device

MIN_SPEEDUP = 1.2  # smaller measured ratios may be noise

Resolve = Callable[[CellConfig], ResolvedCell]


def resolve_precision(
    cells: Sequence[CellConfig], resolve: Resolve, recorded: Callable[[], Mapping[str, str]] = dict
) -> tuple[list[CellConfig], dict[str, str], list[str]]:
    """Return the cells with ``precision: auto`` resolved, the decisions (type of device -> precision), and a note on each.

    Cells on one type of device get the same precision, so that they can be compared: that of the study's recorded runs, so
    that a resumed study continues them; otherwise bf16 if all of them support it and, on a CPU, if bf16 matrix products are
    measured to be faster.

    Args:
        cells: all those of a study.
        resolve: resolves one cell whose precision is not ``auto``.
        recorded: returns the decisions that the study recorded; called only if a cell has ``auto``.

    Raises:
        UserError: as ``resolve`` does.
    """
    resolved, notes = {id(cell): cell for cell in cells}, []
    decisions: dict[str, str] = {}
    earlier = recorded() if any(cell.config.train.precision == "auto" for cell in cells) else {}
    for kind in ("cpu", "cuda"):
        open_cells = [cell for cell in cells if cell.config.train.precision == "auto" and _kind(cell.config) == kind]
        if open_cells:
            reason = "the recorded runs of this study have it; to change it, set train.precision"
            precision, reason = (earlier[kind], reason) if kind in earlier else _decision(kind, open_cells, resolve)
            decisions[kind] = precision
            resolved |= {id(cell): _in(cell, precision) for cell in open_cells}
            notes.append(f"train.precision: auto is {precision} on {kind}: {reason}")
    return list(resolved.values()), decisions, notes


def _decision(kind: str, cells: Sequence[CellConfig], resolve: Resolve) -> tuple[str, str]:
    """Return the precision of cells with ``auto``, and the reason."""
    speedup = _speedup(cell.config for cell in cells) if kind == "cpu" else None
    if speedup is not None and speedup < MIN_SPEEDUP:
        return "fp32", _compared(speedup)
    lacking = next(_without_bf16(cells, resolve), None)
    if lacking is not None:
        return "fp32", lacking
    return "bf16", "every cell can run in it" if speedup is None else _compared(speedup)


def _without_bf16(cells: Iterable[CellConfig], resolve: Resolve) -> Iterator[str]:
    """Yield a sentence for each cell that runs in fp32 but not in bf16."""
    for cell in cells:
        reason = resolve(_in(cell, "bf16")).refusal
        if reason is not None and resolve(_in(cell, "fp32")).refusal is None:
            yield f"{cell.name!r} cannot run in bf16 ({reason})"


def slow_bf16_notes(configs: Iterable[RunConfig]) -> Iterator[str]:
    """Yield a note if configurations use bf16 on a CPU on which it is slower than fp32.

    Args:
        configs: resolved.
    """
    slow = [config for config in configs if config.train.precision == "bf16" and _kind(config) == "cpu"]
    speedup = _speedup(slow) if slow else MIN_SPEEDUP
    if speedup * MIN_SPEEDUP < 1:
        yield f"{_compared(speedup)}: use train.precision: fp32 or auto"


def _speedup(configs: Iterable[RunConfig]) -> float:
    """Return the speedup of bf16 matrix products over fp32, for the setting of ``matmul_precision`` with the smallest one."""
    return min(processor.bf16_speedup(setting) for setting in {config.machine.matmul_precision for config in configs})


def _compared(speedup: float) -> str:
    slower = speedup * MIN_SPEEDUP < 1
    # Two digits, because the measurement takes milliseconds.
    times = f"{float(f'{1 / speedup if slower else speedup:.2g}'):g} times"
    return f"bf16 products are {times} {'slower than' if slower else 'as fast as'} fp32 products on this processor"


def _kind(config: RunConfig) -> str:
    return resolve_device(config.machine.device).partition(":")[0]


def _in(cell: CellConfig, precision: str) -> CellConfig:
    train = cell.config.train.model_copy(update={"precision": precision})
    return replace(cell, settings=cell.config.model_copy(update={"train": train}))
