"""One forward pass in the search for a cause: the operations that it calls, and treatments of the module.

Operations are those that reduce positions or rows, or draw random numbers, with the lines that call them. A treatment removes
one cause of failures: a check that then passes has shown the cause. It computes one call: ``treatment(module, call, *args,
**kwargs)``, where ``call(*args, **kwargs)`` is the call of the
module without it.
"""

from __future__ import annotations

import copy
import linecache
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

TORCH = str(Path(torch.__file__).parent)
DROPOUT = {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "dropout_"}
DRAWS = {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal"}
DRAWS |= {"bernoulli", "multinomial", "bernoulli_", "normal_", "uniform_", "exponential_", "cauchy_", "random_"}
SCANS = {"cumsum": "sum", "cumprod": "product", "logcumsumexp": "sum", "cummax": "maximum", "cummin": "minimum"}
TRANSFORMS = {f"fft_{prefix}fft{suffix}" for prefix in ("", "i", "r", "ir", "h", "ih") for suffix in ("", "2", "n")}
FLIPS = {"flip", "flipud", "fliplr"}
SELECTIONS = {"__getitem__", "select", "narrow", "index_select", "gather", "take", "split", "chunk", "unbind", "diagonal"}
Treatment = Callable[..., Any]


class Operation(NamedTuple):
    """A call of a function of torch in a line of code.

    Attributes:
        file, line: the innermost line outside of torch.
        function: the name of the function.
        kinds: ``positions``, ``rows`` or ``keys`` (of each query), which it reduces or transforms, ``reversed`` for positions
            in the reverse order, or ``random``.
        keeps_shape: True for a norm, softmax or transform, which keeps the shape of its input.
    """

    file: str
    line: int
    function: str
    kinds: frozenset[str]
    keeps_shape: bool = False

    @property
    def place(self) -> tuple[str, int, str]:
        return self.file, self.line, self.function

    @property
    def code(self) -> str:
        """The source of the line."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        shown = self.code if len(self.code) <= 70 else f"{self.code[:67]}..."
        return f"line {self.line} of {Path(self.file).name} (`{shown}`)"


class Recorder(TorchFunctionMode):
    """Collect operations in ``found``, for inputs of b rows and of lengths that no other size equals."""

    def __init__(self, b: int, lengths: Collection[int]) -> None:
        super().__init__()
        self.b, self.lengths = b, frozenset(lengths)
        self.found: dict[tuple[str, int, str], Operation] = {}

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        kinds, keeps_shape = self._kinds(name, args, kwargs, result)
        if kinds:
            operation = Operation(*_caller(), name, frozenset(kinds), keeps_shape)
            self.found.setdefault(operation.place, operation)
        return result

    def _kinds(self, name: str, args: Any, kwargs: Any, result: Any) -> tuple[set[str], bool]:
        if name in DROPOUT:
            p, training = [*args[1:3], *(0.5, True)[len(args[1:3]) :]]
            return ({"random"} if kwargs.get("p", p) and kwargs.get("training", training) else set()), True
        if name in DRAWS:
            return {"random"}, False
        if name in TRANSFORMS:
            x = args[0]
            kept = isinstance(result, Tensor) and result.shape == x.shape
            return self._named({x.shape[d] for d in _transformed(name, x, args, kwargs)}), kept
        if name in FLIPS:
            dims = kwargs.get("dims", args[1:] if name == "flip" else [0] if name == "flipud" else [1])
            sizes = {args[0].shape[d] for d in tree_leaves(dims)}
            return ({"reversed"} if self.lengths & sizes else set()), True
        operands = [z for z in tree_leaves((args, kwargs)) if isinstance(z, Tensor) and z.is_floating_point()]
        results = [z for z in tree_leaves(result) if isinstance(z, Tensor)]
        if not operands or not results or not results[0].is_floating_point() or name in SELECTIONS:
            return set(), False
        whole = max(operands, key=Tensor.numel)
        if (dims := _normed(name, whole, args, kwargs)) is not None:
            return self._named({whole.shape[d] for d in dims}), True
        if results[0].numel() >= whole.numel():
            return set(), False
        left = set(results[0].shape)
        lost = Counter(whole.shape) - Counter(results[0].shape)
        if len(operands) == 1 and self.lengths.intersection(lost) and self.lengths & left:
            return {"keys"}, False
        return self._named({n for z in operands for n in z.shape if n not in left}, left), False

    def _named(self, sizes: set[int], left: Collection[int] = ()) -> set[str]:
        """Return what dimensions of these sizes are, if a result has no other dimension of the same kind ``left``."""
        kinds = {"positions"} if self.lengths & sizes and not self.lengths.intersection(left) else set()
        return kinds | ({"rows"} if self.b in sizes else set())


class Replacer(TorchFunctionMode):
    """Within this context, replace results of operations by constants: ``value``, the input of a norm, the mean for a draw."""

    def __init__(self, operations: Collection[Operation], value: float = 1.0) -> None:
        super().__init__()
        self.value = value
        self.operations = {operation.place: operation for operation in operations}
        self.names = {operation.function for operation in operations}

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        operation = self.operations.get((*_caller(), name)) if name in self.names else None
        if operation is not None and operation.keeps_shape:
            x = args[0] if args else (kwargs or {})["input"]
            if name == "softmax":  # over the positions: over the keys of each query
                return x.softmax(-1)
            result = func(*args, **(kwargs or {}))
            return x.to(result.dtype) if isinstance(result, Tensor) else type(result)((x, *result[1:]))
        result = func(*args, **(kwargs or {}))
        if operation is None:
            return result
        if "random" not in operation.kinds:
            return tree_map(lambda z: torch.full_like(z, self.value), result)
        mean = 0.0 if name.startswith("randn") or "normal" in name else 0.5
        return tree_map(partial(_filled, mean), result)


def _filled(mean: float, result: Tensor) -> Tensor:
    with torch.no_grad():
        return result.fill_(mean) if result.is_floating_point() else result.zero_()


def _normed(name: str, x: Tensor, args: Any, kwargs: Any) -> list[int] | None:
    """Return the dimensions that a function of an unchanged shape sums or sorts; None for another function."""
    if name in ("softmax", "log_softmax", "normalize"):
        dim = kwargs.get("dim", args[1] if len(args) > 1 and name != "normalize" else args[2] if len(args) > 2 else 1)
        dims = [dim % x.dim()] if isinstance(dim, int) else []
        return [] if dims == [x.dim() - 1] else dims  # of the features, or of the keys of each query
    if name in ("sort", "msort"):
        dim = 0 if name == "msort" else kwargs.get("dim", args[1] if len(args) > 1 else -1)
        return [] if dim % x.dim() == x.dim() - 1 else [dim % x.dim()]
    if name in SCANS:
        return [kwargs.get("dim", args[1] if len(args) > 1 else -1) % x.dim()]
    first = {"batch_norm": (0, *range(2, x.dim())), "instance_norm": range(2, x.dim()), "group_norm": range(2, x.dim())}
    if name == "layer_norm":
        shape = kwargs.get("normalized_shape", args[1] if len(args) > 1 else ())
        return list(range(x.dim() - len(shape), x.dim()))
    return list(first[name]) if name in first else None


def _transformed(name: str, x: Tensor, args: Any, kwargs: Any) -> list[int]:
    """Return the dimensions over which a Fourier transform runs."""
    default = {"2": (-2, -1), "n": range(x.dim())}.get(name[-1], -1)
    dim = kwargs.get("dim", args[2] if len(args) > 2 else None)
    return tree_leaves(
        list(default) if dim is None and isinstance(default, (tuple, range)) else default if dim is None else dim
    )


def _caller() -> tuple[str, int]:
    """Return the file and line of the innermost call outside of torch and this module."""
    for file, line in _frames():
        if not file.startswith(TORCH) and file != __file__:
            return file, line
    return "", 0


def _frames() -> Iterator[tuple[str, int]]:
    frame = sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]


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
