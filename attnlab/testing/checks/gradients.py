"""Gradients: right, everywhere, and of use in low precision."""

from itertools import product

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError, gradcheck
from torch.func import functional_call

from attnlab.testing.checks.target import LONG, Check, CheckTarget, Failure, NotDeclared

ROUGH = 0.05  # bf16 has 8 bits: an error of 1 in 256 a step, a few steps


def right(subject: CheckTarget) -> str:
    """``gradcheck`` in float64: gradients to x, source and parameters are those of finite differences; under dropout, too."""
    if subject.dtype != torch.float64:
        raise NotDeclared(f"backend {subject.backend} has no double precision")
    compared = sum(_compared(subject, role, subject.backend) for role in subject.roles)
    dropping = [name for name in subject.backends if name != "xformers"] if subject.variant.has_attention_dropout else []
    for role, name in product(subject.roles, dropping):
        _compared(subject, role, name, dropout=0.3)
    also = f", and with dropout by {', '.join(dropping)}" if dropping else ""
    return f"float64, {compared} inputs and parameters in {', '.join(subject.roles)}{also}"


def _compared(subject: CheckTarget, role: str, backend: str, *, dropout: float = 0.0) -> int:
    """How many numbers took part; with dropout in training mode, the same weights dropped every time."""
    cell = subject.build(role, backend=backend, dropout=dropout).train(dropout > 0)
    x, context = subject.inputs(role, 1, 3, s=2)
    parameters = {f"attention.{name}": p for name, p in cell.attention.named_parameters()}
    inputs = [x.requires_grad_(), *([] if context is None else [context.requires_grad_()]), *parameters.values()]
    n = 1 if context is None else 2

    def run(*given: Tensor) -> Tensor:
        torch.manual_seed(0)
        return functional_call(cell, dict(zip(parameters, given[n:], strict=True)), given[:n])

    try:
        gradcheck(run, inputs, fast_mode=True)  # along random directions: every entry of the Jacobian takes part
    except GradcheckError as error:
        which = f"{role}, batch 1, length 3" + (f", {backend}, dropout {dropout} in training" if dropout else "")
        raise Failure(
            f"{which}: gradients are not those of finite differences ({str(error).splitlines()[0][:90]})",
            "A custom backward must drop what its forward dropped: draw from a seed that forward keeps, or keep the mask."
            if dropout
            else "Look for detach(), .data, .item(), torch.no_grad() or a custom backward on the way to the output.",
        ) from error
    return sum(each.numel() for each in inputs)


def everywhere(subject: CheckTarget) -> str:
    """Every parameter, and every row of a projection, gets a gradient in some role."""
    got: dict[str, Tensor] = {}  # by name and shape: both may differ from role to role
    for role in subject.roles:
        cell = subject.build(role, length=LONG)
        x, context = subject.inputs(role, 1, LONG)  # long enough for a pattern with a stride to come round
        named = dict(cell.attention.named_parameters())
        if not named:
            raise NotDeclared("it has no parameters")
        loss = (cell(x, context) * torch.randn_like(x)).sum()
        found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        for (name, parameter), gradient in zip(named.items(), found, strict=True):
            reached = torch.zeros_like(parameter) if gradient is None else gradient.abs()
            key = f"{name} {tuple(parameter.shape)}"
            got[key] = reached + got.get(key, torch.zeros_like(reached))
    for name, reached in got.items():
        where = "role " + ", ".join(subject.roles)
        advice = "Use it in forward(), without detach(); a parameter that plays no part must not be counted: remove it."
        if not reached.any():
            raise Failure(f"{where}: no gradient reaches the parameter {name}", advice)
        if reached.dim() == 2 and reached.shape[1] == subject.dim and not reached.any(1).all():
            dead = (~reached.any(1)).nonzero().flatten().tolist()
            rows = f"{dead[0]} .. {dead[-1]}" if len(dead) > 1 else str(dead[0])
            raise Failure(f"{where}: no gradient reaches {len(dead)} rows of {name} (rows {rows})", advice)
    return f"all {len(got)} parameters, {sum(r.numel() for r in got.values())} numbers"


def in_bf16(subject: CheckTarget) -> str:
    """bf16 stays near the widest precision, at a length that bf16 cannot count to."""
    worst = 0.0
    for role in subject.roles:
        exact = subject.build(role, length=LONG)
        rough = subject.build(role, length=LONG, dtype=torch.bfloat16)
        x, context = subject.inputs(role, 1, LONG, s=LONG)
        x, context = (None if z is None else z.bfloat16() for z in (x, context))
        weights = {name: p.bfloat16() for name, p in exact.state_dict().items()}
        rough.load_state_dict(weights)
        exact.load_state_dict({name: p.to(subject.dtype) for name, p in weights.items()})  # the same rounded numbers
        assert x is not None
        with torch.no_grad():
            y = exact(x.to(subject.dtype), None if context is None else context.to(subject.dtype))
            error = (rough(x, context).to(y.dtype) - y).square().mean().sqrt() / y.square().mean().sqrt()
        if not error.item() <= ROUGH:
            raise Failure(
                f"{role}, batch 1, length {LONG}: bf16 is off by {100 * error.item():.1f} % (root mean square; at most "
                f"{100 * ROUGH:.0f} %)",
                "Count positions, and sum what is long, in float32: bf16 has 8 bits and skips whole numbers beyond 256.",
            )
        worst = max(worst, error.item())
    return f"off by {100 * worst:.2f} % at length {LONG} (at most {100 * ROUGH:.0f} %)"


CHECKS = [Check("gradcheck", right), Check("gradients everywhere", everywhere), Check("bf16", in_bf16)]
