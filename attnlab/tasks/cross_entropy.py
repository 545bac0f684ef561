"""Cross-entropy in float32 of logits in any precision, in chunks where there are many.

With a vocabulary of 10,000, the logits of a batch are its largest tensor, and ``torch.nn.functional.cross_entropy`` holds up to
six copies of them in float32 at once. Here, the loss reads the logits in chunks, and its backward pass computes the softmax of
each chunk again:

    dL / dx_j = (softmax(x)_j - (1 - epsilon) [j = target] - epsilon / V) / n

with label smoothing epsilon, V classes and n targets (Szegedy et al. 2016, arXiv:1512.00567, section 7).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

IGNORED = -100  # a target that does not count
CHUNK = 1 << 22  # logits; fewer are one chunk, by PyTorch's own function


def mean_nats(logits: Tensor, targets: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """Return the mean negative log-likelihood of the targets in nats, a scalar in float32; NaN when there is none.

    A loss of more than one chunk can be differentiated once.

    Args:
        logits: (..., classes).
        targets: (...) int64; ``IGNORED`` ones do not count.
        label_smoothing: share of each target's probability that is spread over all classes.
    """
    logits, targets = logits.flatten(0, -2), targets.flatten()
    if logits.numel() <= CHUNK:
        return F.cross_entropy(logits.float(), targets, ignore_index=IGNORED, label_smoothing=label_smoothing)
    return _MeanNats.apply(logits, targets, label_smoothing)


def each_nats(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the negative log-likelihood of each target (...) in nats, in float32; 0 for ``IGNORED`` ones.

    Args:
        logits: (..., classes).
        targets: (...) int64.
    """
    # Of (b, classes, t), PyTorch's function is several times slower on a CPU.
    flat, flat_targets = logits.flatten(0, -2), targets.flatten()
    nats = [
        F.cross_entropy(flat[rows].float(), flat_targets[rows], ignore_index=IGNORED, reduction="none")
        for rows in _chunks(flat)
    ]
    return torch.cat(nats).view_as(targets)


def _chunks(logits: Tensor) -> Iterator[slice]:
    """Yield the rows of each chunk of (n, classes); one chunk if n is 0."""
    rows = max(1, CHUNK // max(1, logits.shape[1]))
    for start in range(0, max(1, len(logits)), rows):
        yield slice(start, start + rows)


class _MeanNats(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
        options: dict[str, Any] = {"ignore_index": IGNORED, "label_smoothing": label_smoothing, "reduction": "sum"}
        sums = [F.cross_entropy(logits[rows].float(), targets[rows], **options) for rows in _chunks(logits)]
        ctx.save_for_backward(logits, targets)
        ctx.label_smoothing = label_smoothing
        return torch.stack(sums).sum() / (targets != IGNORED).sum()

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError("the cross-entropy of many logits does not support a second derivative")
        (logits, targets), epsilon = ctx.saved_tensors, ctx.label_smoothing
        counts = targets != IGNORED
        factors = (d_loss / counts.sum() * counts)[:, None]
        targets = targets.where(counts, 0)[:, None]
        d_logits = torch.empty_like(logits)
        for rows in _chunks(logits):
            d = logits[rows].float().softmax(-1)
            d.scatter_add_(1, targets[rows], d.new_full((1, 1), epsilon - 1).expand(len(d), 1))
            d_logits[rows] = d.sub_(epsilon / logits.shape[1]).mul_(factors[rows]) if epsilon else d.mul_(factors[rows])
        return d_logits, None, None
