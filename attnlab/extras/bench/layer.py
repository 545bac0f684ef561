"""The layer of a case: its configuration, why it may not be supported, and the time and memory of its passes.

``Decoding`` measures the time of a token, and the memory that is kept between tokens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.benchmark import Timer

from attnlab._util.machine import peak_memory, reset_peak_memory
from attnlab.config.run import MachineConfig
from attnlab.config.types import Named
from attnlab.models.decoding import key_value_cache, without_cache
from attnlab.nn import attention
from attnlab.registry import POSITIONS, VARIANTS
from attnlab.testing.checks import CheckTarget
from attnlab.testing.composition import ComponentSpec, compose
from attnlab.training.costs import cached_bytes, saved_bytes
from attnlab.training.device import autocast
from attnlab.variants import Variant

MIN_ROUND_SECONDS = 0.1  # shorter passes are repeated until a round takes this long
TOKENS_SHARE = 8  # the last length / 8 positions of a sequence are decoded, so that all are close to the length
FAST_MACHINE = MachineConfig(matmul_precision="medium", reuse_memory=True)


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """What all layers of a measurement have in common.

    Attributes:
        position: the name of the position scheme.
        batch: sequences of the input (batch, length, dim).
        dim: width of the input.
        heads: number of heads.
        precision: ``fp32``, ``bf16`` or ``fp16``.
        options: of the variants; those not given come from ``Variant.recommended_options`` for the length, then the
            constructor's defaults.
        decode: measure the time to decode a token after a sequence of each length, instead of forward and backward passes.
        machine: the settings of the processes.
        cpu_time: measure the CPU time of each process over all its threads, which other programs on the machine affect less
            than wall-clock time.
    """

    position: str = "none"
    batch: int = 2
    dim: int = 256
    heads: int = 8
    precision: str = "fp32"
    options: Mapping[str, Any] = field(default_factory=dict)
    decode: bool = False
    machine: MachineConfig = FAST_MACHINE
    cpu_time: bool = False


@dataclass(frozen=True, kw_only=True)
class BenchCase(LayerConfig):
    """A single attention layer to measure.

    Attributes:
        variant: a registered name, or a path (``file.py:Class``).
        backend: the attention backend.
        length: of the sequences; in cross-attention the context has the same length.
        role: the variant's role.
        components: of the variant.
        label: its name in tables.
    """

    variant: str
    backend: str
    length: int
    role: str
    components: tuple[Named, ...] = ()
    label: str = ""


def composed_class(variant: str, components: Sequence[Named]) -> type[Variant]:
    """Return the class of a variant with components.

    Raises:
        UserError: a name is unknown, a constructor does not take the options, or the components do not combine.
    """
    cls: type[Variant] = VARIANTS.get(variant)
    return compose(cls, [ComponentSpec.of(component.model_dump()) for component in components]) if components else cls


def make_target(case: BenchCase, device: torch.device) -> CheckTarget:
    """Return the layer as a target of the contract's checks, which can build it."""
    cls = composed_class(case.variant, case.components)
    heads = case.heads if cls.has_heads else 1
    scheme = POSITIONS.get(case.position)
    return CheckTarget(cls, dict(case.options), scheme, case.backend, str(device), (case.role,), heads, case.dim)


def unsupported(case: BenchCase, device: torch.device) -> str | None:
    """Return the reason why the layer cannot be measured, as far as it is known before a pass is run, or None."""
    target = make_target(case, device)
    head_dim = target.variant.head_dim(case.dim, target.heads)
    reason = target.unsupported(case.role, device=device.type, precision=case.precision)
    return reason or attention.unsupported(case.backend, device=device.type, head_dim=head_dim, precision=case.precision)


