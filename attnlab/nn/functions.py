"""Softmax attention with functions in its formula, on whole logits or on blocks of queries.

    y_i = sum_j w_ij v_j,    w_i = weights(f(scale * q_i . k_j + bias_ij))

with f the composition of functions of the logits, in the signature of PyTorch's FlexAttention (Dong et al. 2024,
arXiv:2412.05496), and ``weights`` the softmax or another function of a whole row.

PyTorch differentiates the functions, so that tensors that they read receive gradients. For long sequences each block is
computed again in the backward pass, so that the saved memory grows with t, not with t s.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from attnlab.nn import blocked
from attnlab.nn.mask import AttentionMask, BlockMask, Indices, make_block_masks, part_of, take_keys

BLOCK_SIZE = 32  # times ``blocked.max_logits``, for a block of all sequences and heads

ScoreFunction: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""``(logits, b, h, i, j) -> logits``: see ``attnlab.components.Component.score``."""
WeightFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""``(logits, visible) -> weights``: see ``attnlab.components.Component.weights``."""


def attend_in_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: AttentionMask,
    bias: Tensor | None,
    *,
    scores: Sequence[ScoreFunction],
    weights: WeightFunction | None,
    dropout: float,
    scale: float,
    whole: bool,
    record: Callable[[Tensor], None],
) -> Tensor:
    """Compute attention of ``q`` (b, h, t, d) over ``k`` (b, h, s, d) and ``v`` (b, h, s, e).

    Args:
        mask: the keys that each query may attend to.
        bias: broadcastable to (b, h, t, s), added to the scaled logits.
        scores: functions of the logits, in order.
        weights: function of the logits of whole rows, None: the softmax.
        dropout: probability of dropping a weight.
        scale: factor of the products q . k.
        whole: True to compute all logits at once.
        record: called with the weights of all logits, if ``whole``.

    Returns:
        (b, h, t, e); zeros for a query that may attend to no key.
    """
    s, indices = k.shape[-2], Indices.of(q, k.shape[-2])

    def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, block: BlockMask) -> Tensor:
        part = indices.part(block.rows, block.keys)
        logits = torch.einsum("bhtd,bhsd->bhts", q * scale, k)
        if bias is not None:
            logits = logits + bias
        for function in scores:
            logits = function(logits, *part)
        visible = block.visible
        if visible is None:
            visible = torch.ones(len(part.i), len(part.j), dtype=torch.bool, device=q.device)
        logits = logits.masked_fill(~visible, torch.finfo(logits.dtype).min)
        w = logits.softmax(-1) if weights is None else weights(logits, visible)
        w = w * visible.any(-1, keepdim=True)
        if whole:
            record(w)
        return torch.einsum("bhts,bhse->bhte", F.dropout(w, dropout).to(v.dtype), v)

    if whole or not q.shape[-2]:
        return attend(q, k, v, bias, _whole_mask(mask, indices))
    row = blocked.longest_row(s, causal=mask.causal, window=mask.window)
    recompute = torch.is_grad_enabled() and not blocked.saves_weights(q, row, row)
    results = []
    blocks = _blocks(q, row, split=mask.causal or mask.window is not None or bool(mask.functions))
    for block in make_block_masks(mask, q, s, blocks):
        k1, v1 = (take_keys(z, block.keys, dim=2) for z in (k, v))
        inputs = q[:, :, block.rows], k1, v1, None if bias is None else part_of(bias, block.rows, block.keys), block
        y = checkpoint(attend, *inputs, use_reentrant=False) if recompute else attend(*inputs)
        assert isinstance(y, Tensor)
        results.append(y)
    return torch.cat(results, dim=2)


def _whole_mask(mask: AttentionMask, indices: Indices) -> BlockMask:
    """Return the mask of all queries and keys as one block."""
    rows, keys = slice(0, len(indices.i)), (slice(0, len(indices.j)),)
    return BlockMask(rows, keys, mask.part(indices, rows, keys))


def _blocks(q: Tensor, row: int, *, split: bool) -> list[slice]:
    """Return the queries of each block, of q (b, h, t, d).

    Args:
        row: number of keys of a block.
        split: True when smaller blocks attend to fewer keys.
    """
    b, h, t, _ = q.shape
    rows = max(1, min(blocked.CAUSAL_BLOCK if split else t, BLOCK_SIZE * blocked.max_logits(q) // max(1, b * h * row)))
    return [slice(i, min(i + rows, t)) for i in range(0, t, rows)]


class _WithGradientOf(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor, y: Tensor) -> Tensor:
        ctx.loss = loss.shape, loss.dtype
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (gradient,) = gradients
        shape, dtype = ctx.loss
        return torch.ones(shape, dtype=dtype, device=gradient.device), gradient


_weight: Tensor | None = None  # of the losses of layers; a tensor, because a compiled layer takes a number as a constant


@contextmanager
def layer_losses_times(weight: Tensor) -> Iterator[None]:
    """Multiply the losses of layers (``with_gradient_of``) by a scalar, as the loss of the model is multiplied.

    Forward and backward pass must both be inside, because a backward pass may compute layers again.
    """
    global _weight
    before, _weight = _weight, weight
    try:
        yield
    finally:
        _weight = before


def with_gradient_of(loss: Tensor, y: Tensor) -> Tensor:
    """Return y; a backward pass through it also adds the gradient of ``loss``, whatever the loss of the model is.

    A layer can train a part of itself in this way. Its parameters must not influence y, so that their gradients come from
    ``loss`` alone. Training weights it like the loss of the model: by the share of a micro-batch and the scale of fp16.

    Args:
        loss: a scalar.
        y: any tensor that requires a gradient.
    """
    return _WithGradientOf.apply(loss if _weight is None else loss * _weight, y)
