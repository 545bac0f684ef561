"""The contract of a position scheme: properties of its hook alone, without a variant.

Internal: not part of the public interface. ``attnlab.testing.check(variant, position=...)`` checks a scheme in a variant.

- Shapes and order: each position has an effect, in the right place, at any length, with memory in front.
- Numbers and state: parts of a bias, gradients, precision, saving, copying and seeding.
"""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.nn.layers import relative_shift
from attnlab.positions import Position, PositionConfig
from attnlab.registry import with_defaults
from attnlab.testing.checks.positions import require_hook_shapes
from attnlab.testing.checks.result import Check, Failure, NotDeclared, format_number, max_abs_diff, require_small
from attnlab.testing.checks.target import (
    BATCH,
    LENGTH,
    LONG_LENGTH,
    perturb_constant_parameters,
    seed_generators,
    trained_parameters,
)
from attnlab.variants import ROLES

HOOKS = ("embed", "rotate", "bias", "none")
HEAD_SHAPES = ((3, 7), (3, 10), (3, 8), (2, 8), (4, 8))  # (heads, head width), the first supported one is used
TRAINED_LENGTH = 300  # that the scheme is constructed for
TOLERANCE = 1e-9
BF16_TOLERANCE = 2e-2  # of the largest value: bf16 has 8 bits
TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: BF16_TOLERANCE}
LONG = 600  # positions, which exceed the sizes at which tables and blocks often end, such as 256 and 512
MEMORY = 5  # keys in front of the first query


