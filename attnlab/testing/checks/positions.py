"""Order: a set without a position scheme, a sequence with one, and where relative schemes let a sequence begin."""

import torch
from torch.nn import functional as F

from attnlab.testing.checks.target import Check, CheckTarget, Failure, NotDeclared, T, distance, number


def order(subject: CheckTarget) -> str:
    """Permuting the inputs permutes the outputs without a scheme, and does more than that with one."""
    if not subject.variant.permutation_equivariant:
        raise NotDeclared("its own pattern knows positions")
    found = [_permuted(subject, role) for role in ("bidirectional", "cross") if role in subject.roles]
    if not found:
        raise NotDeclared("a causal mask knows positions")
    return "; ".join(found)


def _permuted(subject: CheckTarget, role: str) -> str:
    cell = subject.build(role)
    shown = 0.0
    for n in (2, T):
        x, context = subject.inputs(role, 1, n, s=n)
        turned = torch.arange(n, device=subject.device).roll(1)
        with torch.no_grad():
            if context is None:
                gap = distance(cell(x[:, turned]), cell(x)[:, turned])
            else:
                gap = distance(cell(x, context[:, turned]), cell(x, context))
        case = f"{role}, batch 1, length {n}, inputs shifted round by one"
        if subject.scheme.hook == "none":
            if not gap <= subject.tolerance:
                raise Failure(
                    f"{case}: the outputs are not the same ones shifted, they differ by {number(gap)}",
                    "Without a position scheme nothing may depend on the order. If your mathematics has an order of its own, "
                    "declare `permutation_equivariant = False`.",
                )
        elif n > 2 and not gap > subject.tolerance:
            raise Failure(
                f"{case}: the outputs are the same ones shifted, although the scheme is {subject.scheme_name}",
                f"The scheme's hook is '{subject.scheme.hook}': apply it, or do not declare it.",
            )
        shown = max(shown, gap)
    if subject.scheme.hook != "none":
        return f"{role}: permuted inputs move outputs by {number(shown)}"
    return f"{role}: permuted inputs permute outputs to {number(shown)}"


def beginning(subject: CheckTarget) -> str:
    """With a scheme of distances, masked positions in front of a sequence change nothing."""
    if not subject.variant.permutation_equivariant:
        raise NotDeclared("its own pattern knows positions")
    tried = [each for each in subject.under_schemes() if each.scheme.relative]
    if not tried:
        raise NotDeclared("no scheme of distances")
    worst = max(_begun(each) for each in tried)
    return f"{', '.join(each.scheme_name for each in tried)}: two padded positions in front change {number(worst)}"


def _begun(subject: CheckTarget) -> float:
    worst = 0.0
    for role in (role for role in subject.roles if role != "cross"):
        cell = subject.build(role)
        for t in (1, 2, T):
            x = subject.noise(2, t)
            moved = F.pad(x, (0, 0, 2, 0), value=1.0)
            mask = F.pad(torch.ones(2, t, dtype=torch.bool, device=subject.device), (2, 0), value=False)
            with torch.no_grad():
                gap = distance(cell(moved, None, mask)[:, 2:], cell(x))
            if not gap <= subject.tolerance:
                raise Failure(
                    f"{role}, batch 2, length {t}: two padded positions in front change the outputs by {number(gap)}",
                    f"'{subject.scheme_name}' must depend on distances alone. Look for a shift that is off by one, or one end "
                    "counted from the wrong side: query i stands at i + s - t.",
                )
            worst = max(worst, gap)
    return worst


CHECKS = [Check("order", order), Check("beginning", beginning)]
