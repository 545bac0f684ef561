"""Numbers and state: parts of a bias, gradients, precision, saving, copying and seeding."""

from __future__ import annotations

import copy
import pickle

import torch
from torch import Tensor

from attnlab.nn.layers import relative_shift
from attnlab.positions import Position
from attnlab.testing.checks.bias import block_gap
from attnlab.testing.checks.measure import format_number, max_abs_diff
from attnlab.testing.checks.result import Check, Failure, NotDeclared
from attnlab.testing.checks.target import LENGTH, LONG_LENGTH, trained_parameters
from attnlab.testing.position_checks.target import TOLERANCE, SchemeTarget, logits, visible_gap
from attnlab.variants import ROLES

BF16_TOLERANCE = 2e-2  # of the largest value: bf16 has 8 bits
TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: BF16_TOLERANCE}


def blocks(target: SchemeTarget) -> str:
    """A block of the bias equals that part of the whole, if ``bias`` takes ``heads``, ``step`` and ``offset``."""
    target.require("bias")
    if not target.scheme.has_blockwise_bias():
        raise NotDeclared("bias() takes no heads, step and offset: variants that request parts refuse the scheme")
    name = target.scheme.__name__
    worst = max(block_gap(target.build(role), role, target.device, torch.float64, name=name) for role in target.roles)
    return f"error {format_number(worst)}"


def products(target: SchemeTarget) -> str:
    """``relative_logits``, if it returns a value, gives the logits of ``bias``."""
    if target.scheme.relative_logits is Position.relative_logits:
        raise NotDeclared("relative_logits() is not defined")
    target.require("bias")
    worst = 0.0
    for role in target.roles:
        scheme = target.build(role)
        for t, s in [(LENGTH, LENGTH), *([(3, LENGTH)] if role == "causal" else [])]:
            q, k = target.noise(t), target.noise(s, seed=2)
            parts = scheme.relative_logits(q, s)
            if parts is None:
                raise NotDeclared("relative_logits() returns None")
            content, distance, r = parts
            ours = 0.5 * (content @ k.mT + relative_shift(distance @ r.mT, s))
            gap = visible_gap(role, ours, logits(scheme, q, k))
            if not gap <= TOLERANCE:
                raise Failure(
                    f"role {role}, {t} queries, {s} keys: relative_logits() and q k^T + bias() differ by {format_number(gap)}",
                    "See attnlab.nn.RelativeLogits for the order of the distances; or return None.",
                )
            worst = max(worst, gap)
    return f"error {format_number(worst)}"


def gradients(target: SchemeTarget) -> str:
    """Every parameter gets a gradient, and the gradient of queries and keys is that of the formula (gradcheck)."""
    target.require("embed", "rotate", "bias")
    role = target.roles[0]
    scheme = target.build(role)
    parameters = trained_parameters(scheme)
    q, k = (target.noise(3, b=2, seed=seed).requires_grad_() for seed in (1, 2))
    if target.hook == "embed":
        value = scheme.embed(LENGTH)
    else:
        try:
            torch.autograd.gradcheck(lambda q, k: logits(scheme, q, k).tril(), (q, k), fast_mode=True)
        except RuntimeError as error:
            raise Failure(
                f"role {role}, length 3: the gradient of queries and keys differs from finite differences",
                "Look for detach(), no_grad() or .item() in the hook, or a wrong backward().",
            ) from error
        value = logits(scheme, q, k).tril()
    weights = torch.randn(value.shape, dtype=value.dtype, generator=torch.Generator().manual_seed(3)).to(value)
    loss = (value * weights).sum()
    for name, parameter in parameters.items():
        (gradient,) = torch.autograd.grad(loss, parameter, retain_graph=True, allow_unused=True)
        if gradient is None or not gradient.abs().max() > 0:
            raise Failure(f"role {role}: the parameter {name} gets no gradient", "Use it in the hook, or make it a buffer.")
    return f"{len(parameters)} parameters, each with a gradient" if parameters else "no parameters"


def bf16(target: SchemeTarget) -> str:
    """With queries and keys in float32 and bf16 the result is close to float64: positions beyond 256 are not rounded."""
    target.require("rotate", "bias")
    worst = max(_error(target, role, dtype) for role in target.roles for dtype in TOLERANCES)
    if target.hook == "bias" and target.scheme.relative:
        for role in target.roles:
            _check_bf16_diagonals(target, role)
    return f"length {LONG_LENGTH}: error {format_number(worst)} of the largest value"


