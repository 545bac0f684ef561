"""Masks of attention: the keys that each query may attend to, by index and by blocks of queries.

A mask by blocks of queries has the ranges of keys that a block may attend to, and whether its mask hides any of them. Like
``create_block_mask`` of PyTorch's FlexAttention (Dong et al. 2024, arXiv:2412.05496): keys are left out, ``KEYS`` at a time,
when no query of a block may attend to them, and when all queries of a block may attend to all other keys, the block has no
mask. The functions of a mask are evaluated for one block of queries at a time.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, TypeAlias

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F

from attnlab.nn.layers import causal_mask, relative_distance

MaskFunction: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""``(b, h, i, j) -> visible``: see ``attnlab.components.Component.visible``."""
KeyRanges: TypeAlias = tuple[slice, ...]
"""Ranges of keys in ascending order."""

KEYS = 64  # that are computed or left out together: fewer leave out more, more make larger products


class Indices(NamedTuple):
    """The indices of logits (b, h, t, s), which broadcast with them.

    Attributes:
        b: (b, 1, 1, 1), rows of the batch.
        h: (h, 1, 1), heads.
        i: (t, 1), the positions of the queries among the keys: both end at the same position.
        j: (s,), the positions of the keys.
    """

    b: Tensor
    h: Tensor
    i: Tensor
    j: Tensor

    @classmethod
    def of(cls, q: Tensor, s: int) -> Self:
        """Return the indices of all logits between q (b, h, t, d) and s keys."""
        b, h, t, _ = q.shape
        rows, heads = torch.arange(b, device=q.device), torch.arange(h, device=q.device)
        queries = torch.arange(s - t, s, device=q.device)
        return cls(rows.view(-1, 1, 1, 1), heads.view(-1, 1, 1), queries.view(-1, 1), torch.arange(s, device=q.device))

    def part(self, rows: slice, keys: KeyRanges) -> Self:
        """Return the indices of some of the queries and keys."""
        return self._replace(i=self.i[rows], j=take_keys(self.j, keys, dim=0))


def count_keys(keys: KeyRanges) -> int:
    return sum(part.stop - part.start for part in keys)


def take_keys(z: Tensor, keys: KeyRanges, *, dim: int) -> Tensor:
    """Return the keys of z along a dimension: a view of a single range, a copy of several."""
    parts = [z.narrow(dim, part.start, part.stop - part.start) for part in keys]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def split_keys(z: Tensor, keys: KeyRanges) -> list[tuple[slice, Tensor]]:
    """Return each range with its part of z (..., s); the columns of z are the keys of all ranges."""
    return list(zip(keys, z.split([part.stop - part.start for part in keys], dim=-1), strict=True))


def part_of(z: Tensor, rows: slice, keys: KeyRanges) -> Tensor:
    """Return the part of a tensor, broadcastable to (b, h, t, s), that belongs to some of the queries and keys."""
    if z.dim() > 1 and z.shape[-2] > 1:
        z = z[..., rows, :]
    return take_keys(z, keys, dim=-1) if z.shape[-1] > 1 else z


@dataclass(frozen=True, eq=False)
class AttentionMask:
    """The keys that each query may attend to. With several conditions, all must hold; with none, every key is visible.

    Attributes:
        causal: query i attends only to keys up to position i + s - t.
        window: query i attends only to keys at a distance below ``window`` from position i + s - t. With ``causal``, these are
            the last ``window`` keys, including position i + s - t.
        attn_mask: boolean, broadcastable to (b, h, t, s), True = may be attended to.
        functions: functions of the indices of queries and keys (``MaskFunction``).

    Raises:
        ValueError: ``window`` below 1.
    """

    causal: bool = False
    window: int | None = None
    attn_mask: Tensor | None = None
    functions: tuple[MaskFunction, ...] = ()

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ValueError(f"AttentionMask: expected a window of at least 1, got {self.window}")

    def without_window(self, t: int, s: int, *, device: torch.device) -> "AttentionMask":
        """Return an equivalent mask with the window as part of ``attn_mask``."""
        if self.window is None:
            return self
        near = relative_distance(t, s, device=device).abs() < self.window
        return replace(self, window=None, attn_mask=near if self.attn_mask is None else near & self.attn_mask)

    def normalized(self, t: int, s: int, *, device: torch.device) -> "AttentionMask":
        """Return an equivalent mask for t queries and s keys in which ``causal`` and ``window`` show every query some key.

        With more queries than keys, these two may hide all keys from a query; they then become part of ``attn_mask``.
        """
        mask = self if self.window is None or self.window < max(t, s) else replace(self, window=None)
        if t <= s or not (mask.causal or mask.window):
            return mask
        return replace(mask, causal=False, window=None, attn_mask=mask.dense(t, s, device=device))

    def without_functions(self, q: Tensor, s: int) -> "AttentionMask":
        """Return an equivalent mask for queries (b, h, t, d) and s keys with the functions as part of ``attn_mask``."""
        if not self.functions:
            return self
        attn_mask, indices = self.attn_mask, Indices.of(q, s)
        for function in self.functions:
            visible = function(*indices)
            attn_mask = visible if attn_mask is None else visible & attn_mask
        return replace(self, functions=(), attn_mask=attn_mask)

    def dense(self, t: int, s: int, *, device: torch.device) -> Tensor | None:
        """Return the whole mask as one boolean tensor, broadcastable to (b, h, t, s); None when every key is visible.

        Functions must be part of ``attn_mask`` already.
        """
        attn_mask = self.without_window(t, s, device=device).attn_mask
        if not self.causal:
            return attn_mask
        causal = causal_mask(t, s, device=device)
        return causal if attn_mask is None else causal & attn_mask

    def part(self, indices: Indices, rows: slice, keys: KeyRanges) -> Tensor:
        """Return the mask of some of the queries and keys, broadcastable to (b, h, t, s), with both of the last dimensions."""
        part = indices.part(rows, keys)
        visible = torch.ones((), dtype=torch.bool, device=part.i.device).expand(len(part.i), len(part.j))
        if self.causal:
            visible = part.j <= part.i
        if self.window is not None:
            visible = visible & ((part.i - part.j).abs() < self.window)
        if self.attn_mask is not None:
            visible = visible & part_of(self.attn_mask, rows, keys)
        for function in self.functions:
            visible = visible & function(*part)
        return visible

    def shows_any(self, t: int, s: int, *, device: torch.device) -> Tensor:
        """Return True for each query that may attend to any key, broadcastable to (b, h, t, 1). Requires an ``attn_mask``.

        Functions must be part of ``attn_mask`` already.
        """
        assert self.attn_mask is not None
        attn_mask = torch.atleast_2d(self.attn_mask)
        if attn_mask.shape[-2] > 1:
            return self.dense(t, s, device=device).any(-1, keepdim=True)  # type: ignore[union-attr] not None here
        # One mask for all queries: of the visible keys, count those before the range of each query, and those up to its end.
        position = torch.arange(s - t, s, device=device)
        start = torch.zeros_like(position) if self.window is None else (position - self.window + 1).clamp(min=0)
        end = position if self.causal else position + (max(s, t) if self.window is None else self.window - 1)
        counts = F.pad(attn_mask.expand(*attn_mask.shape[:-1], s).cumsum(-1), (1, 0))
        return (counts[..., (end + 1).clamp(min=0, max=s)] > counts[..., start]).mT


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
    if visible.is_meta or isinstance(visible, FakeTensor) or not tiles:  # in a plan, which knows shapes alone
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
