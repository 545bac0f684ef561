"""Section ``profile``: breakdown of the time of attnlab's training step by operation, forward and backward together.

Each operation belongs to the range that it was called in: a module's forward or the optimiser's step. An operation of the
backward pass belongs to the range of the operation whose gradient it computes; autograd gives both the same number. Products
of two matrices (projections, feed-forward, output layer) are a group of their own; batched ones belong to attention.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from attnlab.training.trainer import Trainer
from attnlab.variants import Variant
from benchmarks.speed import attnlab_step
from benchmarks.speed.case import OURS, PRECISIONS, Case, Row, Size

PRODUCTS, ATTENTION, NORM, OPTIMISER, REST = "matrix products", "attention", "normalisation", "optimiser", "the rest"
GROUPS = (PRODUCTS, ATTENTION, NORM, OPTIMISER, REST)
MATRIX = {"aten::mm", "aten::addmm", "aten::addmm_", "aten::_addmm_activation"}
RANGE = "range: "
STEP = "whole step"


def cases(device: str) -> Iterator[Case]:
    yield from (Case("profile", OURS, "", precision, device=device) for precision in PRECISIONS)


def measure(case: Case, size: Size | None = None) -> list[Row]:
    """Measure the milliseconds per step of each group, and of each operation in it."""
    size = size or Size()
    run = attnlab_step.training(attnlab_step.config(case, size))
    step = attnlab_step.stepper(run)
    for _ in range(size.warm):
        step()
    _name_ranges(run)
    on_gpu = case.device == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as seen:
        for _ in range(size.steps):
            with record_function(STEP):
                step()
    clock = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    return shares(list(seen.events() or []), steps=size.steps, clock=clock)


def _name_ranges(run: Trainer) -> None:
    """Mark attention, norms and the optimizer's step as ranges of the profiler."""
    for module in run.model.modules():
        group = ATTENTION if isinstance(module, Variant) else NORM if isinstance(module, nn.LayerNorm) else None
        if group:
            _around(module, "forward", group)
    _around(run.optimizer, "step", OPTIMISER)


def _around(thing: Any, method: str, group: str) -> None:
    inner = getattr(thing, method)

    def call(*args: Any, **kwargs: Any) -> Any:
        with record_function(RANGE + group):
            return inner(*args, **kwargs)

    setattr(thing, method, call)


def shares(events: list[Any], *, steps: int, clock: str) -> list[Row]:
    """Return milliseconds per step by group and by (group: operation); the groups add up to the whole step."""
    inside = [event for event in events if _step_of(event)]
    homes = _homes(inside)
    times: dict[tuple[str, str], float] = {}
    for event in inside:
        key = _group(event, homes), event.name
        times[key] = times.get(key, 0.0) + getattr(event, clock) / 1e3 / steps
    groups = {group: sum(ms for (of, _), ms in times.items() if of == group) for group in GROUPS}
    detail = [Row("operation_ms", f"{group}: {name}", ms) for (group, name), ms in times.items() if ms > 0]
    return [*(Row("group_ms", group, ms) for group, ms in groups.items()), *detail]


def _above(event: Any) -> Iterator[Any]:
    """Yield the event and its callers."""
    while event is not None:
        yield event
        event = event.cpu_parent


def _step_of(event: Any) -> bool:
    return any(caller.name == STEP for caller in _above(event))


def _range(event: Any) -> str | None:
    """Return the innermost named range around an event of the forward pass or the optimiser."""
    return next((caller.name.removeprefix(RANGE) for caller in _above(event) if caller.name.startswith(RANGE)), None)


def _backward(event: Any) -> Any | None:
    """Return the node of the backward pass that an event belongs to."""
    return next((caller for caller in _above(event) if caller.name.startswith("autograd::engine::evaluate_function")), None)


def _homes(events: list[Any]) -> list[tuple[int, str | None]]:
    """Return autograd's sequence numbers, ascending, each with the range of the forward operation that has it.

    An operation without a gradient has the number of the next operation with one, so the last operation counts.
    """
    forward = [event for event in events if event.sequence_nr >= 0 and _backward(event) is None]
    forward.sort(key=lambda event: event.time_range.start)
    return sorted({event.sequence_nr: _range(event) for event in forward}.items())


def _home(number: int, homes: list[tuple[int, str | None]]) -> str | None:
    """Return the range of the operation with a number; an in-place change of a view takes several and reports the first."""
    before = bisect_right(homes, number, key=lambda pair: pair[0])
    return homes[before - 1][1] if number >= 0 and before else None


def _group(event: Any, homes: list[tuple[int, str | None]]) -> str:
    node = _backward(event)
    at = _range(event) if node is None else _home(node.sequence_nr, homes)
    if at != OPTIMISER and any(caller.name in MATRIX for caller in _above(event)):
        return PRODUCTS
    return at or REST
