"""Precisions and modes: a variant computes the same function, and sees the same inputs, wherever a run applies it.

A run computes in float32 or under autocast in bf16 or fp16, trains with gradients, and evaluates without them; the other checks
compute in float64. Here two calls with equal shapes differ only in inputs that some outputs must not read: a row has another
future, another row has other padding, and the remaining rows are as before. The same kernels then compute the same numbers for
these outputs, so that a change is a leak and no rounding, even in bf16.
"""

import math
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from attnlab._util.machine import available_memory
from attnlab.nn.processor import DTYPES
from attnlab.testing.checks.result import Check, Failure, NotDeclared, format_number
from attnlab.testing.checks.sizes import Sizes
from attnlab.testing.checks.target import (
    FINITE_ADVICE,
    LONG_LENGTH,
    AttentionLayer,
    CheckTarget,
    at_drawn_sizes,
    seed_generators,
)
from attnlab.testing.checks.visibility import MASK
from attnlab.testing.checks.visibility import PADDING_ADVICE as PADDING
from attnlab.training.device import autocast

P = 0.3  # of dropout
# The largest change of a protected output, and the largest root-mean-square error, both relative to the size of the outputs.
# Rounding can reach an output only where a kernel shares a scale between positions: a product in bf16 is then off by 1/256, and
# one in fp16 by 1/2048.
LEAK = {"float64": 1e-7, "fp32": 1e-4, "bf16": 0.1, "fp16": 0.02}
ERROR = {"fp32": 3e-3, "bf16": 0.15, "fp16": 0.08}
HEAD_WIDTHS = (32, 48, 64, 128)  # of studies
EXACT_BF16 = 256  # longest sequence whose positions bf16 represents; the check "bf16" is about longer ones
WIDE, WIDE_LENGTH = "heads of studies", 61
LONGEST = 1024
PLAIN, MASKED = slice(1), slice(-1, None)  # the first and the last probe of a role
COPIES = 6  # of all logits that backend ``reference`` has in memory at once, in float32
SHARE, MEMORY = 4, 2**33  # the part of the free memory for a sequence of a study, and its bytes where they are unknown
MAX_LOGITS = 2**17  # entries (b, h, t, s) of one call at drawn sizes, beyond three rows
ADVICE = (
    "forward() must compute the same function in every precision and mode. In float64 and in evaluation mode the other checks "
    "test the same: look for branches on a dtype, on autocast, on self.training or on torch.is_grad_enabled(), and for code "
    "that they select."
)


@dataclass(frozen=True)
class Mode:
    """A precision, and a mode of modules and of autograd.

    Attributes:
        precision: ``float64``, ``fp32``, or of autocast ``bf16`` or ``fp16``.
        training: training mode.
        gradients: ``grad``, ``no_grad`` or ``inference``.
        dropout: the probability of dropping an attention weight.
    """

    precision: str
    training: bool
    gradients: str
    dropout: float = 0.0

    def __str__(self) -> str:
        dropout = f" with dropout {self.dropout}" if self.dropout else ""
        autocast = " autocast" if self.precision in DTYPES else ""
        return f"{self.precision}{autocast}, {'training' if self.training else 'evaluation'}{dropout}, {self.gradients}"

    @property
    def autograd(self) -> AbstractContextManager[object]:
        """The context in which outputs are computed."""
        return {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}[self.gradients]()


def _modes(target: CheckTarget, *, every: bool) -> list[Mode]:
    """Return the modes of training and evaluation of a run; ``every``: all combinations.

    Without a study, fp16 is a precision at the first sizes and at the longest alone, without dropout: other sizes differ in
    what bf16 shows, too, and in fp16 only sums get too large.
    """
    dropouts = (0.0, P) if target.variant.has_attention_dropout else (0.0,)
    kinds = [(True, "grad", dropout) for dropout in dropouts]
    kinds += [(False, "inference", 0.0)]
    if every:
        kinds += [(True, "no_grad", 0.0), (False, "grad", 0.0), (False, "no_grad", 0.0)]
    few = ("fp16",) if len(target.precisions) > 1 else ()
    return [Mode(precision, *kind) for precision in _precisions(target) if precision not in few for kind in kinds]


def _fp16(target: CheckTarget) -> list[Mode]:
    """Return the modes in fp16 that ``_modes`` leaves out."""
    kinds = [(True, "grad"), (False, "inference")] if len(target.precisions) > 1 and "fp16" in _precisions(target) else []
    return [Mode("fp16", *kind) for kind in kinds]


