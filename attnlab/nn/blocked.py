"""Softmax attention by blocks of queries: the formula of ``attnlab.nn.attention``, a few megabytes of logits at a time.

For each block of queries, with the keys that any of them may attend to,

    P = softmax(scale Q K^T + bias),    Y = P V

as batched products over a few heads, so that the logits stay in the processor's cache. Keys that a causal mask, a window or
``masks`` hide from a whole block are skipped. From dY the backward pass computes

    dV^T = dY^T P,    dP = dY V^T,    dL = P * (dP - rowsum(dP * P)),    dQ = scale dL K,    dK^T = (scale Q)^T dL

For long rows it recomputes P, so that the saved memory grows with t, not with t s. (Sparse variants call this function for
parts of a sequence and pass the length of the whole.) The method follows FlashAttention (Dao et al. 2022,
arXiv:2205.14135, section 3.1), with whole rows instead of an online softmax: on a CPU, whole rows fit.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.nn.layers import dropout_factors, relative_shift
from attnlab.nn.mask import BlockMask, KeyRanges, count_keys, part_of, split_keys, take_keys, visible_keys

CAUSAL_BLOCK = 64  # queries of a block under a causal mask or a window: fewer skip more keys, more make larger products
MAX_BLOCK_BYTES = 1 << 20  # of the logits of a block: about a core's second-level cache
MAX_SAVED_ROW = 1024  # most keys of a query whose P is saved for the backward pass: 25% faster than recomputing it


class Block(NamedTuple):
    """A part of the logits that is computed at once.

    Attributes:
        sequences: range of the b sequences. heads: range of the h heads; all of them, if there are several sequences.
        batch: their range among the b h sequences-by-heads.
        rows: range of the queries. keys: ranges of the keys that any of these queries may attend to.
        visible: their mask, broadcastable to (b, h, t, s); None: all of these keys, or the causal mask and the window.
    """

    sequences: slice
    heads: slice
    batch: slice
    rows: slice
    keys: KeyRanges
    visible: Tensor | None

    def take(self, z: Tensor) -> Tensor:
        """Return the keys (n, s, d) of the block, of z (b h, s, d): a view of a single range."""
        first, *others = self.keys
        return take_keys(z[self.batch], self.keys, dim=1) if others else z[self.batch, first]

    def part(self, z: Tensor, keys: KeyRanges) -> Tensor:
        """Return the part of a tensor, broadcastable to (b, h, t, s), of the block: a view for one range of keys."""
        return part_of(part_of_heads(z, self.sequences, self.heads), self.rows, keys)

    def by_head(self, z: Tensor) -> Tensor:
        """Separate the sequences and the heads of z (n, t, s): (b, h, t, s)."""
        return z.unflatten(0, (-1, self.heads.stop - self.heads.start))

    def repeat(self, r: Tensor) -> Tensor:
        """Repeat r (h, n, d) for each sequence of the block: (b h, n, d)."""
        return r.expand(self.sequences.stop - self.sequences.start, -1, -1, -1).flatten(0, 1)


def part_of_heads(z: Tensor, sequences: slice, heads: slice) -> Tensor:
    """Return the part of a tensor, broadcastable to (b, h, t, s), that belongs to some of the sequences and heads."""
    for dim, part in ((-4, sequences), (-3, heads)):
        if z.dim() >= -dim and z.shape[dim] > 1:
            z = z.narrow(dim, part.start, part.stop - part.start)
    return z


def blocked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    additive: Tensor | None = None,
    distance: Tensor | None = None,
    r: Tensor | None = None,
    *,
    causal: bool,
    window: int | None = None,
    masks: Sequence[BlockMask] = (),
    dropout: float,
    scale: float,
    total_length: int | None = None,
) -> Tensor:
    """Compute attention of ``q`` (b, h, t, d) over ``k`` (b, h, s, d) and ``v`` (b, h, s, e).

    Args:
        additive: broadcastable to (b, h, t, s), added to the scaled logits; finite. It need not contain the causal mask and
            the window.
        distance: (b, h, t, d), and r: (h, n, d), as in ``attnlab.nn.attention.RelativeLogits``: adds
            scale * relative_shift(distance r^T) to the logits.
        causal: query i attends to keys up to i + s - t only. Requires s >= t, like ``window``.
        window: query i attends to keys j with |i + s - t - j| < window only.
        masks: the masks of blocks of all queries, in order, which contain the causal mask and the window; (): these two alone.
        dropout: probability of dropping a weight.
        scale: factor of the products q . k.
        total_length: length of the sequence that q and k are a part of; default s.

    Returns:
        (b, h, t, e). A query that may attend to no key gets some values: the caller replaces them.

    Raises:
        RuntimeError: on a second derivative, which is not implemented.
    """
    seed = int(torch.randint(1 << 62, ())) if dropout else None  # the backward pass draws the same dropout masks
    t, s, window = q.shape[2], k.shape[2], None if masks else window
    blocks = query_blocks(q, s, causal=causal, window=window)
    ranges = ((rows, (visible_keys(rows, t, s, causal=causal, window=window),)) for rows in blocks)
    row_blocks = tuple((mask.rows, mask.keys) for mask in masks) or tuple(ranges)
    row = max((count_keys(keys) for _, keys in row_blocks), default=0)
    save = saves_weights(q, row, row if row < s else total_length or row)
    options = _Options(q.shape[1], causal, window, scale, dropout, seed, save, bool(masks), row_blocks)
    visible = [mask.visible for mask in masks]
    return _BlockedAttention.apply(q, k, v, additive, distance, r, options, *visible)  # type: ignore[no-any-return]


def saves_weights(q: Tensor, row: int, total_row: int) -> bool:
    """Return True when P is saved for the backward pass: its rows are short, or no longer than a query and a key.

    Args:
        row: number of keys of a block of queries.
        total_row: the same for the sequence that q is a part of.
    """
    return total_row <= MAX_SAVED_ROW or row <= 2 * q.shape[-1]


def max_logits(q: Tensor) -> int:
    """Return the largest number of logits of a block, in the dtype of the queries."""
    return MAX_BLOCK_BYTES // q.element_size()


def longest_row(s: int, *, causal: bool, window: int | None) -> int:
    """Return the largest number of keys, of s, that a block of queries with this mask has."""
    if window is None:
        return s
    return min(s, CAUSAL_BLOCK + (window - 1 if causal else 2 * (window - 1)))


def query_blocks(q: Tensor, s: int, *, causal: bool, window: int | None, masked: bool = False) -> list[slice]:
    """Return the queries of each block, of q (b, h, t, d).

    Args:
        masked: True with another mask, under which smaller blocks may attend to fewer keys.
    """
    t, row = q.shape[2], max(1, longest_row(s, causal=causal, window=window))
    most = t if window is None and not causal and not masked else CAUSAL_BLOCK
    rows = max(1, min(most, max_logits(q) // row))
    return [slice(i, min(i + rows, t)) for i in range(0, t, rows)]


@dataclass(frozen=True)
class _Options:
    heads: int
    causal: bool
    window: int | None
    scale: float
    dropout: float
    seed: int | None
    save_weights: bool
    masked: bool  # by masks of blocks, which contain the causal mask and the window
    row_blocks: tuple[tuple[slice, KeyRanges], ...]

    def dropout_sampler(self, device: torch.device) -> Callable[[Tensor], Tensor | float]:
        """Return a function from the weights of each block, in order, to their factors: 0 (dropped) or 1 / (1 - p)."""
        if self.seed is None:
            return lambda weights: 1.0
        generator = torch.Generator(device).manual_seed(self.seed)
        if device.type == "cpu":
            return lambda weights: dropout_factors(weights, self.dropout, generator=generator)
        keep = 1 - self.dropout
        return lambda weights: torch.empty_like(weights).bernoulli_(keep, generator=generator).div_(keep)


class _BlockedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        additive: Tensor | None,
        distance: Tensor | None,
        r: Tensor | None,
        options: _Options,
        *visible: Tensor | None,
    ) -> Tensor:
        (b, h, t, _), e = q.shape, v.shape[-1]
        scaled = torch.mul(q, options.scale, out=q.new_empty(q.shape))  # contiguous, unlike q * scale
        q, k, v = (z.flatten(0, 1).contiguous() for z in (scaled, k, v))  # (b h, t, d)
        distance = None if distance is None else distance.flatten(0, 1).contiguous()
        y, saved, sample_dropout = q.new_empty(b * h, t, e), [], options.dropout_sampler(q.device)
        for block in _blocks(q, options, visible):
            weights = _weights(block, q, k, additive, distance, r, options)
            if options.save_weights and any(ctx.needs_input_grad):
                saved.append(weights)
            dropped = weights * sample_dropout(weights) if options.dropout else weights
            y[block.batch, block.rows] = torch.bmm(dropped, block.take(v))
        ctx.save_for_backward(q, k, v, additive, distance, r, *visible, *saved)
        ctx.options = options
        return y.unflatten(0, (b, h))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True; with once_differentiable, torch.autograd.grad would not raise
            raise RuntimeError("backend blocked does not support a second derivative: use backend reference")
        (q, k, v, additive, distance, r, *saved), options = ctx.saved_tensors, ctx.options
        blocks = len(options.row_blocks) if options.masked else 0
        visible, saved = saved[:blocks], saved[blocks:]
        dy = dy.flatten(0, 1).contiguous()
        # The block of the last queries attends to all keys and writes to all of dk and dv, unless something hides keys from it.
        writes_all = bool(options.row_blocks) and options.row_blocks[-1][1] == (slice(0, k.shape[1]),)
        dq = torch.empty_like(q)
        # Of long rows of dL, the product Q^T dL is faster than dL^T Q. So dk and dv are (b h, d, s) in the loop.
        dk, dv = (z.new_empty(z.mT.shape) if writes_all else z.new_zeros(z.mT.shape) for z in (k, v))
        d_additive = _accumulator(additive) if ctx.needs_input_grad[3] else None
        d_distance, d_r = None if distance is None else torch.zeros_like(distance), _accumulator(r)
        saved_weights, sample_dropout = iter(saved), options.dropout_sampler(q.device)

        for block in _blocks(q, options, visible):
            batch, rows = block.batch, block.rows
            q1, k1, v1, dy1 = q[batch, rows], block.take(k), block.take(v), dy[batch, rows]

            # P again, with the dropout of the forward pass, and dP = dY V^T.
            weights = next(saved_weights) if saved else _weights(block, q, k, additive, distance, r, options)
            d_weights, dropped = torch.bmm(dy1, v1.mT), weights
            if options.dropout:
                factors = sample_dropout(weights)
                d_weights *= factors
                dropped = weights * factors

            # dL = P * (dP - rowsum(dP * P)), then the products dQ, dK and dV.
            d_logits = torch.ops.aten._softmax_backward_data(d_weights, weights, -1, weights.dtype)
            dq[batch, rows] = torch.bmm(d_logits, k1)
            if writes_all and rows.stop == q.shape[1]:
                torch.bmm(q1.mT, d_logits, out=dk[batch])
                torch.bmm(dy1.mT, dropped, out=dv[batch])
            else:
                for (keys, d_part), (_, w_part) in zip(*(split_keys(z, block.keys) for z in (d_logits, dropped)), strict=True):
                    dk[batch, :, keys].baddbmm_(q1.mT, d_part)
                    dv[batch, :, keys].baddbmm_(dy1.mT, w_part)

            # The bias gets dL, summed over the dimensions that it broadcasts.
            if d_additive is not None:
                for keys, d_part in split_keys(d_logits, block.keys):
                    d_block = block.part(d_additive, (keys,))
                    d_block += block.by_head(d_part).sum_to_size(d_block.shape)

            # Relative logits: dL moves from the columns of the keys back to those of the distances.
            if distance is not None and r is not None and d_distance is not None and d_r is not None:
                columns = _distance_columns(block, q.shape[1], options)
                by_distance = _move_to_distances(d_logits, columns.stop - columns.start)
                torch.bmm(by_distance, block.repeat(r[block.heads, columns]), out=d_distance[batch, rows])
                d_columns = torch.bmm(by_distance.mT, distance[batch, rows])
                d_r[block.heads, columns] += block.by_head(d_columns).sum(0, dtype=d_r.dtype)

        dk, dv = dk.mT, dv.mT
        for z in (dq, d_distance, d_r):
            if z is not None:
                z *= options.scale
        d_additive, d_r = (None if z is None else z.to(q.dtype) for z in (d_additive, d_r))
        dq, dk, dv, d_distance = (None if z is None else z.unflatten(0, (-1, options.heads)) for z in (dq, dk, dv, d_distance))
        return dq, dk, dv, d_additive, d_distance, d_r, None, *(None for _ in visible)


def _accumulator(z: Tensor | None) -> Tensor | None:
    """Zeros for the gradient of ``z``, summed over blocks and sequences: at least float32, as bf16 loses small terms."""
    return None if z is None else torch.zeros_like(z, dtype=torch.promote_types(z.dtype, torch.float32))


def _blocks(q: Tensor, options: _Options, visible: Sequence[Tensor | None]) -> Iterator[Block]:
    """Yield the blocks of each group of heads, the last queries first.

    Args:
        q: (b h, t, d).
        visible: the mask of each block of queries, if the blocks have masks.
    """
    largest = max((count_keys(keys) * (rows.stop - rows.start) for rows, keys in options.row_blocks), default=1)
    row_blocks = list(zip(options.row_blocks, visible or [None] * len(options.row_blocks), strict=True))
    for sequences, heads in _batches(len(q) // options.heads, options.heads, max_logits(q) // max(1, largest)):
        first = sequences.start * options.heads + heads.start
        batch = slice(first, first + (sequences.stop - sequences.start) * (heads.stop - heads.start))
        for (rows, keys), mask in reversed(row_blocks):
            own = None if mask is None else part_of_heads(mask, sequences, heads)
            yield Block(sequences, heads, batch, rows, keys, own)


def _batches(b: int, h: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Yield ranges of b sequences and of h heads: about ``size`` heads of one sequence, or of several whole sequences."""
    sequences = max(1, size // h)
    parts = -(-h // max(1, min(size, h)))  # of the heads of one sequence
    heads = -(-h // parts)
    for i in range(0, b, sequences):
        for j in range(0, h, heads):
            yield slice(i, min(i + sequences, b)), slice(j, min(j + heads, h))


def _weights(
    block: Block, q: Tensor, k: Tensor, additive: Tensor | None, distance: Tensor | None, r: Tensor | None, options: _Options
) -> Tensor:
    """Return the softmax weights (n, t, s) of a block.

    Args:
        q: (b h, t, d), scaled.
    """
    batch, rows = block.batch, block.rows
    queries, keys = q[batch, rows], block.take(k).mT
    bias = None if additive is None else block.part(additive, block.keys)
    if bias is None:
        logits = torch.bmm(queries, keys)
    else:  # for a mask of the keys (n, 1, s), this takes a third of the time of a separate addition
        heads = block.heads.stop - block.heads.start
        bias = bias.expand(len(queries) // heads, heads, -1, -1).flatten(0, 1)
        logits = torch.baddbmm(bias, queries, keys)
    if distance is not None and r is not None:
        r = block.repeat(r[block.heads, _distance_columns(block, q.shape[1], options)])
        logits += relative_shift(torch.bmm(distance[batch, rows] * options.scale, r.mT), logits.shape[2])
    if block.visible is not None:
        block.by_head(logits).masked_fill_(~block.visible, torch.finfo(logits.dtype).min)  # finite: see attnlab.nn.attention
    elif not options.masked:
        _hide(logits, block, k.shape[1] - q.shape[1], options)
    return logits.softmax(-1)


def _hide(logits: Tensor, block: Block, offset: int, options: _Options) -> None:
    """Hide the keys that the causal mask or the window hides from some queries of a block, at either end of its keys.

    Args:
        logits: (n, t, s), changed in place.
        offset: position of the first query of the sequence among the keys.
    """
    if not options.causal and options.window is None:
        return
    _, t, s = logits.shape
    edge = min(t, s)  # keys that some queries of a block attend to and others do not
    hidden = logits.new_full((t, edge), float("-inf"))
    diagonal = offset + block.rows.start - block.keys[0].start  # the column of the key at the position of the first query
    ahead = 0 if options.causal or options.window is None else options.window - 1
    if s > diagonal + ahead + 1:
        logits[..., s - edge :] += hidden.triu(diagonal + ahead + 1 - (s - edge))
    if options.window is not None and diagonal + t > options.window:
        logits[..., :edge] += hidden.tril(diagonal - options.window)


def _distance_columns(block: Block, t: int, options: _Options) -> slice:
    """Range of the distances between a block's queries and its keys, and one more, which ``relative_shift`` needs."""
    (keys,) = block.keys
    first = t - block.rows.stop + keys.start
    ahead = 1 if options.causal else block.rows.stop - block.rows.start
    return slice(first, first + keys.stop - keys.start + ahead)


def _move_to_distances(d_logits: Tensor, distances: int) -> Tensor:
    """Return the gradient (n, t, distances) of the logits that ``relative_shift`` arranged by keys, from theirs (n, t, s)."""
    by_distance = d_logits.new_zeros(*d_logits.shape[:2], distances)
    relative_shift(by_distance, d_logits.shape[2]).copy_(d_logits)
    return by_distance
