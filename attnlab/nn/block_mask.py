"""Masks by blocks of queries: the ranges of keys that a block may attend to, and whether its mask hides any of them.

Like ``create_block_mask`` of PyTorch's FlexAttention (Dong et al. 2024, arXiv:2412.05496): keys are left out, ``KEYS`` at a
time, when no query of a block may attend to them, and when all queries of a block may attend to all other keys, the block has
no mask. The functions of a mask are evaluated for one block of queries at a time.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.nn.indices import Indices, KeyRanges
from attnlab.nn.mask import AttentionMask

KEYS = 64  # that are computed or left out together: fewer leave out more, more make larger products


class BlockMask(NamedTuple):
    """The mask of a block of queries.

    Attributes:
        rows: range of the queries. keys: ranges of the keys that any of them may attend to, and of a few others.
        visible: broadcastable to (b, h, rows, keys), True = may be attended to; None: all of these keys.
    """

    rows: slice
    keys: KeyRanges
    visible: Tensor | None


def make_block_masks(
    mask: AttentionMask, q: Tensor, s: int, blocks: Iterable[slice], *, from_first: bool = False
) -> list[BlockMask]:
    """Evaluate a mask in blocks of queries, of q (b, h, t, d), over s keys.

    Args:
        blocks: ranges of the queries.
        from_first: leave out only keys before the first one that is visible, so that each block has one range.
    """
    indices, masks = Indices.of(q, s), []
    for rows in blocks:
        keys = visible_keys(rows, q.shape[2], s, causal=mask.causal, window=mask.window)
        masks.append(_make_block_mask(mask, indices, rows, keys, from_first=from_first))
    return masks


def _make_block_mask(mask: AttentionMask, indices: Indices, rows: slice, keys: slice, *, from_first: bool) -> BlockMask:
    """Evaluate the mask of one block over a range of keys."""
    tiles = [slice(start, min(start + KEYS, keys.stop)) for start in range(keys.start, keys.stop, KEYS)]
    visible = mask.part(indices, rows, (keys,))
    if visible.is_meta or not tiles:  # in a plan, which knows shapes alone
        return BlockMask(rows, (keys,), visible)
    shown = [bool(part.any()) for part in visible.flatten(0, -2).any(0).split(KEYS)]
    if from_first or not any(shown):  # a query that may attend to no key yields zeros, but still needs a key
        first = shown.index(True) if any(shown) else len(tiles) - 1
        shown = [i >= first for i in range(len(tiles))]
    ranges = _merge(tile for tile, is_shown in zip(tiles, shown, strict=True) if is_shown)
    visible = torch.cat([part for part, is_shown in zip(visible.split(KEYS, dim=-1), shown, strict=True) if is_shown], dim=-1)
    return BlockMask(rows, ranges, None if bool(visible.all()) else visible)


def shows_any(masks: Sequence[BlockMask], device: torch.device) -> Tensor:
    """Return, broadcastable to (b, h, t, 1), True for a query that may attend to any key, from the masks of all queries."""
    every = torch.ones((), dtype=torch.bool, device=device)
    shown = [
        every.expand(mask.rows.stop - mask.rows.start, 1) if mask.visible is None else mask.visible.any(-1, keepdim=True)
        for mask in masks
    ]
    batch = torch.broadcast_shapes(*(z.shape[:-2] for z in shown))
    return torch.cat([z.expand(*batch, -1, -1) for z in shown], dim=-2)


def visible_keys(rows: slice, t: int, s: int, *, causal: bool, window: int | None) -> slice:
    """Return the range of the keys, of s, that any of these queries, of t, may attend to."""
    if not causal and window is None:
        return slice(0, s)  # t may exceed s
    first, last = s - t + rows.start, s - t + rows.stop - 1  # positions of the queries among the keys
    start = 0 if window is None else max(0, first - window + 1)
    ahead = 0 if causal or window is None else window - 1
    return slice(start, min(s, last + ahead + 1))


def _merge(tiles: Iterable[slice]) -> KeyRanges:
    """Join ranges that follow each other."""
    ranges: list[slice] = []
    for tile in tiles:
        if ranges and ranges[-1].stop == tile.start:
            ranges[-1] = slice(ranges[-1].start, tile.stop)
        else:
            ranges.append(tile)
    return tuple(ranges)