def _precisions(target: CheckTarget) -> list[str]:
    """Return the precisions of the study, or those that the variant supports on the device."""
    refused = target.variant_unsupported
    return [
        precision
        for precision in target.precisions
        if precision == "fp32" or not any(refused(role=r, precision=precision, device=target.device) for r in target.roles)
    ]


@dataclass(frozen=True)
class Probe:
    """Two inputs that differ only where some outputs must not read.

    Attributes:
        role: of the variant.
        x: (b, t, dim), the first input.
        context: (b, s, dim) of role ``cross``, else None.
        memory: (b, m, dim), in front of the keys, or None.
        mask: (b, s), True at real positions, or None.
        changed: (b, s), True where the second input differs: of the context in role ``cross``, else of ``x``.
        protected: (b, t), True at outputs that must be the same for both inputs.
        borders: for each row, the first changed position of a row with another future, else 0.
    """

    role: str
    x: Tensor
    context: Tensor | None
    memory: Tensor | None
    mask: Tensor | None
    changed: Tensor
    protected: Tensor
    borders: tuple[int, ...]

    @property
    def name(self) -> str:
        """The kind of call, for a message."""
        return ", masked" * (self.mask is not None) + (f", memory {self.memory.shape[1]}" if self.memory is not None else "")

    @property
    def keys(self) -> Tensor:
        """The input that changes."""
        return self.x if self.context is None else self.context

    def call(self, layer: AttentionLayer, keys: Tensor) -> Tensor:
        """Apply a layer to the inputs with ``keys`` (b, s, dim) as the input that changes."""
        if self.context is not None:
            return layer(self.x.to(keys.dtype), keys, self.mask)
        memory = self.memory
        return layer(keys, None if memory is None else torch.cat([memory.to(keys.dtype), keys], dim=1), self.mask)


