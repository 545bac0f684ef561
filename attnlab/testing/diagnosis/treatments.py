"""Treatments of a module, each of which removes one cause of failures: a check that then passes has shown the cause.

A treatment computes one call: ``treatment(module, call, *args, **kwargs)``, where ``call(*args, **kwargs)`` is the call of the
module without it.
"""

import copy
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from attnlab.testing.diagnosis.operations import Operation, Replacer

Treatment = Callable[..., Any]


def with_copies(module: nn.Module, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Pass copies of the tensors, so that changes in place are lost."""
    args, kwargs = tree_map(lambda z: z.clone() if isinstance(z, Tensor) else z, (args, kwargs))
    return call(*args, **kwargs)


def with_restored_module(module: nn.Module, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Undo what a call changes in the module; while a cache is filled, nothing."""
    if _is_decoding(module):
        return call(*args, **kwargs)
    before = Snapshot(module)
    try:
        return call(*args, **kwargs)
    finally:
        before.restore()


def row_by_row(module: nn.Module, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Compute each row of the batch alone; while a cache is filled, all rows."""
    b = len(args[0])
    if _is_decoding(module):
        return call(*args, **kwargs)
    results = []
    for i in range(b):
        row = [z[i : i + 1] if isinstance(z, Tensor) else z for z in args]
        results.append(call(*row, **kwargs))
    return torch.cat(results) if isinstance(results[0], Tensor) else tuple(torch.cat(z) for z in zip(*results, strict=True))


def without(operations: Collection[Operation], *, value: float = 1.0) -> Treatment:
    """Return the treatment that replaces the results of operations by constants; ``value`` replaces a sum."""
    return partial(_replaced, tuple(operations), value)


def _replaced(
    operations: tuple[Operation, ...], value: float, module: nn.Module, call: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    with Replacer(operations, value):
        return call(*args, **kwargs)


def _is_decoding(module: nn.Module) -> bool:
    return getattr(getattr(module, "attention", None), "cache", None) is not None


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
