"""Padding does not affect real positions, and rows of a batch do not affect each other."""

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.testing.checks.result import Check, Failure, format_number, max_abs_diff
from attnlab.testing.checks.target import CheckTarget, at_drawn_sizes, trained_parameters

ADVICE = "`mask` (b, s) is True for keys that may be attended to: pass it to self.attend, or mask the logits where it is False."


def content(target: CheckTarget) -> str:
    """Neither the content nor the number of padded positions changes real outputs; an all-True mask changes no output."""
    worst, b = 0.0, max(target.sizes.batch, 2)
    for role in target.roles:
        layer = target.build(role)
        for t in target.sizes.lengths:
            x, context = target.inputs(role, b, t)
            case = f"{role}, batch {b}, length {t}"
            mask = torch.ones(b, t if context is None else context.shape[1], dtype=torch.bool, device=target.device)
            with torch.no_grad():
                appended = f"appending {target.sizes.padding} padded positions changes real outputs"
                gaps = {
                    "an all-True mask changes the output": max_abs_diff(layer(x, context, mask), layer(x, context)),
                    appended: _append_gap(layer, x, context, mask, target.sizes.padding),
                    "the content of padded positions changes real outputs": _content_gap(target, layer, x, context, mask),
                }
            for change, gap in gaps.items():
                if not gap <= target.tolerance:
                    raise Failure(f"{case}: {change} by {format_number(gap)}", ADVICE)
            worst = max(worst, *gaps.values())
    return f"padding changes real outputs by {format_number(worst)}"


def _append_gap(layer: torch.nn.Module, x: Tensor, context: Tensor | None, mask: Tensor, padding: int) -> float:
    """Return the change of real outputs when padded positions are appended."""
    mask = F.pad(mask, (0, padding), value=False)
    if context is not None:
        return max_abs_diff(layer(x, F.pad(context, (0, 0, 0, padding), value=1.0), mask), layer(x, context))
    return max_abs_diff(layer(F.pad(x, (0, 0, 0, padding), value=1.0), None, mask)[:, :-padding], layer(x))


def _content_gap(target: CheckTarget, layer: torch.nn.Module, x: Tensor, context: Tensor | None, mask: Tensor) -> float:
    """Return the change of real outputs when padded positions hold other values.

    Row 0 is padded at the end, row 1 at the start, and the others at every third position, each after its first.
    """
    mask, n = mask.clone(), min(mask.shape[1] // 2, target.sizes.padding)
    if n:
        mask[0, -n:] = mask[1, :n] = mask[2:, 1::3] = False
    padded = x if context is None else context
    other = torch.where(mask[..., None], padded, 9 * target.noise(*padded.shape[:2], seed=5))
    if context is not None:
        return max_abs_diff(layer(x, context, mask), layer(x, other, mask))
    return max_abs_diff(layer(x, None, mask)[mask], layer(other, None, mask)[mask])


def all_padding(target: CheckTarget) -> str:
    """A row that is all padding gives finite outputs and gradients."""
    for role in target.roles:
        layer = target.build(role)
        x, context = target.inputs(role, max(target.sizes.batch, 2))
        x.requires_grad_()
        mask = torch.ones(x.shape[:2] if context is None else context.shape[:2], dtype=torch.bool, device=target.device)
        mask[1] = False
        y = layer(x, context, mask)
        case = f"{role}, batch {x.shape[0]}, length {x.shape[1]}, row 1 all padding"
        advice = (
            "Mask logits with torch.finfo(dtype).min instead of -inf: the softmax of a row of -inf is NaN. self.attend does "
            "so, and returns zeros for such a row."
        )
        if not torch.isfinite(y).all():
            raise Failure(f"{case}: the output is not finite", advice)
        leaves = [x, *trained_parameters(layer.attention).values()]
        gradients = torch.autograd.grad(y.square().sum(), leaves, allow_unused=True)
        if any(g is not None and not torch.isfinite(g).all() for g in gradients):
            raise Failure(f"{case}: a gradient is not finite", advice)
        if context is not None:
            _require_nothing_read(target, layer, x.detach(), context, mask, case)
            _require_nothing_read(target, layer, x.detach(), context, torch.zeros_like(mask), "cross, every row all padding")
    return "finite outputs and gradients"


def _require_nothing_read(
    target: CheckTarget, layer: torch.nn.Module, x: Tensor, context: Tensor, mask: Tensor, case: str
) -> None:
    """Raise ``Failure`` when queries without keys read the padding, or are not finite where there is no source at all."""
    with torch.no_grad():
        other = torch.where(mask[..., None], context, 9 * target.noise(*context.shape[:2], seed=5))
        gap = max_abs_diff(layer(x, context, mask), layer(x, other, mask))
        if not gap <= target.tolerance:
            advice = "A query without keys yields zeros: multiply the weights with `visible.any(-1, keepdim=True)`."
            raise Failure(f"{case}: the content of the padding changes outputs by {format_number(gap)}", advice)
        try:
            empty = layer(x, context[:, :0])
        except Exception:  # an empty source may be refused: an error is no wrong number
            return
    if not torch.isfinite(empty).all():
        case = f"cross, batch {len(x)}, length {x.shape[1]}, an empty source: the output is not finite"
        raise Failure(case, "A query without keys yields zeros: a mean or a softmax over no keys is NaN.")


def rows(target: CheckTarget) -> str:
    """A row gives the same output alone as in a batch."""
    worst = 0.0
    for role in target.roles:
        layer = target.build(role)
        x, context = target.inputs(role)
        mask = torch.ones(x.shape[:2] if context is None else context.shape[:2], dtype=torch.bool, device=target.device)
        mask[0, 1:][-2:] = False
        with torch.no_grad():
            y = layer(x, context, mask)
            for row in _some_rows(len(x)):
                one = slice(row, row + 1)
                alone = layer(x[one], None if context is None else context[one], mask[one])
                gap = max_abs_diff(alone, y[one])
                if not gap <= target.tolerance:
                    raise Failure(
                        f"{role}, length {x.shape[1]}: row {row} differs alone and in a batch of {len(x)} by "
                        f"{format_number(gap)}",
                        "Look for an operation across the batch: a reshape that swaps b and t, a norm over the batch, or "
                        "running statistics.",
                    )
                worst = max(worst, gap)
    return f"alone and in a batch, outputs differ by {format_number(worst)}"


def _some_rows(b: int) -> list[int]:
    """Return the first two, the middle and the last two rows of a batch of b."""
    return sorted({row for row in (0, 1, b // 2, b - 2, b - 1) if 0 <= row < b})


CHECKS = [
    Check("padding", at_drawn_sizes(content)),
    Check("all padding", at_drawn_sizes(all_padding)),
    Check("batch independence", at_drawn_sizes(rows)),
]
