"""Padding does not affect real positions, and rows of a batch do not affect each other."""

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.testing.checks.target import (
    CONTEXT_LENGTH,
    LENGTH,
    LENGTHS,
    Check,
    CheckTarget,
    Failure,
    format_number,
    max_abs_diff,
)

ADVICE = "`mask` (b, s) is True for keys that may be attended to: pass it to self.attend, or mask the logits where it is False."


def content(target: CheckTarget) -> str:
    """Neither the content nor the number of padded positions changes real outputs; an all-True mask changes no output."""
    worst = 0.0
    for role in target.roles:
        layer = target.build(role)
        for t in LENGTHS:
            n = t if role != "cross" else CONTEXT_LENGTH
            x, context = target.inputs(role, 2, t)
            mask = torch.ones(2, n, dtype=torch.bool, device=target.device)
            with torch.no_grad():
                gap = max_abs_diff(layer(x, context, mask), layer(x, context))
            if not gap <= target.tolerance:
                case = f"{role}, batch 2, length {t}: an all-True mask changes the output by {format_number(gap)}"
                raise Failure(case, ADVICE)
            with torch.no_grad():
                gap = _append_gap(layer, x, context, mask)
            if not gap <= target.tolerance:
                case = f"{role}, batch 2, length {t}: appending 4 padded positions changes real outputs by {format_number(gap)}"
                raise Failure(case, ADVICE)
            worst = max(worst, gap)
            mask[0, -1] = mask[1, 0] = False  # padding at the end of row 0 and at the start of row 1
            with torch.no_grad():
                gap = _content_gap(target, layer, x, context, mask)
            if not gap <= target.tolerance:
                case = (
                    f"{role}, batch 2, length {t}: the content of padded positions changes real outputs by {format_number(gap)}"
                )
                raise Failure(case, ADVICE)
            worst = max(worst, gap)
    return f"padding changes real outputs by {format_number(worst)}"


def _append_gap(layer: torch.nn.Module, x: Tensor, context: Tensor | None, mask: Tensor) -> float:
    """Return the change of real outputs when four padded positions are appended."""
    mask = F.pad(mask, (0, 4), value=False)
    if context is not None:
        return max_abs_diff(layer(x, F.pad(context, (0, 0, 0, 4), value=1.0), mask), layer(x, context))
    return max_abs_diff(layer(F.pad(x, (0, 0, 0, 4), value=1.0), None, mask)[:, :-4], layer(x))


def _content_gap(target: CheckTarget, layer: torch.nn.Module, x: Tensor, context: Tensor | None, mask: Tensor) -> float:
    """Return the change of real outputs when the padded positions hold other values."""
    padded = x if context is None else context
    other = torch.where(mask[..., None], padded, 9 * target.noise(*padded.shape[:2], seed=5))
    if context is not None:
        return max_abs_diff(layer(x, context, mask), layer(x, other, mask))
    return max_abs_diff(layer(x, None, mask)[mask], layer(other, None, mask)[mask])


def all_padding(target: CheckTarget) -> str:
    """A row that is all padding gives finite outputs and gradients."""
    for role in target.roles:
        layer = target.build(role)
        x, context = target.inputs(role, 2, LENGTH)
        x.requires_grad_()
        mask = torch.ones(x.shape[:2] if context is None else context.shape[:2], dtype=torch.bool, device=target.device)
        mask[1] = False
        y = layer(x, context, mask)
        case = f"{role}, batch 2, length {LENGTH}, row 1 all padding"
        advice = (
            "Mask logits with torch.finfo(dtype).min instead of -inf: the softmax of a row of -inf is NaN. self.attend does "
            "so, and returns zeros for such a row."
        )
        if not torch.isfinite(y).all():
            raise Failure(f"{case}: the output is not finite", advice)
        leaves = [x, *layer.attention.parameters()]
        gradients = torch.autograd.grad(y.square().sum(), leaves, allow_unused=True)
        if any(g is not None and not torch.isfinite(g).all() for g in gradients):
            raise Failure(f"{case}: a gradient is not finite", advice)
    return "finite outputs and gradients"


def rows(target: CheckTarget) -> str:
    """A row gives the same output alone as in a batch."""
    worst = 0.0
    for role in target.roles:
        layer = target.build(role)
        x, context = target.inputs(role, 3, LENGTH)
        mask = torch.ones(x.shape[:2] if context is None else context.shape[:2], dtype=torch.bool, device=target.device)
        mask[0, -2:] = False
        with torch.no_grad():
            y = layer(x, context, mask)
            for row in range(3):
                one = slice(row, row + 1)
                alone = layer(x[one], None if context is None else context[one], mask[one])
                gap = max_abs_diff(alone, y[one])
                if not gap <= target.tolerance:
                    raise Failure(
                        f"{role}, length {LENGTH}: row {row} differs alone and in a batch of 3 by {format_number(gap)}",
                        "Look for an operation across the batch: a reshape that swaps b and t, a norm over the batch, or "
                        "running statistics.",
                    )
                worst = max(worst, gap)
    return f"alone and in a batch, outputs differ by {format_number(worst)}"


CHECKS = [Check("padding", content), Check("all padding", all_padding), Check("batch independence", rows)]
