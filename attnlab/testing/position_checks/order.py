"""Shapes and order: each position has an effect, in the right place, at any length, with memory in front."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import Tensor

from attnlab.positions import Position
from attnlab.testing.checks.measure import format_number, max_abs_diff
from attnlab.testing.checks.result import Check, Failure, NotDeclared
from attnlab.testing.checks.target import BATCH, LENGTH
from attnlab.testing.position_checks.target import HOOKS, TOLERANCE, TRAINED_LENGTH, SchemeTarget, logits, visible_gap

LONG = 600  # positions, which exceed the sizes at which tables and blocks often end, such as 256 and 512
MEMORY = 5  # keys in front of the first query


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
            _check_shapes(target, role, t, s)
    sizes = f"{target.heads} heads of width {target.head_dim}"
    return f"hook '{target.hook}', {', '.join(target.roles)}: lengths 1 to {LENGTH}, memory {MEMORY}, {sizes}"


def _check_shapes(target: SchemeTarget, role: str, t: int, s: int) -> None:
    if (s > t and role != "causal") or target.hook == "none":
        return
    scheme, h, d = target.build(role), target.heads, target.head_dim
    q, k = target.noise(t), target.noise(s, seed=2)
    results: list[tuple[Any, tuple[int, ...], bool]]  # value, shape, whether it may broadcast
    if target.hook == "embed":
        results = [(scheme.embed(s), (s, h * d), True)]
    elif target.hook == "rotate":
        rotated = scheme.rotate(q, k)
        if not isinstance(rotated, tuple | list) or len(rotated) != 2:
            got = f"a {type(rotated).__name__}" if not isinstance(rotated, tuple | list) else f"{len(rotated)} values"
            raise Failure(f"role {role}: rotate() returned {got}", "rotate() must return q and k.")
        width = rotated[0].shape[-1] if isinstance(rotated[0], Tensor) and rotated[0].dim() else d
        width = max(width, d)  # both may become wider, to the same width
        results = [(rotated[0], (*q.shape[:-1], width), False), (rotated[1], (*k.shape[:-1], width), False)]
    else:
        results = [(scheme.bias(q, k, scale=0.5), (BATCH, h, t, s), True)]
    for value, shape, broadcasts in results:
        if not isinstance(value, Tensor) or not _fits(tuple(value.shape), shape, broadcasts=broadcasts):
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            case = f"role {role}, {t} queries, {s} keys: {target.hook}(): expected {shape}, got {got}"
            raise Failure(case, f"See Position.{target.hook} for the shape that it must return.")
        if not torch.isfinite(value).all():
            raise Failure(
                f"role {role}, {t} queries, {s} keys: {target.hook}() is not finite",
                "Hidden keys are masked by the variant: return finite values for them, too.",
            )


def _fits(shape: tuple[int, ...], expected: tuple[int, ...], *, broadcasts: bool) -> bool:
    try:
        return shape == expected or (broadcasts and tuple(torch.broadcast_shapes(shape, expected)) == expected)
    except RuntimeError:
        return False


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
    """Raise ``Failure`` if two positions of a long sequence have the same vector."""
    values, index = scheme.embed(LONG).detach().expand(LONG, -1).unique(dim=0, return_inverse=True)
    if 1 < len(values) < LONG:
        first = {int(index[i]): i for i in reversed(range(LONG))}
        i = next(i for i in range(LONG) if first[int(index[i])] != i)
        raise Failure(
            f"role {role}, length {LONG}: embed() gives positions {first[int(index[i])]} and {i} the same vector",
            "Each position has its own vector, up to the length that the scheme is constructed for.",
        )


def memory(target: SchemeTarget) -> str:
    """With memory in front, query i is at position i + s - t: the logits equal those of the last queries of the whole."""
    target.require("rotate", "bias")
    if "causal" not in target.roles:
        raise NotDeclared("the role causal is not supported")
    worst = 0.0
    for length, queries in ((LENGTH, (1, 3, LENGTH - 1)), (LONG, (1, 270))):
        scheme, q, k = _sequence(target, "causal", length)
        whole = logits(scheme, q, k)
        for t in queries:
            gap = visible_gap("causal", logits(scheme, q[:, :, -t:], k), whole[:, :, -t:])
            if not gap <= TOLERANCE:
                raise Failure(
                    f"causal, {t} queries, {length} keys: logits differ from the whole sequence by {format_number(gap)}",
                    "Queries and keys end at the same position: query i is at i + s - t, as in relative_distance(t, s).",
                )
            worst = max(worst, gap)
    return f"error {format_number(worst)}"


def _sequence(target: SchemeTarget, role: str, length: int) -> tuple[Position, Tensor, Tensor]:
    """Return the scheme, queries and keys of a sequence; of a long one, a single row."""
    b = BATCH if length == LENGTH else 1
    scheme = target.build(role, length=max(length, TRAINED_LENGTH))
    return scheme, target.noise(length, b=b), target.noise(length, b=b, seed=2)


def prefix(target: SchemeTarget) -> str:
    """In a causal role, a position is treated alike in sequences of any length: what follows it has no effect."""
    target.require("embed", "rotate", "bias")
    if "causal" not in target.roles:
        raise NotDeclared("the role causal is not supported")
    worst = 0.0
    for length, parts in ((LENGTH, (1, 2, LENGTH - 1)), (LONG, (LENGTH, 257))):
        scheme, q, k = _sequence(target, "causal", length)
        for t in parts:
            if target.hook == "embed":
                gap = max_abs_diff(scheme.embed(t).expand(t, -1), scheme.embed(length).expand(length, -1)[:t])
            else:
                part = logits(scheme, q[:, :, :t], k[:, :, :t])
                gap = visible_gap("causal", part, logits(scheme, q, k)[:, :, :t, :t])
            if not gap <= TOLERANCE:
                raise Failure(
                    f"causal: the first {t} of {length} positions differ from a sequence of {t} by {format_number(gap)}",
                    "A position must not depend on the length of the sequence: count from its start, and do not divide by it.",
                )
            worst = max(worst, gap)
    return f"error {format_number(worst)}"


def relative(target: SchemeTarget) -> str:
    """A scheme that is declared relative depends on distances alone: logits are constant along diagonals."""
    if not target.scheme.relative:
        raise NotDeclared("`relative` is False")
    if target.hook not in ("rotate", "bias"):
        raise Failure(f"a scheme that acts by '{target.hook}' is declared relative", "Set `relative = False`.")
    worst = 0.0
    for role, length in product(target.roles, (LENGTH, LONG)):
        scheme = target.build(role, length=max(length, TRAINED_LENGTH))
        b = BATCH if length == LENGTH else 1
        q, k = (target.noise(1, b=b, seed=seed).expand(-1, -1, length, -1) for seed in (1, 2))  # only positions differ
        values = logits(scheme, q, k)
        gap = visible_gap(role, values[..., 1:, 1:], values[..., :-1, :-1])
        if not gap <= TOLERANCE:
            raise Failure(
                f"role {role}, length {length}: one step later, the logits of the same distance differ by {format_number(gap)}",
                "Compute positions as i + s - t - j (relative_distance), or set `relative = False`.",
            )
        worst = max(worst, gap)
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
    """A row of a batch is treated as on its own."""
    target.require("rotate", "bias")
    worst = 0.0
    for role in target.roles:
        scheme, q, k = target.build(role), target.noise(LENGTH), target.noise(LENGTH, seed=2)
        whole = logits(scheme, q, k)
        for row in range(BATCH):
            gap = visible_gap(role, logits(scheme, q[row : row + 1], k[row : row + 1]), whole[row : row + 1])
            if not gap <= TOLERANCE:
                raise Failure(
                    f"role {role}: row {row} of {BATCH} differs from the row on its own by {format_number(gap)}",
                    "Do not sum or normalize over the first dimension, and do not index it with positions.",
                )
            worst = max(worst, gap)
    return f"error {format_number(worst)}"


CHECKS = (
    Check("shapes", shapes),
    Check("effect", effect),
    Check("memory alignment", memory),
    Check("prefix", prefix),
    Check("relative", relative),
    Check("longer sequences", extrapolation),
    Check("batch independence", batch_independence),
)
