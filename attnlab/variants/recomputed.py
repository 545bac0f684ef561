"""Attention in pieces that keeps nothing for the backward pass but its queries, keys and values.

A sparse pattern is a list of pieces: some queries, the keys that they see, and a mask. Each piece is two batched products and a
softmax, small enough to stay in the processor's cache, and its weights are computed again when gradients are wanted (as in
FlashAttention, Dao et al. 2022, section 3.1). Neither what is saved nor what is held at a time grows faster than the sequence.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnlab.blocked import KEPT
from attnlab.layers import causal_mask
from attnlab.variants import Variant

MOST = 2**20  # logits of a piece: 4 MiB in fp32


@dataclass(frozen=True)
class Piece:
    """Some of the queries (g, t, d), and the keys that they see.

    Attributes:
        queries: which of them: an index into q that leaves n groups, (n, t', d).
        keys: an index into k and v; what it leaves is cut into n equal windows, one a group.
        allowed: (t', s), True where a query may see a key of its window. Every query has one that it may see.
        alone: the groups that see no more than the second half of their window.
    """

    queries: Any
    keys: Any
    allowed: Tensor
    alone: Sequence[int] = ()


def applies(variant: Variant, mask: Tensor | None, *, length: int) -> bool:
    """Whether a variant's attention is computed like this: by plain products, with no bias, padding or dropout in it.

    Up to ``KEPT`` positions it is not, as in ``attnlab.blocked``: to keep the weights is quicker, and they are few.
    """
    biased = variant.position is not None and variant.position.hook == "bias"
    dropping = variant.training and variant.dropout > 0
    plain = variant.backend == "blocked" and not (biased or dropping)
    return plain and length > KEPT and mask is None and not torch.compiler.is_compiling()


def attend_pieces(q: Tensor, k: Tensor, v: Tensor, pieces: Callable[[], Iterable[Piece]]) -> Tensor:
    """Softmax attention of each query over the keys that its piece gives it.

    Args:
        q, k, v: (..., t, d) and (..., s, d). Pieces see their leading dimensions as one, g.
        pieces: called for the forward and again for the backward pass. A query is in one piece at most; windows of one piece
            do not overlap, those of several may.

    Returns:
        As q; zeros for queries that are in no piece.
    """
    flat = (z.flatten(0, -3).to(v.dtype).contiguous() for z in (q, k, v))  # under autocast a position scheme may leave fp32
    y: Tensor = _Pieces.apply(*flat, pieces)  # type: ignore[assignment]
    return y.view(q.shape)


def each_alone(shape: torch.Size, device: torch.device) -> Iterator[Piece]:
    """Pieces in which every group attends causally within itself. shape: (..., t, d) of queries and keys."""
    *groups, t, _ = shape
    for run in cut(range(prod(groups)), t * t):
        yield Piece(slice(run.start, run.stop), slice(run.start, run.stop), causal_mask(t, t, device=device))


class _Pieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, pieces: Callable[[], Iterable[Piece]]) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.pieces = pieces
        y = torch.zeros_like(q)
        for piece in pieces():
            queries = q[piece.queries]
            weights = _weights(queries, _windows(k, piece, queries), piece)
            y[piece.queries] = torch.bmm(weights.to(v.dtype), _windows(v, piece, queries)).to(y.dtype)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v = ctx.saved_tensors
        dq, dk, dv = (torch.zeros_like(z) for z in (q, k, v))
        for piece in ctx.pieces():
            queries, dy = q[piece.queries], above[piece.queries]
            keys, values = _windows(k, piece, queries), _windows(v, piece, queries)
            weights = _weights(queries, keys, piece)
            _windows(dv, piece, queries).baddbmm_(weights.transpose(1, 2), dy)
            dweights = torch.bmm(dy, values.transpose(1, 2))
            dlogits = torch.ops.aten._softmax_backward_data(dweights, weights, -1, weights.dtype).mul_(_scale(queries))
            dq[piece.queries] = torch.bmm(dlogits, keys)
            _windows(dk, piece, queries).baddbmm_(dlogits.transpose(1, 2), queries)
        return dq, dk, dv, None


def _scale(queries: Tensor) -> float:
    return queries.shape[-1] ** -0.5


def _windows(z: Tensor, piece: Piece, queries: Tensor) -> Tensor:
    """(n, s, d): what the n groups of queries see of keys, values or their gradients, as a view."""
    return z[piece.keys].view(len(queries), -1, z.shape[-1])


def _weights(queries: Tensor, keys: Tensor, piece: Piece) -> Tensor:
    """(n, t', s)."""
    hidden = torch.zeros(piece.allowed.shape, dtype=queries.dtype, device=queries.device)
    hidden.masked_fill_(~piece.allowed, float("-inf"))
    logits = torch.baddbmm(hidden, queries, keys.transpose(1, 2), alpha=_scale(queries))
    for group in piece.alone:
        logits[group, :, : logits.shape[-1] // 2] = float("-inf")
    return logits.softmax(-1)


def cut(indices: range, logits: int) -> Iterable[range]:
    """Runs of indices, of so many groups as have few enough logits for a piece. logits: of one group."""
    step = max(1, MOST // logits)
    return (indices[i : i + step] for i in range(0, len(indices), step))
