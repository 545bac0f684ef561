"""Cutting a sequence into groups in which ordinary attention can run, and putting it together again.

Sparse variants use these. The end of the sequence is filled up with zeros (False in a mask) to a multiple of the group's size.
"""

from torch import Tensor
from torch.nn import functional as F


def by_block(z: Tensor, length: int) -> Tensor:
    """(b, h, t, d) -> (b, n, h, length, d): block ``n`` holds positions ``n length`` .. ``n length + length - 1``."""
    return _grid(z, length).transpose(2, 3)


def from_block(y: Tensor, t: int) -> Tensor:
    """(b, n, h, length, d) -> (b, h, t, d), the inverse of ``by_block``."""
    return y.transpose(2, 3).flatten(1, 2)[:, :t].transpose(1, 2)


def by_column(z: Tensor, length: int) -> Tensor:
    """(b, h, t, d) -> (b, length, h, n, d): column ``c`` holds positions ``c``, ``c + length``, ``c + 2 length``, ..."""
    return _grid(z, length).permute(0, 2, 3, 1, 4)


def from_column(y: Tensor, t: int) -> Tensor:
    """(b, length, h, n, d) -> (b, h, t, d), the inverse of ``by_column``."""
    return y.permute(0, 3, 1, 2, 4).flatten(1, 2)[:, :t].transpose(1, 2)


def _grid(z: Tensor, length: int) -> Tensor:
    """(b, h, t, d) -> (b, n, length, h, d), filled up."""
    by_position = z.transpose(1, 2)  # (b, t, h, d), how projections leave it: the views below then copy nothing
    filled = F.pad(by_position, (0, 0, 0, 0, 0, -z.shape[2] % length))
    return filled.unflatten(1, (-1, length))
