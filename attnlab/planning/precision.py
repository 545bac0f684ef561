"""``train.precision`` in the plan: the value that ``auto`` stands for, and a note where bf16 is slow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from attnlab.config.grid import CellConfig
from attnlab.config.run import RunConfig
from attnlab.nn import processor
from attnlab.planning.resolve import Resolved
from attnlab.training.device import resolve_device

CLEARLY = 1.2  # times as fast: less may be noise

Resolve = Callable[[CellConfig], Resolved]


def with_precision(cells: Sequence[CellConfig], resolve: Resolve) -> tuple[list[CellConfig], list[str]]:
    """The cells with ``precision: auto`` resolved, and a note on each decision.

    Cells on one kind of device get one precision, else they could not be compared: bf16 where every one of them can run in
    it and, on a CPU, bf16 products are measured to be faster.

    Args:
        cells: all those of a study.
        resolve: resolves one cell whose precision is not ``auto``.

    Raises:
        UserError: as ``resolve`` does.
    """
    found, notes = {id(cell): cell for cell in cells}, []
    for kind in ("cpu", "cuda"):
        asking = [cell for cell in cells if cell.config.train.precision == "auto" and _kind(cell.config) == kind]
        if asking:
            precision, why = _decision(kind, asking, resolve)
            found |= {id(cell): _in(cell, precision) for cell in asking}
            notes.append(f"train.precision: auto is {precision} on {kind}: {why}")
    return list(found.values()), notes


def _decision(kind: str, cells: Sequence[CellConfig], resolve: Resolve) -> tuple[str, str]:
    """The precision of cells that leave it open, and why."""
    speedup = _speedup(cell.config for cell in cells) if kind == "cpu" else None
    if speedup is not None and speedup < CLEARLY:
        return "fp32", _compared(speedup)
    lacking = next(_without_bf16(cells, resolve), None)
    if lacking is not None:
        return "fp32", lacking
    return "bf16", "every cell can run in it" if speedup is None else _compared(speedup)


def _without_bf16(cells: Iterable[CellConfig], resolve: Resolve) -> Iterator[str]:
    """Which cells run in fp32 alone, and why."""
    for cell in cells:
        reason = resolve(_in(cell, "bf16")).refusal
        if reason is not None and resolve(_in(cell, "fp32")).refusal is None:
            yield f"{cell.name!r} cannot run in bf16 ({reason})"


def about_slow_bf16(configs: Iterable[RunConfig]) -> Iterator[str]:
    """A note where configurations are in bf16 on a CPU that runs it slower than fp32.

    Args:
        configs: resolved.
    """
    slow = [config for config in configs if config.train.precision == "bf16" and _kind(config) == "cpu"]
    speedup = _speedup(slow) if slow else CLEARLY
    if speedup * CLEARLY < 1:
        yield f"{_compared(speedup)}: use train.precision: fp32 or auto"


def _speedup(configs: Iterable[RunConfig]) -> float:
    """Of bf16 products, in the setting where they gain least."""
    return min(processor.bf16_speedup(setting) for setting in {config.machine.matmul_precision for config in configs})


def _compared(speedup: float) -> str:
    slower = speedup * CLEARLY < 1
    times = f"{float(f'{1 / speedup if slower else speedup:.2g}'):g} times"  # two digits: it is measured in milliseconds
    return f"bf16 products are {times} {'slower than' if slower else 'as fast as'} fp32 products on this processor"


def _kind(config: RunConfig) -> str:
    return resolve_device(config.machine.device).partition(":")[0]


def _in(cell: CellConfig, precision: str) -> CellConfig:
    train = cell.config.train.model_copy(update={"precision": precision})
    return replace(cell, config=cell.config.model_copy(update={"train": train}))
