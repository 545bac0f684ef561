"""Indices of the logits of attention, and the parts of tensors that belong to some of the queries and keys."""

from collections.abc import Callable
from typing import NamedTuple, Self, TypeAlias

import torch
from torch import Tensor

MaskFunction: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""``(b, h, i, j) -> visible``: see ``attnlab.components.Component.visible``."""
KeyRanges: TypeAlias = tuple[slice, ...]
"""Ranges of keys in ascending order."""


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
