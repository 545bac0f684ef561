"""Order: permutation equivariance without a position scheme, and translation invariance with a relative one."""

import torch
from torch.nn import functional as F

from attnlab.testing.checks.measure import format_number, max_abs_diff
from attnlab.testing.checks.result import Check, Failure, NotDeclared
from attnlab.testing.checks.target import CheckTarget, at_drawn_sizes


def order(target: CheckTarget) -> str:
    """Permuting the inputs permutes the outputs if and only if the target has no position scheme."""
    if not target.variant.permutation_equivariant:
        raise NotDeclared("`permutation_equivariant` is False")
    results = [_check_permutation(target, role) for role in ("bidirectional", "cross") if role in target.roles]
    if not results:
        raise NotDeclared("a causal mask depends on positions")
    return "; ".join(results)


def _check_permutation(target: CheckTarget, role: str) -> str:
    """Return a description of the change when the inputs are permuted; raise ``Failure`` if it is wrong."""
    layer = target.build(role)
    largest = 0.0
    for n in target.sizes.lengths:
        x, context = target.inputs(role, 1, n, s=n)
        permuted = torch.randperm(n, generator=torch.Generator().manual_seed(n)).roll(1).to(target.device)
        with torch.no_grad():
            if context is None:
                gap = max_abs_diff(layer(x[:, permuted]), layer(x)[:, permuted])
            else:
                gap = max_abs_diff(layer(x, context[:, permuted]), layer(x, context))
        case = f"{role}, batch 1, length {n}, inputs permuted"
        if target.scheme.hook == "none":
            if not gap <= target.tolerance:
                raise Failure(
                    f"{case}: outputs differ from the permuted ones by {format_number(gap)}",
                    "Without a position scheme the outputs must not depend on the order. If the variant's own pattern "
                    "depends on positions, declare `permutation_equivariant = False`.",
                )
        elif n > 3 and not gap > target.tolerance:
            raise Failure(
                f"{case}: outputs equal the permuted ones, although the position scheme is {target.scheme_name}",
                f"Apply hook '{target.scheme.hook}', or remove it from `hooks`.",
            )
        largest = max(largest, gap)
    if target.scheme.hook != "none":
        return f"{role}: permuting the inputs changes outputs by {format_number(largest)}"
    return f"{role}: permuting the inputs permutes outputs, error {format_number(largest)}"


def beginning(target: CheckTarget) -> str:
    """With a relative scheme, masked positions in front of a sequence do not change the outputs."""
    if not target.variant.permutation_equivariant:
        raise NotDeclared("`permutation_equivariant` is False")
    targets = [variation for variation in target.with_every_scheme() if variation.scheme.relative]
    if not targets:
        raise NotDeclared("no relative position scheme")
    worst = max(_prefix_gap(variation) for variation in targets)
    names = ", ".join(variation.scheme_name for variation in targets)
    return f"{names}: {target.sizes.prefix} padded positions in front change outputs by {format_number(worst)}"


def _prefix_gap(target: CheckTarget) -> float:
    """Return the largest change of the outputs when padded positions precede the sequence."""
    worst, n = 0.0, target.sizes.prefix
    for role in (role for role in target.roles if role != "cross"):
        layer = target.build(role)
        for t in target.sizes.lengths:
            x = target.noise(2, t)
            padded = F.pad(x, (0, 0, n, 0), value=1.0)
            mask = F.pad(torch.ones(2, t, dtype=torch.bool, device=target.device), (n, 0), value=False)
            with torch.no_grad():
                gap = max_abs_diff(layer(padded, None, mask)[:, n:], layer(x))
            if not gap <= target.tolerance:
                raise Failure(
                    f"{role}, batch 2, length {t}: {n} padded positions in front change the outputs by {format_number(gap)}",
                    f"'{target.scheme_name}' must depend on distances alone. Look for a relative shift that is off by one, or "
                    "positions that are aligned at the wrong end: query i is at position i + s - t.",
                )
            worst = max(worst, gap)
    return worst


CHECKS = [Check("permutation", at_drawn_sizes(order)), Check("leading padding", at_drawn_sizes(beginning))]
