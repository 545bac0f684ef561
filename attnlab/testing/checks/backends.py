"""Backends compute the same function as ``reference``, masks, bias and gradients included, and dropout in expectation."""

from dataclasses import replace

import torch
from torch import Tensor

from attnlab.nn import attention
from attnlab.nn.attention import BACKENDS
from attnlab.testing.checks.target import Cell, Check, CheckTarget, Failure, NotDeclared, S, T, Unsupported, number

TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
SAMPLES = 4096
BLOCKS = 131  # positions: more than two of the blocks of 64 queries by which backends go through a causal role


def equal(subject: CheckTarget) -> str:
    """Output and every gradient equal those of ``reference``, with and without mask and memory, and where it is long."""
    others = _to_compare(subject)
    found = []
    for backend in others:
        cuda_only = backend == "xformers"
        dtypes = (torch.float32, torch.float16, torch.bfloat16) if cuda_only else (torch.float64,)
        for dtype in dtypes:
            worst = max(_gap(each, backend, role, dtype) for each in subject.under_schemes() for role in each.roles)
            found.append(f"{backend} {str(dtype).removeprefix('torch.')} {number(worst)}")
    absent = [name for name in subject.variant.backends if attention.unsupported(name, device=subject.device)]
    return "differs by: " + ", ".join(found) + (f"; not on {subject.device}: {', '.join(absent)}" if absent else "")


def _to_compare(subject: CheckTarget) -> list[str]:
    """The backends to hold against ``reference``: the one that was asked for, or each that runs here."""
    declared = [name for name in subject.variant.backends if name != "reference"]
    if "reference" not in subject.variant.backends:
        raise NotDeclared("it has no reference to compare with")
    wanted = [subject.backend] if subject.backend != "reference" else declared
    if not wanted:
        raise NotDeclared("reference is its only backend")
    here = [name for name in wanted if attention.unsupported(name, device=subject.device) is None]
    if not here:
        raise Unsupported("; ".join(attention.unsupported(name, device=subject.device) or "" for name in wanted))
    return here


def _gap(subject: CheckTarget, backend: str, role: str, dtype: torch.dtype) -> float:
    """The largest difference between a backend in ``dtype`` and the reference in float64, over the largest value."""
    exact = subject.build(role, backend="reference", dtype=torch.float64)
    other = subject.build(role, backend=backend, dtype=dtype)
    weights = {name: p.to(dtype) for name, p in exact.state_dict().items()}
    other.load_state_dict(weights)
    exact.load_state_dict({name: p.double() for name, p in weights.items()})
    worst = 0.0
    remembers = role == "causal" and subject.variant.memory and not subject.variant_unsupported(role=role, memory=True)
    in_blocks = role == "causal" and dtype == torch.float64
    for name in ("plain", "masked", *(["memory"] if remembers else []), *([f"length {BLOCKS}"] if in_blocks else [])):
        one, two = (_outputs(subject, cell, role, name, kind) for cell, kind in ((exact, torch.float64), (other, dtype)))
        for what, expected in one.items():
            largest = max(expected.abs().max().item(), 1e-3)
            gap = (two[what].double() - expected).abs().max().item() / largest
            if not gap <= TOLERANCES[dtype]:
                case = f"{role}, position {subject.scheme_name}, {name}, {dtype}"
                raise Failure(
                    f"{case}: {what} by {backend} differs from reference by {number(gap)} of its largest",
                    "Pass everything to `attend(..., backend=self.backend)`: mask, bias and scale; or take the "
                    "backend out of `backends`.",
                )
            worst = max(worst, gap)
    return worst


def _outputs(subject: CheckTarget, cell: Cell, role: str, name: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """The output, and the gradients to x, source and every parameter."""
    t = BLOCKS if name == f"length {BLOCKS}" else T
    x, context = subject.inputs(role, 2, t)
    if name == "memory":
        context = torch.cat([subject.noise(2, 5, seed=8), x], dim=1)
    mask = None
    if name == "masked":
        mask = torch.ones(2, T if context is None else S, dtype=torch.bool, device=subject.device)
        mask[0, -2:] = mask[1, 0] = False
    leaves = {"the gradient to x": x.to(torch.bfloat16).to(dtype).requires_grad_()}
    if context is not None:
        leaves["the gradient to source"] = context.to(torch.bfloat16).to(dtype).requires_grad_()
    y = cell(leaves["the gradient to x"], leaves.get("the gradient to source"), mask)
    leaves |= {f"the gradient to {n}": p for n, p in cell.attention.named_parameters()}
    weights = subject.noise(2, t, seed=9).to(dtype)
    gradients = torch.autograd.grad((y * weights).sum(), list(leaves.values()), allow_unused=True)
    found = {name: g for name, g in zip(leaves, gradients, strict=True) if g is not None}
    return {"the output": y.detach(), **found}


def dropped(subject: CheckTarget) -> str:
    """Dropout acts in training only, and changes no expectation."""
    if not subject.variant.has_attention_dropout:
        raise NotDeclared("it has no attention weights to drop")
    off = max(_dropped(subject, name) for name in subject.backends)
    return f"{', '.join(subject.backends)}: the mean of {SAMPLES} samples lies within {off:.1f} standard errors"


def _dropped(subject: CheckTarget, backend: str) -> float:
    subject = replace(subject, backend=backend)
    role = subject.roles[0]
    x, context = subject.inputs(role, 1, 5, s=5)
    exact = subject.build(role)
    cell = subject.build(role, dropout=0.3)
    cell.load_state_dict(exact.state_dict())
    many = [None if z is None else z.expand(SAMPLES, -1, -1) for z in (x, context)]
    advice = (
        "Drop attention weights by self.dropout, in training only, and scale the rest by 1 / (1 - p), as self.attend does; "
        "or declare `has_attention_dropout = False` where there are no weights to drop."
    )
    with torch.no_grad():
        y = exact(x, context)
        if not (cell(x, context) - y).abs().max().item() <= subject.tolerance:
            raise Failure(f"{role}, {backend}, batch 1, length 5: dropout 0.3 acts in evaluation mode", advice)
        torch.manual_seed(2)
        samples = cell.train()(*many).double()  # each row of the batch draws its own
    error = samples.std(0) / SAMPLES**0.5
    if not error.max().item() > subject.tolerance:
        raise Failure(f"{role}, {backend}, length 5, {SAMPLES} samples: dropout 0.3 drops nothing in training", advice)
    off = ((samples.mean(0) - y.double()).abs() / (error[None] + 1e-9)).max().item()
    if not off < 6:
        raise Failure(
            f"{role}, {backend}, length 5: the mean of {SAMPLES} samples lies {off:.0f} standard errors off the output "
            "without dropout",
            advice,
        )
    return off


def refused(subject: CheckTarget) -> str:
    """Backends that are not declared are refused, and declared ones exist."""
    for name in subject.variant.backends:
        if name not in BACKENDS:
            raise Failure(f"it declares the backend {name!r}", f"Backends are {', '.join(BACKENDS)}.")
    missing = [name for name in BACKENDS if name not in subject.variant.backends]
    for name in missing:
        if not subject.variant_unsupported(backend=name):
            raise Failure(
                f"backend {name} is not among backends, yet unsupported() returns None",
                "End your override of unsupported() with `return super().unsupported(...)`, or declare the backend.",
            )
    return f"refused: {', '.join(missing)}" if missing else "it has every backend"


CHECKS = [Check("backends", equal), Check("dropout", dropped), Check("backends refused", refused)]
