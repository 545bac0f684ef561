"""Treatments of a layer, each of which removes one cause of failures: a check that then passes has shown the cause.

A treatment computes a forward pass: ``treatment(layer, call, x, context, mask)``, where ``call(x, context, mask)`` is the
forward pass of the layer.
"""

import copy
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.testing.diagnosis.operations import Operation, Replacer

Call = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]
Treatment = Callable[[Any, Call, Tensor, Tensor | None, Tensor | None], Tensor]


def with_copies(layer: nn.Module, call: Call, x: Tensor, context: Tensor | None, mask: Tensor | None) -> Tensor:
    """Pass copies of the arguments, so that changes in place are lost."""
    return call(x.clone(), None if context is None else context.clone(), None if mask is None else mask.clone())


def with_restored_module(layer: nn.Module, call: Call, x: Tensor, context: Tensor | None, mask: Tensor | None) -> Tensor:
    """Undo what a call changes in the module; while a cache is filled, nothing."""
    if layer.attention.cache is not None:  # type: ignore[union-attr]
        return call(x, context, mask)
    before = Snapshot(layer)
    try:
        return call(x, context, mask)
    finally:
        before.restore()


def row_by_row(layer: nn.Module, call: Call, x: Tensor, context: Tensor | None, mask: Tensor | None) -> Tensor:
    """Compute each row of the batch alone; while a cache is filled, all rows."""
    if layer.attention.cache is not None:  # type: ignore[union-attr]
        return call(x, context, mask)
    rows = [slice(i, i + 1) for i in range(len(x))]
    return torch.cat([call(x[i], None if context is None else context[i], None if mask is None else mask[i]) for i in rows])


def without(operations: Collection[Operation]) -> Treatment:
    """Return the treatment that replaces the results of operations by constants."""
    return partial(_replaced, tuple(operations))


def _replaced(
    operations: tuple[Operation, ...],
    layer: nn.Module,
    call: Call,
    x: Tensor,
    context: Tensor | None,
    mask: Tensor | None,
) -> Tensor:
    with Replacer(operations):
        return call(x, context, mask)


class Snapshot:
    """The attributes, parameters and buffers of a module and of its parts at one time."""

    def __init__(self, layer: nn.Module) -> None:
        self.attributes = [(name, module, dict(_attributes(module))) for name, module in layer.named_modules()]
        self.tensors = [(name, z, z.detach().clone()) for name, z in (*layer.named_parameters(), *layer.named_buffers())]

    def changed(self) -> list[str]:
        """Return the names of what has changed since."""
        names = [name for name, tensor, value in self.tensors if not torch.equal(tensor.detach(), value)]
        for prefix, module, before in self.attributes:
            now = dict(_attributes(module))
            for name in {**before, **now}:
                if name not in before or name not in now or not _same(before[name], now[name]):
                    names.append(f"{prefix}.{name}" if prefix else name)
        return list(dict.fromkeys(name.removeprefix("attention.") for name in names))

    def restore(self) -> None:
        """Set everything back."""
        for _, module, before in self.attributes:
            for name in set(dict(_attributes(module))) - set(before):
                vars(module).pop(name, None)
                module._buffers.pop(name, None)
            for name, value in before.items():
                if name in module._buffers:
                    module._buffers[name] = value
                else:
                    vars(module)[name] = value if isinstance(value, Tensor | nn.Module) else _copied(value)
        for _, tensor, value in self.tensors:
            if not torch.equal(tensor.detach(), value):
                with torch.no_grad():
                    tensor.copy_(value)


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a module that are its own state, with copies of lists, dicts and sets."""
    for name, value in vars(module).items():
        if name not in _INTERNAL:
            yield name, _copied(value)
    yield from module._buffers.items()


_INTERNAL = {*vars(nn.Module()), "_inputs", "treatments", "cache"}


def _copied(value: Any) -> Any:
    return copy.copy(value) if isinstance(value, list | dict | set) else value


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, Tensor) or isinstance(other, Tensor) or type(one) is not type(other):
        return False
    try:
        return bool(one == other)
    except Exception:  # a list of tensors, or whatever else has no equality
        return False
