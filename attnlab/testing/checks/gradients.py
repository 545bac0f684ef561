"""Gradients: correct, reaching every parameter, and outputs that stay accurate in bf16."""

import math
from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from torch import Tensor
from torch.func import functional_call

from attnlab.testing.checks.result import Check, Failure, NotDeclared
from attnlab.testing.checks.target import LONG_LENGTH, CheckTarget, at_drawn_sizes, seed_generators, trained_parameters

STEP, TOLERANCE = 1e-5, 1e-3  # of finite differences in float64; the tolerance is relative to the size of the gradient
SMALL_STEP = 1e-6
REFINED = 1e-2  # of a step, where a gradient does not match: a difference across a kink, of relu or sparsemax, shrinks with it
LEAST = 1e-4  # size of a gradient below which differences are absolute
# bf16 has 8 significant bits: a result is off by at most 1/512 of its size, or 0.2 %. The tolerance is 25 of these errors in
# the same direction, or 600 independent ones; a position that is off by one changes outputs by tens of percent.
BF16_TOLERANCE = 0.05
NUDGE, NUDGES = 2**-7, 16  # largest relative change of an input, of four roundings, and number of draws
MOST_NEAR_TIES = 0.75  # of the positions


def correct(target: CheckTarget) -> str:
    """Gradients of x, context and parameters match finite differences in float64, with dropout as well."""
    if target.dtype != torch.float64:
        raise NotDeclared(f"backend {target.backend} computes in {str(target.dtype).removeprefix('torch.')}, not in float64")
    count = sum(_run_gradcheck(target, role, target.backend) for role in target.roles)
    for role in target.roles:
        _require_far_gradients(target, role)
    dropout_backends = [name for name in target.backends if name != "xformers"] if target.variant.has_attention_dropout else []
    for role, name in product(target.roles, dropout_backends):
        _run_gradcheck(target, role, name, dropout=0.3)
    also = f", and with dropout ({', '.join(dropout_backends)})" if dropout_backends else ""
    return f"float64, {count} inputs and parameters in {', '.join(target.roles)}{also}"


def _run_gradcheck(target: CheckTarget, role: str, backend: str, *, dropout: float = 0.0) -> int:
    """Compare each gradient with a finite difference in a random direction; return how many values that covers.

    With ``dropout`` the layer is in training mode, and a fixed seed drops the same weights in every call. torch's ``gradcheck``
    is not used, because it computes the whole Jacobian of what fails, which takes minutes at the width of a study.
    """
    layer = target.build(role, backend=backend, dropout=dropout).train(dropout > 0)
    x, context = target.inputs(role, 1, 3, s=2)
    apart = target.variant.trained_apart
    named = {name: p for name, p in trained_parameters(layer.attention).items() if name.split(".")[0] not in apart}
    inputs = {"`x`": x} if context is None else {"`x`": x, "`context`": context}  # not the name of a parameter
    values = {name: z.detach().clone().requires_grad_() for name, z in {**inputs, **named}.items()}
    weights = target.noise(1, 3, seed=3)

    def loss(changed: str, value: Tensor) -> Tensor:
        seed_generators(0, target.device)
        now = {**values, changed: value}
        parameters = {f"attention.{name}": now[name] for name in named}
        return (functional_call(layer, parameters, tuple(now[name] for name in inputs)) * weights).sum()

    gradients = torch.autograd.grad(
        loss("`x`", values["`x`"]), list(values.values()), allow_unused=True, materialize_grads=True
    )
    generator = torch.Generator().manual_seed(4)
    for (name, value), gradient in zip(values.items(), gradients, strict=True):
        direction = torch.randn(value.shape, dtype=value.dtype, generator=generator).to(value.device)
        gap = _gap(partial(loss, name), value.detach(), gradient, direction, step=SMALL_STEP)
        if not gap <= TOLERANCE:
            case = f"{role}, batch 1, length 3" + (f", {backend}, dropout {dropout} in training" if dropout else "")
            raise Failure(
                f"{case}: the gradient of {name} differs from finite differences by {100 * gap:.2g} % of its size",
                "A custom backward pass must drop the same weights as its forward pass: save the mask or its seed."
                if dropout
                else "Look for detach(), .data, .item(), torch.no_grad() or a custom backward between the inputs and the "
                "output.",
            )
    return sum(value.numel() for value in values.values())


def _gap(loss: Callable[[Tensor], Tensor], at: Tensor, gradient: Tensor, direction: Tensor, *, step: float) -> float:
    """Return the difference of a gradient from a finite difference in a direction, relative to the gradient's size.

    The smaller one of two steps counts: a wrong gradient matches neither.
    """
    gap = math.inf
    for h in (step, REFINED * step):
        with torch.no_grad():
            difference = (loss(at + h * direction) - loss(at - h * direction)) / (2 * h)
            size = gradient.norm() * max(1, gradient.numel()) ** -0.5 * direction.norm()
            gap = min(gap, ((difference - (gradient * direction).sum()).abs() / (size + LEAST)).item())
        if gap <= TOLERANCE:
            break
    return gap