def _error(target: SchemeTarget, role: str, dtype: torch.dtype) -> float:
    """Return the largest error in a precision, relative to the largest value."""
    scheme, name = target.build(role, length=LONG_LENGTH), str(dtype).removeprefix("torch.").replace("bfloat", "bf")
    low = copy.deepcopy(scheme).float()
    q, k = (target.noise(LONG_LENGTH, b=1, seed=seed).bfloat16().to(dtype) for seed in (1, 2))
    if target.hook == "rotate":
        exact, rounded = scheme.rotate(q.double(), k.double()), low.rotate(q, k)
        if rounded[0].dtype != q.dtype or rounded[1].dtype != k.dtype:
            dtypes = f"{rounded[0].dtype}, {rounded[1].dtype}"
            raise Failure(f"role {role}: rotate() of {name} returns {dtypes}", "Cast the results to the dtypes of q and k.")
    else:
        shape = (1, target.heads, LONG_LENGTH, LONG_LENGTH)
        exact, rounded = (
            (z.bias(*qk, scale=0.5).expand(shape),) for z, qk in ((scheme, (q.double(), k.double())), (low, (q, k)))
        )
    worst = 0.0
    for one, other in zip(exact, rounded, strict=True):
        gap = (one - other).tril() if role == "causal" and target.hook == "bias" else one - other
        error = gap.abs().max().item() / max(1e-9, one.abs().max().item())
        if not error <= TOLERANCES[dtype]:
            case = f"role {role}, length {LONG_LENGTH}: {target.hook}() in {name} is off by {format_number(error)}"
            raise Failure(f"{case} of the largest value", _IN_FLOAT32)
        worst = max(worst, error)
    return worst


def _check_bf16_diagonals(target: SchemeTarget, role: str) -> None:
    """Raise ``Failure`` if rounding in bf16 makes a relative bias depend on more than the distance."""
    scheme = target.build(role, length=LONG_LENGTH).float()
    q, k = (target.noise(1, b=1, seed=seed).bfloat16().expand(-1, -1, LONG_LENGTH, -1) for seed in (1, 2))
    bias = scheme.bias(q, k, scale=0.5).float().expand(1, target.heads, LONG_LENGTH, LONG_LENGTH)
    gap, size = (bias[..., 1:, 1:] - bias[..., :-1, :-1]).abs(), bias[..., 1:, 1:].abs()
    excess = gap - BF16_TOLERANCE * (size + 0.1 * size.max())
    excess = excess.tril() if role == "causal" else excess
    if excess.max() > 0:
        worst = gap.flatten()[excess.argmax()].item()
        case = f"role {role}, length {LONG_LENGTH}, bf16: the bias of one distance differs by {format_number(worst)}"
        raise Failure(case, _IN_FLOAT32)


_IN_FLOAT32 = (
    "Compute positions, angles and slopes in float32 and cast the result: bf16 does not represent all integers above 256."
)


def _values(target: SchemeTarget, scheme: Position, role: str) -> Tensor:
    if target.hook == "embed":
        return scheme.embed(LENGTH)
    q, k = target.noise(LENGTH), target.noise(LENGTH, seed=2)
    return logits(scheme, q, k) if target.hook != "none" else q @ k.mT


def state(target: SchemeTarget) -> str:
    """Saving, copying and pickling keep the scheme; calls at other lengths do not change it."""
    for role in target.roles:
        scheme, loaded = target.build(role, seed=0), target.build(role, seed=1)
        before = _values(target, scheme, role).detach()
        loaded.load_state_dict(scheme.state_dict())
        copies = {"load_state_dict": loaded, "deepcopy": copy.deepcopy(scheme), "pickle": pickle.loads(pickle.dumps(scheme))}
        if target.hook in ("rotate", "bias"):
            logits(scheme, target.noise(2, b=1), target.noise(2, b=1))
        elif target.hook == "embed":
            scheme.embed(2)
        copies["a call at another length"] = scheme
        for name, other in copies.items():
            gap = max_abs_diff(before, _values(target, other, role).detach())
            if gap > 0:
                raise Failure(
                    f"role {role}: {name} changes the result by {format_number(gap)}",
                    "Make weights nn.Parameters, register other tensors as buffers, and do not change them in a call.",
                )
    return "state_dict, copies, pickle and earlier calls leave the result unchanged"


def seeded(target: SchemeTarget) -> str:
    """The same seed gives the same scheme, and calls repeat."""
    role = target.roles[0]
    one, other = (_values(target, target.build(role), role).detach() for _ in range(2))
    gap = max_abs_diff(one, other)
    if gap > 0:
        raise Failure(
            f"role {role}: constructed and called twice with the same seed, results differ by {format_number(gap)}",
            "Use only torch's random generator, and in the constructor only.",
        )
    return "constructed and called twice with the same seed: the same result"


def cross(target: SchemeTarget) -> str:
    """A scheme that acts on pairs of one sequence refuses the role ``cross``; a reason is a text."""
    for role in ROLES:
        reason = target.unsupported(role)
        if reason is not None and not isinstance(reason, str):
            raise Failure(f"unsupported() returned {reason!r} for role {role}", "Return the reason as a text, or None.")
    if target.hook in ("rotate", "bias") and target.unsupported("cross") is None:
        raise Failure(
            f"the role cross is not refused, although {target.hook}() treats queries and keys as one sequence",
            "End your override of unsupported() with `return super().unsupported(config, options=options)`.",
        )
    refused = ", ".join(role for role, _ in target.unsupported_roles)
    return f"refused: {refused}" if refused else "every role is supported"


CHECKS = (
    Check("bias in blocks", blocks),
    Check("relative logits", products),
    Check("gradients", gradients),
    Check("bf16", bf16),
    Check("state", state),
    Check("seed", seeded),
    Check("roles refused", cross),
)
