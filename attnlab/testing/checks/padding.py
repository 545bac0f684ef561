"""Padding is not there, and rows of a batch do not know of each other."""

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.testing.checks.target import LENGTHS, Check, CheckTarget, Failure, S, T, distance, number

READS = "`mask` (b, s) is True where a key may be attended to: pass it to self.attend, or hide the keys where it is False."


def content(subject: CheckTarget) -> str:
    """Neither content nor number of padded positions changes real ones, and a mask of nothing but True changes nothing."""
    worst = 0.0
    for role in subject.roles:
        cell = subject.build(role)
        for t in LENGTHS:
            n = t if role != "cross" else S
            x, context = subject.inputs(role, 2, t)
            mask = torch.ones(2, n, dtype=torch.bool, device=subject.device)
            with torch.no_grad():
                gap = distance(cell(x, context, mask), cell(x, context))
            if not gap <= subject.tolerance:
                case = f"{role}, batch 2, length {t}: a mask of nothing but True changes the output by {number(gap)}"
                raise Failure(case, READS)
            with torch.no_grad():
                gap = _longer(cell, x, context, mask)
            if not gap <= subject.tolerance:
                case = f"{role}, batch 2, length {t}: 4 padded positions behind change real outputs by {number(gap)}"
                raise Failure(case, READS)
            worst = max(worst, gap)
            mask[0, -1] = mask[1, 0] = False  # padding behind and padding in front
            with torch.no_grad():
                gap = _leak(subject, cell, x, context, mask)
            if not gap <= subject.tolerance:
                case = f"{role}, batch 2, length {t}: other content at padded positions changes real outputs by {number(gap)}"
                raise Failure(case, READS)
            worst = max(worst, gap)
    return f"changes real outputs by {number(worst)}"


def _longer(cell: torch.nn.Module, x: Tensor, context: Tensor | None, mask: Tensor) -> float:
    """What four padded positions behind change."""
    mask = F.pad(mask, (0, 4), value=False)
    if context is not None:
        return distance(cell(x, F.pad(context, (0, 0, 0, 4), value=1.0), mask), cell(x, context))
    return distance(cell(F.pad(x, (0, 0, 0, 4), value=1.0), None, mask)[:, :-4], cell(x))


def _leak(subject: CheckTarget, cell: torch.nn.Module, x: Tensor, context: Tensor | None, mask: Tensor) -> float:
    padded = x if context is None else context
    other = torch.where(mask[..., None], padded, 9 * subject.noise(*padded.shape[:2], seed=5))
    if context is not None:
        return distance(cell(x, context, mask), cell(x, other, mask))
    return distance(cell(x, None, mask)[mask], cell(other, None, mask)[mask])


def nothing_but(subject: CheckTarget) -> str:
    """A row of nothing but padding is finite, forward and backward."""
    for role in subject.roles:
        cell = subject.build(role)
        x, context = subject.inputs(role, 2, T)
        x.requires_grad_()
        mask = torch.ones(x.shape[:2] if context is None else context.shape[:2], dtype=torch.bool, device=subject.device)
        mask[1] = False
        y = cell(x, context, mask)
        case = f"{role}, batch 2, length {T}, row 1 all padding"
        advice = (
            "Hide keys with torch.finfo(dtype).min, not with -inf: a softmax over nothing but -inf is NaN. "
            "self.attend does so, and gives zeros for such a row."
        )
        if not torch.isfinite(y).all():
            raise Failure(f"{case}: the output is not finite", advice)
        leaves = [x, *cell.attention.parameters()]
        got = torch.autograd.grad(y.square().sum(), leaves, allow_unused=True)
        if any(g is not None and not torch.isfinite(g).all() for g in got):
            raise Failure(f"{case}: a gradient is not finite", advice)
    return "finite, forward and backward"


def slots(subject: CheckTarget) -> str:
    """A row gives the same alone as beside others."""
    worst = 0.0
    for role in subject.roles:
        cell = subject.build(role)
        x, context = subject.inputs(role, 3, T)
        mask = torch.ones(x.shape[:2] if context is None else context.shape[:2], dtype=torch.bool, device=subject.device)
        mask[0, -2:] = False
        with torch.no_grad():
            y = cell(x, context, mask)
            for row in range(3):
                one = slice(row, row + 1)
                alone = cell(x[one], None if context is None else context[one], mask[one])
                gap = distance(alone, y[one])
                if not gap <= subject.tolerance:
                    raise Failure(
                        f"{role}, length {T}: row {row} alone and row {row} in a batch of 3 differ by {number(gap)}",
                        "Something mixes along the batch: a reshape that puts b where t should be, a norm over the batch, "
                        "or statistics kept from it.",
                    )
                worst = max(worst, gap)
    return f"alone and in a batch differ by {number(worst)}"


CHECKS = [Check("padded content", content), Check("nothing but padding", nothing_but), Check("batch rows", slots)]
