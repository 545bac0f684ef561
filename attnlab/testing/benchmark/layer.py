"""The layer that a case measures: what it is, whether it can be, one pass of it, and what that takes."""

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from attnlab._util.memory import available_memory, peak_memory, reset_peak_memory
from attnlab.config.run import MachineConfig
from attnlab.nn import attention
from attnlab.registry import POSITIONS, VARIANTS
from attnlab.testing.checks import CheckTarget
from attnlab.training.costs import saved_bytes
from attnlab.training.device import autocast, synchronise
from attnlab.training.out_of_memory import format_bytes

SHARE = 0.5  # of the free memory that logits may be estimated at
COPIES = 4  # logits, weights and the gradients of both


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """What is built; the fields mean what ``attnlab.testing.benchmark.suite.BenchConfig`` says."""

    variant: str
    backend: str
    length: int
    role: str
    position: str
    batch: int
    dim: int
    heads: int
    precision: str
    options: dict[str, Any]


@dataclass(frozen=True)
class BenchCase:
    """A layer, what it is called in tables, and what its process is set to."""

    label: str
    layer: LayerConfig
    machine: MachineConfig

    @property
    def backend(self) -> str:
        return self.layer.backend

    @property
    def length(self) -> int:
        return self.layer.length


def subject(layer: LayerConfig, device: torch.device) -> CheckTarget:
    """The layer as the contract's checks have it, which know how to build one."""
    cls = VARIANTS.get(layer.variant)
    heads = layer.heads if cls.has_heads else 1
    scheme = POSITIONS.get(layer.position)
    return CheckTarget(cls, layer.options, scheme, layer.backend, str(device), (layer.role,), heads, layer.dim)


def unsupported(layer: LayerConfig, device: torch.device) -> str | None:
    """Return the reason why the layer cannot be measured, as far as it is known before a pass is run, or None."""
    target = subject(layer, device)
    head_dim = target.variant.head_dim(layer.dim, target.heads)
    reason = target.unsupported(layer.role, device=device.type, precision=layer.precision)
    reason = reason or attention.unsupported(layer.backend, device=device.type, head_dim=head_dim, precision=layer.precision)
    if reason or device.type != "cpu" or layer.backend != "reference" or target.variant.cost_exponent < 2:
        return reason
    free, needs = available_memory(), COPIES * 4 * layer.batch * target.heads * layer.length**2
    if free is None or needs <= SHARE * free:
        return None
    need, has = format_bytes(needs), format_bytes(free)
    return f"not tried: logits of all pairs and their gradients would take {need}, and {has} are free"


class ForwardBackward:
    """One forward and backward pass: the gradients of the input and of every parameter."""

    def __init__(self, layer: LayerConfig, device: torch.device) -> None:
        self.cell = subject(layer, device).build(layer.role, length=layer.length, dtype=torch.float32).train()
        shape = (layer.batch, layer.length, layer.dim)
        self.x = torch.randn(shape, device=device)
        self.context = torch.randn(shape, device=device) if layer.role == "cross" else None
        self.above = torch.randn(shape, device=device)  # the gradient that comes from there
        self.leaves = [z for z in (self.x, self.context, *self.cell.parameters()) if z is not None]
        for leaf in self.leaves:
            leaf.requires_grad_()
        self.device, self.precision = device, layer.precision

    def memory(self) -> tuple[int, int]:
        """The bytes that a pass saves for its backward half, and those that it holds at most beyond parameters and input."""
        before = _begin_peak(self.device)
        y, saved = saved_bytes(self._forward, self.cell)
        self._backward(y)
        del y
        return saved, _peak(self.device) - before

    def seconds(self, repeats: int) -> float:
        """Of one pass, the mean of some."""
        synchronise(self.device)
        began = perf_counter()
        for _ in range(repeats):
            self._backward(self._forward())
        synchronise(self.device)
        return (perf_counter() - began) / repeats

    def _forward(self) -> Tensor:
        with autocast(self.device, self.precision):
            return self.cell(self.x, self.context)

    def _backward(self, y: Tensor) -> None:
        torch.autograd.grad(y, self.leaves, self.above.to(y.dtype), allow_unused=True)


def _begin_peak(device: torch.device) -> int:
    """The bytes held now; from here on the most is watched."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    reset_peak_memory()
    return peak_memory()


def _peak(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_memory()
