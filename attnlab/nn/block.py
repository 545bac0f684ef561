"""A block of the logits of attention, and the parts of tensors that belong to it."""

from typing import NamedTuple

from torch import Tensor

from attnlab.nn.indices import KeyRanges, part_of, take_keys


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