class ForwardBackward:
    """Forward and backward passes of one layer, with gradients of the inputs and of every parameter; a call is one pass."""

    def __init__(self, case: BenchCase, device: torch.device) -> None:
        self.layer = make_target(case, device).build(case.role, length=case.length, dtype=torch.float32).train()
        shape = (case.batch, case.length, case.dim)
        self.x = torch.randn(shape, device=device)
        self.context = torch.randn(shape, device=device) if case.role == "cross" else None
        self.output_gradient = torch.randn(shape, device=device)
        self.leaves = [z for z in (self.x, self.context, *self.layer.parameters()) if z is not None]
        for leaf in self.leaves:
            leaf.requires_grad_()
        self.device, self.precision = device, case.precision

    def figures(self) -> dict[str, int]:
        """Return the bytes that one pass saves for backward, and its peak bytes without parameters and inputs."""
        before = _reset_peak(self.device)
        y, saved = saved_bytes(self._forward, self.layer)
        self._backward(y)
        del y
        return {"saved_bytes": saved, "peak_bytes": _peak(self.device) - before}

    def __call__(self) -> None:
        self._backward(self._forward())

    def times(self, clock: Callable[[], float]) -> Iterator[float]:
        """Yield the time of one pass, each time over as many passes as take ``MIN_ROUND_SECONDS``.

        Args:
            clock: returns seconds, and waits for the device.
        """
        timer = Timer("act()", globals={"act": self}, timer=clock, num_threads=torch.get_num_threads())
        while True:
            yield timer.blocked_autorange(min_run_time=MIN_ROUND_SECONDS).median

    def _forward(self) -> Tensor:
        with autocast(self.device, self.precision):
            return self.layer(self.x, self.context)

    def _backward(self, y: Tensor) -> None:
        torch.autograd.grad(y, self.leaves, self.output_gradient.to(y.dtype), allow_unused=True)


def _reset_peak(device: torch.device) -> int:
    """Reset the peak memory statistics and return the bytes in use."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    reset_peak_memory()
    return peak_memory()


def _peak(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_memory()


class Decoding:
    """Decoding of the last positions of sequences by one layer in the causal role.

    A variant that supports a cache reads the earlier positions in one call, which is not timed, and then one position a call.
    Another variant computes the whole sequence again for each position.
    """

    def __init__(self, case: BenchCase, device: torch.device) -> None:
        built = make_target(case, device).build(case.role, length=case.length, dtype=torch.float32)
        self.attention = built.attention
        self.x = torch.randn(case.batch, case.length, case.dim, device=device)
        if built.embed is not None:
            self.x = self.x + built.embed.embed(case.length)
        self.cached = not without_cache(self.attention)
        self.first = case.length - max(1, case.length // TOKENS_SHARE)  # position that is decoded first
        self.device, self.precision = device, case.precision

    def figures(self) -> dict[str, bool | int]:
        """Return the bytes that are kept of one sequence, and whether they are, by the names of ``BenchResult``."""
        if not self.cached:
            return {"cached": False}
        one = self.x[:1]
        with self._inference():
            cache, state = cached_bytes(self.attention, lambda n: self.attention(one[:, :n]), length=self.x.shape[1])
        return {"cached": True, "cache_bytes": cache, "state_bytes": state}

    def times(self, clock: Callable[[], float]) -> Iterator[float]:
        """Yield the time of a token of each sequence: of the last positions or, without a cache, of the whole sequence."""
        while True:
            total, count = 0.0, 0
            while total < MIN_ROUND_SECONDS:
                seconds, tokens = self._decode(clock)
                total, count = total + seconds, count + tokens
            yield total / count

    def _decode(self, clock: Callable[[], float]) -> tuple[float, int]:
        """Return the time to compute the last positions, and the number of tokens that this decodes."""
        first, length = (self.first, self.x.shape[1]) if self.cached else (0, 1)
        with self._inference(), key_value_cache(self.attention) if self.cached else nullcontext():
            if first:
                self.attention(self.x[:, :first])
            start = clock()
            for i in range(first, length):
                self.attention(self.x[:, i : i + 1] if self.cached else self.x)
            return clock() - start, length - first

    @contextmanager
    def _inference(self) -> Iterator[None]:
        with torch.inference_mode(), autocast(self.device, self.precision):
            yield
