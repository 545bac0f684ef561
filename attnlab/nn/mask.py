"""Masks of attention: the keys that each query may attend to."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.nn.indices import Indices, KeyRanges, MaskFunction, part_of
from attnlab.nn.layers import causal_mask, relative_distance


@dataclass(frozen=True, eq=False)
class AttentionMask:
    """The keys that each query may attend to. With several conditions, all must hold; with none, every key is visible.

    Attributes:
        causal: query i attends to keys up to position i + s - t only.
        window: query i attends to keys at a distance below ``window`` from position i + s - t only: with ``causal``, to the
            last ``window`` keys, including position i + s - t.
        attn_mask: boolean, broadcastable to (b, h, t, s), True = may be attended to.
        functions: functions of the indices of queries and keys (``attnlab.nn.indices.MaskFunction``).

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
        """Return an equal mask with the window as part of ``attn_mask``."""
        if self.window is None:
            return self
        near = relative_distance(t, s, device=device).abs() < self.window
        return replace(self, window=None, attn_mask=near if self.attn_mask is None else near & self.attn_mask)

    def normalized(self, t: int, s: int, *, device: torch.device) -> "AttentionMask":
        """Return an equal mask for t queries and s keys in which ``causal`` and ``window`` show a key to every query.

        With more queries than keys, these two may hide all keys from a query; they then become part of ``attn_mask``.
        """
        mask = self if self.window is None or self.window < max(t, s) else replace(self, window=None)
        if t <= s or not (mask.causal or mask.window):
            return mask
        return replace(mask, causal=False, window=None, attn_mask=mask.dense(t, s, device=device))

    def without_functions(self, q: Tensor, s: int) -> "AttentionMask":
        """Return an equal mask for queries (b, h, t, d) and s keys with the functions as part of ``attn_mask``."""
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
        """Return, broadcastable to (b, h, t, 1), True for a query that may attend to any key. Requires an ``attn_mask``.

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