@dataclass(frozen=True)
class SchemeTarget:
    """A position scheme with its options, and the sizes and roles to check it with.

    Attributes:
        scheme: the class to check.
        options: keyword arguments of its constructor.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        heads, head_dim: number of heads and width of one; ``with_supported_shape`` chooses them.
        roles: the roles that the scheme supports.
        unsupported_roles: the other roles, with the reason.
    """

    scheme: type[Position]
    options: dict[str, Any]
    device: str = "cpu"
    heads: int = 3
    head_dim: int = 7
    roles: tuple[str, ...] = ROLES
    unsupported_roles: tuple[tuple[str, str], ...] = ()

    @property
    def hook(self) -> str:
        """The hook of the scheme."""
        return self.scheme.hook

    def config(self, role: str, *, length: int = TRAINED_LENGTH) -> PositionConfig:
        """Return the configuration that the scheme is constructed with."""
        width = self.heads * self.head_dim
        return PositionConfig(dim=width, heads=self.heads, head_dim=self.head_dim, length=length, role=role)

    def with_supported_shape(self, heads: int | None, dim: int | None) -> SchemeTarget:
        """Return a copy with the first supported shape, and the roles that support it."""
        refused: tuple[tuple[str, str], ...] = ()
        for h, d in HEAD_SHAPES:
            h = heads or h
            tried = replace(self, heads=h, head_dim=dim // h if dim else d)
            reasons = {role: tried.unsupported(role) for role in ROLES}
            refused = tuple((role, reason) for role, reason in reasons.items() if reason)
            roles = tuple(role for role in ROLES if not reasons[role])
            if roles:
                return replace(tried, roles=roles, unsupported_roles=refused)
        return replace(self, roles=(), unsupported_roles=refused)

    def unsupported(self, role: str) -> str | None:
        """Return the reason why the scheme does not support a role, or None."""
        return self.scheme.unsupported(self.config(role), options=with_defaults(self.scheme, self.options))

    def build(self, role: str, *, length: int = TRAINED_LENGTH, seed: int = 0) -> Position:
        """Return the scheme in float64, with noise added to parameters that start as a constant."""
        seed_generators(seed, self.device)
        scheme = self.scheme(self.config(role, length=length), **self.options)
        perturb_constant_parameters(scheme)
        return scheme.to(self.device, torch.float64).eval()

    def noise(self, length: int, *, b: int = BATCH, seed: int = 1) -> Tensor:
        """Return standard normal values (b, h, length, d)."""
        generator = torch.Generator().manual_seed(seed)
        values = torch.randn(b, self.heads, length, self.head_dim, dtype=torch.float64, generator=generator)
        return values.to(self.device)

    def require(self, *hooks: str) -> None:
        """Raise ``NotDeclared`` unless the scheme acts by one of ``hooks``."""
        if self.hook not in hooks:
            raise NotDeclared(f"the hook is '{self.hook}'")


def logits(scheme: Position, q: Tensor, k: Tensor, **mask: Any) -> Tensor:
    """Return the logits (b, h, t, s) of q and k with a scheme that acts by ``rotate`` or ``bias``."""
    if scheme.hook == "rotate":
        q, k = scheme.rotate(q, k)
        return q @ k.mT / 2
    return q @ k.mT / 2 + scheme.bias(q, k, scale=0.5, **mask)


def visible_gap(role: str, one: Tensor, other: Tensor) -> float:
    """Return the largest difference of two tensors of logits (..., t, s), in a causal role of the visible ones."""
    t, s = one.shape[-2:]
    gap = one - other
    return max_abs_diff(gap.tril(s - t) if role == "causal" else gap, torch.zeros_like(gap))


def shapes(target: SchemeTarget) -> str:
    """The scheme has one hook, and its method returns finite values of the documented shape, also with memory in front."""
    if target.hook not in HOOKS:
        raise Failure(f"hook is {target.hook!r}", f"Set `hook` to one of {', '.join(HOOKS)}.")
    defined = [name for name in HOOKS[:-1] if getattr(target.scheme, name) is not getattr(Position, name)]
    if defined != [hook for hook in (target.hook,) if hook != "none"]:
        raise Failure(
            f"hook is '{target.hook}', but the class defines {' and '.join(defined) or 'none of the hooks'}",
            "A scheme acts through exactly one hook: set `hook` to it, and define the method of that name only.",
        )
    for role in target.roles:
        for t, s in [(1, 1), (2, 2), (LENGTH, LENGTH), (LENGTH, LENGTH + MEMORY), (1, LENGTH)]:
            if s == t or role == "causal":
                case = f"role {role}, {t} queries, {s} keys"
                require_hook_shapes(target.build(role), target.noise(t), target.noise(s, seed=2), case)
    sizes = f"{target.heads} heads of width {target.head_dim}"
    return f"hook '{target.hook}', {', '.join(target.roles)}: lengths 1 to {LENGTH}, memory {MEMORY}, {sizes}"


def effect(target: SchemeTarget) -> str:
    """The scheme treats some positions differently from others."""
    target.require("embed", "rotate", "bias")
    least = float("inf")
    for role in target.roles:
        scheme = target.build(role)
        if target.hook == "embed":
            values = scheme.embed(LENGTH).expand(LENGTH, -1)
            spread = max_abs_diff(values[1:], values[:-1])
            _require_different(target.build(role, length=max(LONG, TRAINED_LENGTH)), role)
        else:
            q = target.noise(1).expand(-1, -1, LENGTH, -1)  # equal queries and keys: only positions differ
            last = logits(scheme, q, q)[..., -1, :]
            spread = max_abs_diff(last[..., 1:], last[..., :-1])
        if not spread > TOLERANCE:
            raise Failure(
                f"role {role}, length {LENGTH}: {target.hook}() treats all positions alike",
                "A scheme must tell positions apart: otherwise attention sees a set.",
            )
        least = min(least, spread)
    return f"neighboring positions differ by up to {format_number(least)}"


def _require_different(scheme: Position, role: str) -> None:
    """Raise ``Failure`` when two positions of a long sequence have the same vector."""
    values, index = scheme.embed(LONG).detach().expand(LONG, -1).unique(dim=0, return_inverse=True)
    if 1 < len(values) < LONG:
        first = {int(index[i]): i for i in reversed(range(LONG))}
        i = next(i for i in range(LONG) if first[int(index[i])] != i)
        raise Failure(
            f"role {role}, length {LONG}: embed() gives positions {first[int(index[i])]} and {i} the same vector",
            "Each position has its own vector, up to the length that the scheme is constructed for.",
        )


def _sequence(target: SchemeTarget, role: str, length: int) -> tuple[Position, Tensor, Tensor]:
    """Return the scheme, queries and keys of a sequence; of a long one, a single row."""
    b = BATCH if length == LENGTH else 1
    scheme = target.build(role, length=max(length, TRAINED_LENGTH))
    return scheme, target.noise(length, b=b), target.noise(length, b=b, seed=2)


def parts(target: SchemeTarget) -> str:
    """In a causal role, the first positions of a sequence, and its last queries over all keys, are those of the whole."""
    target.require("embed", "rotate", "bias")
    if "causal" not in target.roles:
        raise NotDeclared("the role causal is not supported")
    worst = 0.0
    for length, first, last in ((LENGTH, (1, 2, LENGTH - 1), (1, 3, LENGTH - 1)), (LONG, (LENGTH, 257), (1, 270))):
        scheme, q, k = _sequence(target, "causal", length)
        whole = scheme.embed(length).expand(length, -1) if target.hook == "embed" else logits(scheme, q, k)
        for t in first:
            if target.hook == "embed":
                gap = max_abs_diff(scheme.embed(t).expand(t, -1), whole[:t])
            else:
                gap = visible_gap("causal", logits(scheme, q[:, :, :t], k[:, :, :t]), whole[:, :, :t, :t])
            case = f"causal: the first {t} of {length} positions differ from a sequence of {t}"
            advice = "A position must not depend on the length of the sequence: count from its start, and do not divide by it."
            worst = max(worst, require_small(gap, TOLERANCE, case, advice))
        for t in last if target.hook != "embed" else ():
            gap = visible_gap("causal", logits(scheme, q[:, :, -t:], k), whole[:, :, -t:])
            case = f"causal, {t} queries, {length} keys: logits differ from the whole sequence"
            advice = "Queries and keys end at the same position: query i is at i + s - t, as in relative_distance(t, s)."
            worst = max(worst, require_small(gap, TOLERANCE, case, advice))
    return f"error {format_number(worst)}"


def relative(target: SchemeTarget) -> str:
    """A scheme that is declared relative depends on distances alone: logits are constant along diagonals."""
    if not target.scheme.relative:
        raise NotDeclared("`relative` is False")
    if target.hook not in ("rotate", "bias"):
        raise Failure(f"a scheme that acts by '{target.hook}' is declared relative", "Set `relative = False`.")
    worst = 0.0
    for role, length in product(target.roles, (LENGTH, LONG)):
        scheme, *qk = _sequence(target, role, length)
        values = logits(scheme, *(z[:, :, :1].expand_as(z) for z in qk))  # only positions differ
        gap = visible_gap(role, values[..., 1:, 1:], values[..., :-1, :-1])
        case = f"role {role}, length {length}: one step later, the logits of the same distance differ"
        advice = "Compute positions as i + s - t - j (relative_distance), or set `relative = False`."
        worst = max(worst, require_small(gap, TOLERANCE, case, advice))
    return f"logits differ along diagonals by {format_number(worst)}"


def extrapolation(target: SchemeTarget) -> str:
    """Longer sequences than the trained length work if ``extrapolates`` is True, and raise an error otherwise."""
    target.require("embed", "rotate", "bias")
    role, trained = target.roles[0], 7
    scheme, longer = target.build(role, length=trained), 2 * trained + 1
    q = target.noise(longer)
    try:
        value = scheme.embed(longer).expand(longer, -1) if target.hook == "embed" else logits(scheme, q, q)
    except Exception as error:  # the type of the exception is the author's choice
        if not target.scheme.extrapolates:
            return f"refused beyond the trained length: {str(error)[:80]}"
        raise Failure(
            f"role {role}, constructed for {trained}, length {longer}: {type(error).__name__}: {str(error)[:90]}",
            "Support longer sequences, or set `extrapolates = False`.",
        ) from error
    if not target.scheme.extrapolates:
        raise Failure(
            f"`extrapolates` is False, but length {longer} works in a scheme for {trained}",
            "Raise an error beyond `config.length`, or set `extrapolates = True`.",
        )
    if not torch.isfinite(value).all():
        raise Failure(f"role {role}, constructed for {trained}, length {longer}: not finite", "Or set `extrapolates = False`.")
    return f"constructed for {trained}, length {longer} works"


def batch_independence(target: SchemeTarget) -> str:
    """A row of a batch is treated as if it were alone."""
    target.require("rotate", "bias")
    worst = 0.0
    for role in target.roles:
        scheme, q, k = _sequence(target, role, LENGTH)
        whole = logits(scheme, q, k)
        for row in range(BATCH):
            gap = visible_gap(role, logits(scheme, q[row : row + 1], k[row : row + 1]), whole[row : row + 1])
            case = f"role {role}: row {row} of {BATCH} differs from the row on its own"
            advice = "Do not sum or normalize over the first dimension, and do not index it with positions."
            worst = max(worst, require_small(gap, TOLERANCE, case, advice))
    return f"error {format_number(worst)}"


def padding(target: SchemeTarget) -> str:
    """A scheme that reads the mask treats real positions as if the padded ones between and behind them were absent."""
    if not target.scheme.reads_mask:
        raise NotDeclared("`reads_mask` is False")
    worst = 0.0
    for role in target.roles:
        scheme, q, k = _sequence(target, role, LENGTH)
        real = torch.ones(LENGTH, dtype=torch.bool, device=q.device)
        real[4:6] = real[-2:] = False
        visible = real.expand(1, 1, LENGTH, LENGTH)
        visible = visible.tril() if role == "causal" else visible
        alone = logits(scheme, q[:, :, real], k[:, :, real])
        gap = visible_gap(role, logits(scheme, q, k, visible=visible)[:, :, real][..., real], alone)
        case = f"role {role}, length {LENGTH}, 4 padded: logits differ from those without padding"
        worst = max(worst, require_small(gap, TOLERANCE, case, "Count the keys that are `visible` alone."))
    return f"error {format_number(worst)}"


def temperature(target: SchemeTarget) -> str:
    """``logit_factor`` is the factor of the products of queries and keys at the same position, where no rotation acts."""
    target.require("rotate")
    declared = target.scheme.logit_factor is not Position.logit_factor
    for role, length in product(target.roles, (LENGTH // 2, LENGTH)):  # within the trained length, and beyond it
        scheme, q, k = target.build(role, length=LENGTH // 2 + 1), target.noise(length), target.noise(length, seed=2)
        if length == LENGTH and not target.scheme.extrapolates:
            continue
        ratio = (torch.mul(*scheme.rotate(q, k))).sum(-1) / (q * k).sum(-1)
        is_factor = max_abs_diff(ratio, ratio.mean().expand_as(ratio)) <= 1e-6 * ratio.mean().abs().item()
        factor = scheme.logit_factor(length)
        if (declared or is_factor) and not max_abs_diff(ratio, torch.full_like(ratio, factor)) <= 1e-6:
            measured = f"{ratio.mean().item():.4g} times as large" if is_factor else "no multiple of it"
            raise Failure(
                f"role {role}, length {length}: logit_factor() is {factor:.4g}, q . k of a position becomes {measured}",
                "logit_factor(s) returns the factor by which rotate() multiplies q . k, 1 without a temperature.",
            )
    if not declared and not is_factor:
        raise NotDeclared("rotate() multiplies q . k by no single factor")
    return f"logit_factor({length}) is {factor:.4g}, as in rotate()"


class BiasBlock(NamedTuple):
    """A block of the bias matrix.

    Attributes:
        name: describes the block in a failure.
        i: positions of the queries, (..., t).
        j: positions of the keys, (..., s).
        step, offset: arguments of ``Position.bias``.
    """

    name: str
    i: Tensor
    j: Tensor
    step: int
    offset: Tensor | int


def blocks(target: SchemeTarget) -> str:
    """A block of the bias equals that part of the whole, if ``bias`` takes ``heads``, ``step`` and ``offset``."""
    target.require("bias")
    if not target.scheme.has_blockwise_bias():
        raise NotDeclared("bias() takes no heads, step and offset: variants that request parts refuse the scheme")
    return f"error {format_number(max(_block_gap(target, role) for role in target.roles))}"


def _block_gap(target: SchemeTarget, role: str) -> float:
    """Return the largest difference between a block and the same entries of the full bias; raise ``Failure`` if too large."""
    worst, scheme, h = 0.0, target.build(role), target.heads
    q, k = target.noise(15, b=2, seed=4), target.noise(15, b=2, seed=5)
    full = scheme.bias(q, k, scale=0.5).expand(2, h, 15, 15)
    heads = slice(h // 2, None)
    for block, i, j, step, offset in _bias_blocks(target.device):
        pairs = i[..., :, None], j[..., None, :]
        expected = full[:, heads, *pairs].movedim(1, -3)  # (2, ..., h, t, s)
        q_i, k_j = (z[:, heads, at].movedim(1, -3) for z, at in ((q, i), (k, j)))  # (2, ..., h, t, d)
        got = scheme.bias(q_i, k_j, scale=0.5, heads=heads, step=step, offset=offset)
        visible = (pairs[0] >= pairs[1]).unsqueeze(-3) if role == "causal" else True
        gap = max_abs_diff((got - expected) * visible, torch.zeros_like(expected))
        case = f"{role}, {block}: bias() of this block differs from the same entries of the full bias"
        advice = (
            "Index per-head values by [heads], and compute distances as `relative_distance(t, s) * step + offset`. "
            "Or remove these three parameters from bias(): variants that need blocks then refuse the scheme."
        )
        worst = max(worst, require_small(gap, TOLERANCE, case, advice))
    return worst


def _bias_blocks(device: str) -> list[BiasBlock]:
    """Return the blocks into which sparse variants divide a sequence of 5 blocks of 3 positions."""
    by_block = torch.arange(15, device=device).view(5, 3)
    by_place = by_block.T
    p, e = by_place[:, None], by_place[None, 1:]
    return [
        BiasBlock("all positions, later half of the heads", *(by_block.flatten(),) * 2, step=1, offset=0),
        BiasBlock("each block with itself", by_block, by_block, step=1, offset=0),
        BiasBlock("the second block with itself and the block before", by_block[1], by_block[:2].flatten(), step=1, offset=0),
        BiasBlock("every third position", by_place, by_place, step=3, offset=0),
        BiasBlock("place p of each block with place e of each block", p, e, step=3, offset=(p - e)[..., :1, None, None]),
    ]


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
            case = f"role {role}, {t} queries, {s} keys: relative_logits() and q k^T + bias() differ"
            advice = "See attnlab.nn.RelativeLogits for the order of the distances; or return None."
            worst = max(worst, require_small(gap, TOLERANCE, case, advice))
    return f"error {format_number(worst)}"


def gradients(target: SchemeTarget) -> str:
    """Every parameter gets a gradient, and queries and keys get the gradient of the formula (gradcheck)."""
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
    for role in target.roles if target.hook == "bias" and target.scheme.relative else ():
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
    """Raise ``Failure`` when rounding in bf16 makes a relative bias depend on more than the distance."""
    scheme = target.build(role, length=LONG_LENGTH).float()
    q, k = (target.noise(1, b=1, seed=seed).bfloat16().expand(-1, -1, LONG_LENGTH, -1) for seed in (1, 2))
    bias, exact = (
        scheme.bias(*qk, scale=0.5).float().expand(1, target.heads, LONG_LENGTH, LONG_LENGTH)
        for qk in ((q, k), (q.float(), k.float()))
    )
    gap, unrounded = ((z[..., 1:, 1:] - z[..., :-1, :-1]).abs() for z in (bias, exact))
    gap, size = gap - unrounded, bias[..., 1:, 1:].abs()  # what differs without rounding, too, fails `relative`
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
    """The same seed gives the same scheme; saving, copying and pickling keep it; calls at other lengths do not change it."""
    for role in target.roles:
        scheme, loaded = target.build(role, seed=0), target.build(role, seed=1)
        before = _values(target, scheme, role).detach()
        loaded.load_state_dict(scheme.state_dict())
        copies = {
            "the same seed": target.build(role, seed=0),
            "load_state_dict": loaded,
            "deepcopy": copy.deepcopy(scheme),
            "pickle": pickle.loads(pickle.dumps(scheme)),
        }
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
                    "Make weights nn.Parameters, register other tensors as buffers, draw with torch's generator in the "
                    "constructor alone, and do not change tensors in a call.",
                )
    return "the seed, state_dict, copies, pickle and earlier calls leave the result unchanged"


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


POSITION_CHECKS: dict[str, Check[SchemeTarget]] = {
    check.name: check
    for check in (
        Check("shapes", shapes),
        Check("effect", effect),
        Check("parts", parts),
        Check("relative", relative),
        Check("longer sequences", extrapolation),
        Check("batch independence", batch_independence),
        Check("padding", padding),
        Check("temperature", temperature),
        Check("bias in blocks", blocks),
        Check("relative logits", products),
        Check("gradients", gradients),
        Check("bf16", bf16),
        Check("state", state),
        Check("roles refused", cross),
    )
}
