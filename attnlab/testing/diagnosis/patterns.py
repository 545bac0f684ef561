"""The pattern in which an output depends on inputs that it must not depend on."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.testing.checks.causality import MASK
from attnlab.testing.checks.padding import ADVICE as PADDING
from attnlab.testing.diagnosis.evidence import Cause

if TYPE_CHECKING:
    from attnlab.testing.checks.target import AttentionLayer, CheckTarget

Call = Callable[[Tensor | None, Tensor], Tensor]  # of a mask and the inputs that it is for
WRAPS = (
    "Only the first outputs read ahead, or only from the last inputs: torch.roll wraps around (shift by F.pad and a slice "
    "instead), or an index such as -1 takes the last position."
)
LENGTH, NEAR = 23, 5  # of the inputs; the largest distance that a shift or a short convolution reaches


def of_causality(target: "CheckTarget") -> Cause | None:
    """Return the pattern in which outputs depend on later inputs; None if they do not, at this length in evaluation mode."""
    if "causal" not in target.roles:
        return None
    layer = target.build("causal")
    ahead = _reads_ahead(target, layer)
    if not ahead.any():
        return None
    j, i = ahead.nonzero().unbind(1)
    distance = int((j - i).max())
    if distance <= NEAR:
        return _near(distance)
    if int(i.max()) < NEAR or int(j.min()) >= LENGTH - NEAR:
        return Cause("wraps around", WRAPS)
    pairs = LENGTH * (LENGTH - 1) // 2
    if len(i) < pairs and target.heads > 1 and not _reads_ahead(target, target.build("causal", heads=1)).any():
        return Cause(
            "reshape",
            "With one head no output reads a later input: heads and positions are mixed. Move the heads next to the features "
            "before the reshape, as merge_heads(y) does: y.transpose(1, 2).reshape(b, t, -1).",
        )
    if len(i) < pairs:
        return None
    if _reads_ahead(target, layer, hide=True).any():
        return Cause(
            "no mask",
            "Every output reads every later input, also where `mask` hides it. Either no mask at all is applied to the logits, "
            "or something besides the attention weights mixes all positions.",
        )
    return Cause("no causal mask", f"Every output reads every later input that `mask` does not hide. {MASK}")


def _near(distance: int) -> Cause:
    positions = "the position after its own" if distance == 1 else f"up to {distance} positions after its own"
    advice = (
        f"Each output reads {positions}, and none further ahead: a mask with a diagonal that is off by {distance} "
        "(`layers.causal_mask(t, s)` is right), or a shift or convolution that pads on both sides, where it should pad on the "
        "left alone."
    )
    return Cause("off by one" if distance == 1 else "reads ahead", advice)


def _reads_ahead(target: "CheckTarget", layer: "AttentionLayer", *, hide: bool = False) -> Tensor:
    """Return whether input j changes output i < j, (j, i); with ``hide`` where `mask` is False at j."""
    x, new = target.noise(1, LENGTH), target.noise(1, LENGTH, seed=2)
    own = torch.eye(LENGTH, dtype=torch.bool, device=target.device)
    mask = ~own if hide else None
    changed = torch.stack([_change(layer, x, torch.where(own[j, :, None], new, x), mask, j) for j in range(LENGTH)])
    return (changed > target.tolerance).tril(-1)


def _change(layer: "AttentionLayer", x: Tensor, other: Tensor, mask: Tensor | None, j: int) -> Tensor:
    hidden = None if mask is None else mask[j : j + 1]
    with torch.no_grad():
        return (layer(other, None, hidden) - layer(x, None, hidden)).abs().amax((0, 2))


def of_padding(target: "CheckTarget") -> Cause | None:
    """Return the pattern in which outputs depend on padded positions; None if they do not, at this length."""
    for role in target.roles:
        layer = target.build(role)
        x, context = target.inputs(role, 2, LENGTH, s=LENGTH)
        padded = x if context is None else context
        mask = torch.ones(padded.shape[:2], dtype=torch.bool, device=target.device)
        mask[:, 9:12] = False
        other = torch.where(mask[..., None], padded, 9 * target.noise(2, LENGTH, seed=5))

        def call(mask: Tensor | None, padded: Tensor, *, layer=layer, x=x, context=context) -> Tensor:  # type: ignore[no-untyped-def]
            with torch.no_grad():
                return layer(padded, None, mask) if context is None else layer(x, padded, mask)

        plain, masked = call(None, padded), call(mask, padded)
        change = (call(mask, other) - masked).abs().amax((0, 2))  # (t,)
        if context is None:
            change[9:12] = 0.0
        if not (change > target.tolerance).any():
            if _same(target, call(torch.ones_like(mask), padded), plain):
                if context is None and _counts_padding(target, call, mask, padded):
                    advice = (
                        "The number of padded positions changes the outputs, their content does not: look for x.shape[1] or a "
                    )
                    return Cause("length", advice + "mean over all keys, and count only the positions where `mask` is True.")
                continue
            return _unequal_without_padding(target, call, mask, plain, padded)
        if _same(target, masked, plain):
            return Cause("mask is not used", f"`mask` has no effect: the output is the same without it. {PADDING}")
        if _same(target, call(torch.zeros_like(mask), padded), plain):
            return _inverted()
        at = (change > target.tolerance).nonzero().flatten()
        if context is None and int(at.min()) >= 9 - NEAR and int(at.max()) < 12 + NEAR:
            return Cause(
                "neighbors",
                "Only positions next to padding change: a shift or convolution reads it. Set the positions where `mask` is "
                "False to zero before it.",
            )
        return Cause(
            "hidden keys count",
            "`mask` has an effect, but the content of hidden positions still reaches the others. Set the logits of hidden keys "
            "to torch.finfo(dtype).min before the softmax; keys or values of zero still have a weight.",
        )
    return None


def _counts_padding(target: "CheckTarget", call: Call, mask: Tensor, padded: Tensor) -> bool:
    longer = call(F.pad(torch.ones_like(mask), (0, NEAR)), F.pad(padded, (0, 0, 0, NEAR)))
    return not _same(target, longer[:, :LENGTH], call(torch.ones_like(mask), padded))


def _unequal_without_padding(target: "CheckTarget", call: Call, mask: Tensor, plain: Tensor, padded: Tensor) -> Cause | None:
    return _inverted() if _same(target, call(torch.zeros_like(mask), padded), plain) else None


def _inverted() -> Cause:
    return Cause("inverted mask", f"A mask of False alone hides nothing, so `mask` is read the wrong way round. {PADDING}")


def _same(target: "CheckTarget", one: Tensor, other: Tensor) -> bool:
    return bool(((one - other).abs() <= target.tolerance).all())