def _probes(target: CheckTarget, role: str, t: int, *, rows: int = 3) -> Iterator[Probe]:
    """Yield the probes of a role at t queries: plain, masked and, if it is supported, with memory."""
    t, s = max(2, t), max(2, t if role != "cross" else target.sizes.context)
    x, context = target.inputs(role, rows, t, s=s)
    kind = torch.arange(rows, device=x.device) % 3  # 0: another future, 1: other padding, 2: as before
    borders = [1 + (5 + 7 * row) % (t - 1) if role == "causal" and not row % 3 else 0 for row in range(rows)]
    first = torch.tensor(borders, device=x.device)[:, None]
    future = (first > 0) & (torch.arange(s, device=x.device) >= first)
    before = (first == 0) | (torch.arange(t, device=x.device) < first)
    build = partial(Probe, role, x, context, borders=tuple(borders))
    if role == "causal":
        yield build(memory=None, mask=None, changed=future, protected=before)
        if target.has_memory(role):
            memory = target.noise(rows, min(target.sizes.memory, t), seed=8)
            yield build(memory=memory, mask=None, changed=future, protected=before)
    mask = torch.ones(rows, s, dtype=torch.bool, device=x.device)
    mask[1::3, -max(1, s // 4) :] = False
    mask[4::6] = mask[4::6].roll(1 + max(1, s // 4), 1)  # behind the first key, so that no query has none
    real = before if role == "cross" else before & mask
    yield build(memory=None, mask=mask, changed=future | ~mask, protected=real & (kind >= 0)[:, None])


def _layer(target: CheckTarget, role: str, mode: Mode, t: int) -> AttentionLayer:
    dtype = torch.float64 if mode.precision == "float64" else torch.float32
    return target.build(role, length=max(t, target.sizes.length), dropout=mode.dropout, dtype=dtype).train(mode.training)


def _outputs(layer: AttentionLayer, probe: Probe, keys: Tensor, mode: Mode) -> Tensor:
    """Return the outputs (b, t, dim); the same seed drops the same weights in each call."""
    seed_generators(0, keys.device)
    quiet = warnings.catch_warnings(action="ignore")  # of norms that have no fused kernel for inputs in half precision
    with quiet, mode.autograd, autocast(keys.device, mode.precision if mode.precision in DTYPES else "fp32"):
        return probe.call(layer, keys)


def _examine(
    target: CheckTarget, layer: AttentionLayer, probe: Probe, mode: Mode, *, thorough: bool
) -> tuple[Tensor, Tensor | None]:
    """Return outputs and a gradient of the input; raise ``Failure`` if a protected output reads what changes.

    Args:
        thorough: compute the gradient, in a mode that has one, and repeat a call.
    """
    dtype = next((p.dtype for p in layer.parameters()), torch.float32)
    keys = probe.keys.to(dtype)
    other = torch.where(probe.changed[..., None], target.noise(*keys.shape[:2], seed=2).to(dtype), keys)
    keys = keys.requires_grad_() if mode.gradients == "grad" else keys
    y = _outputs(layer, probe, keys, mode)
    changed = (_outputs(layer, probe, other, mode) - y).detach().abs().amax(2).double()  # (b, t)
    size = _size(y)
    _require_same(probe, changed.masked_fill(~probe.protected, 0.0) / size, mode)
    if not thorough:
        return y.detach(), None
    again = (_outputs(layer, probe, keys, mode) - y).detach().abs().amax().double() / size
    if not again.item() <= LEAK[mode.precision]:
        _fail(probe, mode, f"a second call with the same input gives another output, by {format_number(again.item())}", ADVICE)
    return y.detach(), _gradient(target, probe, keys, y, mode) if mode.gradients == "grad" and y.requires_grad else None


def _gradient(target: CheckTarget, probe: Probe, keys: Tensor, y: Tensor, mode: Mode) -> Tensor:
    """Return the gradient of all outputs; raise ``Failure`` if protected outputs have one of an input that changes."""
    weights = target.noise(*y.shape[:2], seed=3).to(y.dtype)
    (inside,) = torch.autograd.grad((y * weights * probe.protected[..., None]).sum(), keys, retain_graph=True)
    (whole,) = torch.autograd.grad((y * weights).sum(), keys)
    if not torch.isfinite(whole).all():
        _fail(probe, mode, "a gradient of the input is NaN or infinite", FINITE_ADVICE)
    leaked = inside.abs().amax(2).double().masked_fill(~probe.changed, 0.0) / _size(whole)
    if not leaked.max().item() <= LEAK[mode.precision]:
        row = int(leaked.amax(1).argmax())
        gradient = f"row {row}, position {int(leaked[row].argmax())}: outputs that must not read it have a gradient of it, "
        _fail(probe, mode, f"{gradient}{format_number(leaked.max().item())}", ADVICE)
    return whole


def _size(z: Tensor) -> Tensor:
    """Return the root mean square of a tensor, in float64."""
    return z.detach().double().square().mean().sqrt().clamp(min=1e-6)


def _require_same(probe: Probe, changed: Tensor, mode: Mode) -> None:
    """Raise ``Failure`` if protected outputs changed, by the kind of the row; ``changed`` (b, t) is relative to their size."""
    bad = (~(changed.amax(1) <= LEAK[mode.precision])).nonzero().flatten().tolist()
    if not bad:
        return
    row = max(bad, key=lambda row: row % 3)  # a change of unchanged rows explains that of the others
    i, size, j = int(changed[row].argmax()), format_number(changed[row].max().item()), probe.borders[row]
    if not probe.changed[row].any():
        _fail(probe, mode, f"other inputs in other rows change output {i} of row {row} by {size}", ADVICE)
    if j:
        text = f"changing the inputs from {j} on changes output {i}, before it, by {size}"
        _fail(probe, mode, text, f"{ADVICE} {MASK}")
    _fail(probe, mode, f"the content of padded positions changes real output {i} by {size}", f"{ADVICE} {PADDING}")


def _fail(probe: Probe, mode: Mode, text: str, advice: str) -> None:
    b, t = probe.x.shape[:2]
    raise Failure(f"{probe.role}, {mode}, batch {b}, length {t}{probe.name}: {text}", advice)


def _require_close(probe: Probe, got: Tensor, expected: Tensor, mode: Mode, what: str) -> float:
    """Return the root-mean-square error relative to float64; raise ``Failure`` if it is large."""
    real = slice(None) if probe.mask is None or probe.role == "cross" else probe.mask
    error = (_size((got - expected)[real]) / _size(expected[real])).item()
    if not error <= ERROR[mode.precision]:
        _fail(probe, mode, f"{what} differs from that in float64 by {100 * error:.2g} %", ADVICE)
    return error


def _run(
    target: CheckTarget,
    t: int,
    modes: list[Mode],
    *,
    rows: int = 3,
    probes: slice = slice(None),
    thorough: bool = True,
    known: bool = False,
) -> float:
    """Run probes of every role in each mode, and compare with float64; return the largest error.

    Args:
        probes: some of a role's probes (``_probes``).
        thorough: as for ``_examine``.
        known: other checks have passed in float64 at these sizes, so that it gives the expected outputs alone.
    """
    worst = 0.0
    exact = Mode("float64" if target.dtype == torch.float64 else "fp32", False, "grad" if thorough else "inference")
    for role in target.roles:
        layers = {mode: _layer(target, role, mode, t) for mode in (exact, *modes)}
        for layer in layers.values():
            layer.load_state_dict(layers[exact].state_dict())
        for probe in list(_probes(target, role, t, rows=rows))[probes]:
            try:
                if known:
                    y, gradient = _outputs(layers[exact], probe, probe.keys, exact), None
                else:
                    y, gradient = _examine(target, layers[exact], probe, exact, thorough=thorough)
            except Failure as failure:
                if target.sizes.name == WIDE or target.study_layers:  # where no other check runs in float64
                    raise
                raise NotDeclared("the property fails in float64, too") from failure
            for mode in modes:
                z, other = _examine(target, layers[mode], probe, mode, thorough=thorough)
                if mode.dropout:
                    continue
                if mode.precision != "bf16" or t <= EXACT_BF16:
                    worst = max(worst, _require_close(probe, z, y, mode, "the output"))
                if other is not None and gradient is not None and mode.precision == "fp32":
                    _require_close(probe, other, gradient, mode, "the gradient of the input")
    return worst


def _wide(target: CheckTarget) -> Iterator[CheckTarget]:
    """Yield copies with the widths of heads of studies, unless the caller fixed heads and width."""
    if target.requested_heads or target.requested_dim:
        return
    for width in HEAD_WIDTHS:
        heads = 2 if target.variant.has_heads else 1
        sizes = replace(target.sizes, length=WIDE_LENGTH, context=WIDE_LENGTH, name=WIDE)
        wide = replace(target, requested_heads=heads, requested_dim=heads * width, sizes=sizes).with_supported_shape(
            target.roles
        )
        if wide.roles:
            yield wide


def _in_every_block(target: CheckTarget, modes: list[Mode]) -> float:
    """Return the largest error as each block of a study's stack, at small sizes and, unless it must be quick, at its length."""
    small = replace(target, sizes=Sizes(name="a block of the study"))
    runs = [_run(replace(small, layer=n), 13, modes, probes=MASKED, thorough=False) for n in target.study_layers]
    if target.longest and target.sizes.name and target.study_sizes is not None:
        long = target.study_sizes.length
        blocks = (replace(target, sizes=replace(target.study_sizes, context=long), layer=n) for n in target.study_layers[:-1])
        runs += [_run(one, long, modes[-1:], rows=2, probes=PLAIN, thorough=False) for one in blocks]
    return max(runs, default=0.0)


def _at_longest(target: CheckTarget, modes: list[Mode]) -> float:
    """Return the largest error at the length of the study, or at the longest that a part of the free memory allows."""
    copies = COPIES if target.backend == "reference" else 1
    fits = math.isqrt((available_memory() or MEMORY) // SHARE // (4 * 2 * target.heads * copies))
    length = min(target.longest, max(fits, target.sizes.length))
    long = replace(target, sizes=replace(target.sizes, context=length))
    return _run(long, length, modes, rows=2, probes=PLAIN, thorough=False)


def modes(target: CheckTarget) -> str:
    """In each precision and mode of a run, outputs and gradients agree with float64 and read nothing that they must not."""
    sizes = target.sizes
    few = [mode for mode in _modes(target, every=False) if not mode.dropout]
    if sizes.name:
        quick = bool(target.study_layers) and not target.longest
        rows = max(3, min(sizes.batch, MAX_LOGITS // (target.heads * sizes.length * max(sizes.length, sizes.context))))
        worst = _run(target, sizes.length, few, rows=rows, probes=MASKED, thorough=False, known=quick)
        if target.longest > sizes.length:
            worst = max(worst, _at_longest(target, few))
        return f"error {format_number(max(worst, _in_every_block(target, _modes(target, every=False))))}"
    worst = _run(target, sizes.length, [*_modes(target, every=True), *_fp16(target)], rows=6)
    if target.study_layers:
        return f"error {format_number(max(worst, _in_every_block(target, _modes(target, every=False))))}"
    long = replace(target, sizes=replace(sizes, context=LONG_LENGTH))
    worst = max(worst, _run(long, LONG_LENGTH, few, rows=2, probes=PLAIN))
    if "causal" in target.roles:
        longest = replace(target, roles=("causal",))
        worst = max(worst, _run(longest, LONGEST, [*few, *_fp16(target)[-1:]], rows=2, probes=PLAIN, thorough=False))
    for wide in _wide(target):
        try:
            worst = max(worst, _run(wide, wide.sizes.length, few, probes=MASKED, thorough=False))
        except Failure as failure:
            raise Failure(f"{failure.case} ({wide.heads} heads, width {wide.dim})", failure.advice) from failure
    return (
        f"{' and '.join(_precisions(target))}, training and evaluation: outputs differ from float64 by {format_number(worst)}"
    )


CHECKS = [Check("precisions and modes", at_drawn_sizes(modes))]
