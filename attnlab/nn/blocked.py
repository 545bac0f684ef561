"""Softmax attention by blocks of queries: the formula of ``backends``, a few megabytes of logits at a time.

For each block of queries, with the keys that any of them may see,

    P = softmax(scale Q K^T + bias),    Y = P V

as batched products over the heads of a few sequences, so that the logits stay in the processor's cache. What a causal role
hides from a whole block is never computed. From dY the backward pass computes

    dV = P^T dY,    dP = dY V^T,    dL = P * (dP - rowsum(dP * P)),    dQ = scale dL K,    dK = scale dL^T Q

and P once more where sequences are long: what is saved then grows with t, not with t s. (Sparse variants call this for pieces
of a sequence, and say how long the whole is.) The idea is that of FlashAttention
(Dao et al. 2022, section 3.1), with whole rows instead of an online softmax: on a CPU whole rows fit.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.nn.layers import shift

ROWS = 64  # queries of a block in a causal role: fewer skip more of what is hidden, more make larger products
AT_A_TIME = 1 << 20  # logits: about what the processor's cache holds
KEPT = 1024  # positions of a sequence up to which P is kept for the backward pass: a quarter faster than to compute it again


def blocked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    additive: Tensor | None = None,
    distance: Tensor | None = None,
    r: Tensor | None = None,
    *,
    causal: bool,
    dropout: float,
    scale: float,
    total_length: int | None = None,
) -> Tensor:
    """Attention of ``q`` (b, h, t, d) over ``k`` (b, h, s, d) and ``v`` (b, h, s, e).

    Args:
        additive: broadcastable to (b, h, t, s), added to the scaled logits, finite; the causal mask need not be in it.
        distance, r: (b, h, t, d) and (h, n, d), as in ``attnlab.positions.RelativeLogits``: adds scale * shift(distance r^T).
        dropout: probability of dropping a weight.
        total_length: positions of the sequence that these are a piece of; default s.

    Returns:
        (b, h, t, e).
    """
    seed = int(torch.randint(1 << 62, ())) if dropout else None  # what is dropped is drawn again on the way back
    how = _How(q.shape[1], causal, scale, dropout, seed, keeps(q, k, total_length or k.shape[2]))
    return _Blocked.apply(q, k, v, additive, distance, r, how)  # type: ignore[no-any-return]


def keeps(q: Tensor, k: Tensor, total_length: int) -> bool:
    """Whether P is kept for the backward pass: it is few, or a row of it takes no more than a query and a key."""
    return total_length <= KEPT or k.shape[2] <= 2 * q.shape[3]


@dataclass(frozen=True)
class _How:
    heads: int
    causal: bool
    scale: float
    dropout: float
    seed: int | None
    keeps: bool

    def drawn(self, device: torch.device) -> Callable[[Tensor], Tensor | float]:
        """Says of the weights of each block in turn what they are multiplied by: 0 where they are dropped."""
        if self.seed is None:
            return lambda weights: 1.0
        stream = torch.Generator(device).manual_seed(self.seed)
        keep = 1 - self.dropout
        return lambda weights: torch.empty_like(weights).bernoulli_(keep, generator=stream).div_(keep)


class Block(NamedTuple):
    """Which sequences and heads, which queries, and how many of the keys any of them sees."""

    part: slice
    rows: slice
    seen: int


class _Blocked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        additive: Tensor | None,
        distance: Tensor | None,
        r: Tensor | None,
        how: _How,
    ) -> Tensor:
        (b, h, t, _), e = q.shape, v.shape[-1]
        q, k, v = (z.flatten(0, 1).contiguous() for z in (q, k, v))  # (b h, t, d)
        distance = None if distance is None else distance.flatten(0, 1).contiguous()
        y, kept, keep = q.new_empty(b * h, t, e), [], how.drawn(q.device)
        for block in _blocks(q, k, how):
            part, rows, seen = block
            weights = _weights(block, q, k, additive, distance, r, how)
            if how.keeps and any(ctx.needs_input_grad):
                kept.append(weights)
            torch.bmm(weights * keep(weights) if how.dropout else weights, v[part, :seen], out=y[part, rows])
        ctx.save_for_backward(q, k, v, additive, distance, r, *kept)
        ctx.how = how
        return y.unflatten(0, (b, h))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True; once_differentiable would let torch.autograd.grad pass its error by
            raise RuntimeError("backend blocked cannot be differentiated twice: take backend reference")
        (q, k, v, additive, distance, r, *saved), how = ctx.saved_tensors, ctx.how
        dy = dy.flatten(0, 1).contiguous()
        made = torch.empty_like if q.shape[1] else torch.zeros_like  # without queries no block writes to dk and dv
        dq, dk, dv = (made(z) for z in (q, k, v))
        d_additive = _sum_like(additive) if ctx.needs_input_grad[3] else None
        d_distance, d_r = None if distance is None else torch.zeros_like(distance), _sum_like(r)
        kept, keep = iter(saved), how.drawn(q.device)
        for block in _blocks(q, k, how):
            part, rows, seen = block
            q1, k1, v1, dy1 = q[part, rows], k[part, :seen], v[part, :seen], dy[part, rows]
            weights = next(kept) if saved else _weights(block, q, k, additive, distance, r, how)
            d_weights, dropped = torch.bmm(dy1, v1.mT), weights
            if how.dropout:
                drawn = keep(weights)
                d_weights *= drawn
                dropped = weights * drawn
            d_logits = torch.ops.aten._softmax_backward_data(d_weights, weights, -1, weights.dtype)
            torch.bmm(d_logits, k1, out=dq[part, rows])
            if rows.stop == q.shape[1]:  # the last queries come first, and see all keys
                torch.bmm(d_logits.mT, q1, out=dk[part])
                torch.bmm(dropped.mT, dy1, out=dv[part])
            else:
                dk[part, :seen] += torch.bmm(d_logits.mT, q1)
                dv[part, :seen] += torch.bmm(dropped.mT, dy1)
            place = _piece(d_additive, block, how)
            if place is not None:
                place += d_logits.unflatten(0, (-1, how.heads)).sum_to_size(place.shape)
            if distance is not None and r is not None and d_distance is not None and d_r is not None:
                columns = _columns(block, q.shape[1], how)
                by_distance = d_logits.new_zeros(*d_logits.shape[:2], columns.stop - columns.start)
                shift(by_distance, seen).copy_(d_logits)
                torch.bmm(by_distance, _each(r[:, columns], part, how), out=d_distance[part, rows])
                each = torch.bmm(by_distance.mT, distance[part, rows])
                d_r[:, columns] += each.unflatten(0, (-1, how.heads)).sum(0, dtype=d_r.dtype)
        for z in (dq, dk, d_distance, d_r):
            if z is not None:
                z *= how.scale
        d_additive, d_r = (None if z is None else z.to(q.dtype) for z in (d_additive, d_r))
        dq, dk, dv, d_distance = (None if z is None else z.unflatten(0, (-1, how.heads)) for z in (dq, dk, dv, d_distance))
        return dq, dk, dv, d_additive, d_distance, d_r, None


def _sum_like(z: Tensor | None) -> Tensor | None:
    """Zeros to add up the gradient of ``z`` in, over blocks and sequences: in float32 at least, as bf16 loses what is small."""
    return None if z is None else torch.zeros_like(z, dtype=torch.promote_types(z.dtype, torch.float32))


def _blocks(q: Tensor, k: Tensor, how: _How) -> Iterator[Block]:
    """Of each part of the batch the last queries first."""
    (n, t, _), s = q.shape, k.shape[1]
    row = max(1, s)  # logits of a query
    rows = max(1, min(ROWS if how.causal else t, AT_A_TIME // row))
    each = how.heads * max(1, AT_A_TIME // (how.heads * rows * row))  # whole sequences
    for start in range(0, n, each):
        for i in reversed(range(0, t, rows)):
            end = min(i + rows, t)
            yield Block(slice(start, min(start + each, n)), slice(i, end), s - t + end if how.causal else s)


def _weights(
    block: Block, q: Tensor, k: Tensor, additive: Tensor | None, distance: Tensor | None, r: Tensor | None, how: _How
) -> Tensor:
    """(n, t, s): the softmax of a block, whose last query sees the last of its keys."""
    part, rows, s = block
    t = rows.stop - rows.start
    queries, keys = q[part, rows] * how.scale, k[part, :s].mT
    piece = _piece(additive, block, how)
    if piece is None:
        logits = torch.bmm(queries, keys)
    else:  # of a mask of the keys alone (n, 1, s) this is a third of what adding it afterwards costs
        logits = torch.baddbmm(piece.expand(len(queries) // how.heads, how.heads, -1, -1).flatten(0, 1), queries, keys)
    if distance is not None and r is not None:
        r = _each(r[:, _columns(block, q.shape[1], how)], part, how)
        logits += shift(torch.bmm(distance[part, rows] * how.scale, r.mT), s)
    if how.causal:
        logits[..., s - t :] += torch.full((t, t), float("-inf"), dtype=q.dtype, device=q.device).triu(1)
    return logits.softmax(-1)


def _piece(additive: Tensor | None, block: Block, how: _How) -> Tensor | None:
    """What of a tensor that is broadcastable to (b, h, t, s) belongs to a block."""
    if additive is None:
        return None
    b, _, t, s = additive.shape
    sequences = slice(block.part.start // how.heads, block.part.stop // how.heads)
    rows = block.rows if t > 1 else slice(None)
    return additive[sequences if b > 1 else slice(None), :, rows, : block.seen if s > 1 else None]


def _columns(block: Block, t: int, how: _How) -> slice:
    """Which distances of all lie between a block's queries and its keys, and one more, which ``shift`` needs."""
    first = t - block.rows.stop
    more = 1 if how.causal else block.rows.stop - block.rows.start
    return slice(first, first + block.seen + more)


def _each(r: Tensor, part: slice, how: _How) -> Tensor:
    """(h, n, d), once for each sequence of a part: (b h, n, d)."""
    return r.expand((part.stop - part.start) // how.heads, -1, -1, -1).flatten(0, 1)