def _require_far_gradients(target: CheckTarget, role: str) -> None:
    """Raise ``Failure`` unless the gradient of each quarter of a long input matches a finite difference."""
    length = max(LONG_LENGTH, target.study_sizes.length if target.study_sizes else 0)
    layer = target.build(role, length=length)
    x, context = target.inputs(role, 1, length, s=length)
    keys, weights = x if context is None else context, target.noise(1, length, seed=3)

    def loss(keys: Tensor) -> Tensor:
        return ((layer(keys) if context is None else layer(x, keys)) * weights).sum()

    (gradient,) = torch.autograd.grad(loss(leaf := keys.clone().requires_grad_()), leaf)
    for quarter in torch.arange(length, device=keys.device).chunk(4):
        direction = torch.zeros_like(keys)
        direction[:, quarter] = target.noise(1, len(quarter), seed=4)
        gap = _gap(loss, keys, gradient, direction, step=STEP)
        if not gap <= TOLERANCE:
            place = f"positions {int(quarter[0])} .. {int(quarter[-1])}"
            raise Failure(
                f"{role}, batch 1, length {length}: the gradient of {place} differs from finite differences by "
                f"{100 * gap:.2g} % of its size",
                "Look for detach() or torch.no_grad() on a part of the sequence, or a custom backward that leaves one out.",
            )


def everywhere(target: CheckTarget) -> str:
    """Every parameter, and every row of a projection, receives a gradient in at least one role."""
    total: dict[str, Tensor] = {}  # name and shape -> absolute gradient; both may differ between roles
    for role in target.roles:
        layer = target.build(role, length=LONG_LENGTH)
        x, context = target.inputs(role, 1, LONG_LENGTH)  # long enough for every part of a strided pattern to occur
        named = trained_parameters(layer.attention)
        if not named:
            raise NotDeclared("the variant has no parameters")
        loss = (layer(x, context) * torch.randn_like(x)).sum()
        gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        for (name, parameter), gradient in zip(named.items(), gradients, strict=True):
            reached = torch.zeros_like(parameter) if gradient is None else gradient.abs()
            key = f"{name} {tuple(parameter.shape)}"
            total[key] = reached + total.get(key, torch.zeros_like(reached))
    for name, reached in total.items():
        where = "role " + ", ".join(target.roles)
        advice = (
            "Use the parameter in forward() without detach(), or remove it: an unused parameter distorts the parameter count."
        )
        if not reached.any():
            raise Failure(f"{where}: no gradient reaches the parameter {name}", advice)
        if reached.dim() == 2 and reached.shape[1] == target.dim and not reached.any(1).all():
            dead = (~reached.any(1)).nonzero().flatten().tolist()
            rows = f"{dead[0]} .. {dead[-1]}" if len(dead) > 1 else str(dead[0])
            raise Failure(f"{where}: no gradient reaches {len(dead)} rows of {name} (rows {rows})", advice)
    return f"all {len(total)} parameters, {sum(r.numel() for r in total.values())} numbers"


def in_bf16(target: CheckTarget) -> str:
    """The output in bf16 stays close to the widest precision, at a length with positions that bf16 cannot represent."""
    worst = 0.0
    for role in target.roles:
        exact = target.build(role, length=LONG_LENGTH)
        rounded = target.build(role, length=LONG_LENGTH, dtype=torch.bfloat16)
        x, context = target.inputs(role, 1, LONG_LENGTH, s=LONG_LENGTH)
        x, context = (None if z is None else z.bfloat16() for z in (x, context))
        weights = {name: p.bfloat16() for name, p in exact.state_dict().items()}
        rounded.load_state_dict(weights)
        exact.load_state_dict({name: p.to(target.dtype) for name, p in weights.items()})  # the same rounded numbers
        assert x is not None
        with torch.no_grad():
            y = exact(x.to(target.dtype), None if context is None else context.to(target.dtype))
            gap, size = ((z.to(y.dtype)).square().mean((0, 2)) for z in (rounded(x, context) - y, y))  # (t,)
            error = (gap.mean() / size.mean()).sqrt()
            if not error.item() <= BF16_TOLERANCE:  # outputs may jump where keys are selected
                kept = ~_near_ties(exact, x, context, y)
                error = (gap[kept].mean() / size[kept].mean()).sqrt()
        if not error.item() <= BF16_TOLERANCE:
            raise Failure(
                f"{role}, batch 1, length {LONG_LENGTH}: the root-mean-square error of bf16 is {100 * error.item():.1f} % "
                f"(at most {100 * BF16_TOLERANCE:.0f} %)",
                "Compute positions and long sums in float32: bf16 has 8 significant bits and skips integers above 256.",
            )
        worst = max(worst, error.item())
    return f"error {100 * worst:.2f} % at length {LONG_LENGTH} (at most {100 * BF16_TOLERANCE:.0f} %)"


def _near_ties(layer: torch.nn.Module, x: Tensor, context: Tensor | None, y: Tensor) -> Tensor:
    """Return True for the positions (t,) where the output jumps in float64, too, if inputs change by a few roundings.

    Where the largest logits select keys, two nearly equal ones may change places: another output is then as right. False
    everywhere if more than `MOST_NEAR_TIES` jump, so that enough positions are left to judge.
    """
    jumps = torch.zeros(y.shape[1], dtype=torch.bool, device=y.device)
    for seed in range(NUDGES):
        nudged = [
            None if z is None else z.to(y.dtype) * (1 + NUDGE * (2 * _uniform(z, seed).to(y.dtype) - 1)) for z in (x, context)
        ]
        change = (layer(*nudged) - y).square().mean((0, 2))
        jumps |= change > BF16_TOLERANCE**2 * y.square().mean()
    return jumps if jumps.double().mean() <= MOST_NEAR_TIES else torch.zeros_like(jumps)


def _uniform(z: Tensor, seed: int) -> Tensor:
    return torch.rand(z.shape, generator=torch.Generator().manual_seed(seed)).to(z.device)


CHECKS = [Check("gradcheck", correct), Check("gradient coverage", at_drawn_sizes(everywhere, draws=1)), Check("bf16", in_bf16)]
