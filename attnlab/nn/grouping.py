"""Cutting a sequence into groups in which ordinary attention can run, and putting it together again.

Sparse variants use these. A grid holds a sequence as (b, n, length, h, d): row ``n`` has the positions ``n length`` ..
``n length + length - 1``, and a column those that stand ``length`` apart. The end of the sequence is filled up with zeros
(False in a mask) to a multiple of the length. All but the filling are views.
"""

from torch import Tensor
from torch.nn import functional as F


def grid(z: Tensor, length: int) -> Tensor:
    """(b, h, t, d) -> (b, n, length, h, d)."""
    by_position = z.transpose(1, 2)  # (b, t, h, d), how projections leave it
    missing = -z.shape[2] % length
    filled = F.pad(by_position, (0, 0, 0, 0, 0, missing)) if missing else by_position
    return filled.unflatten(1, (-1, length))


def from_grid(y: Tensor, t: int) -> Tensor:
    """(b, n, length, h, d) -> (b, t, h d), all heads merged."""
    return y.flatten(1, 2)[:, :t].flatten(2)


def by_block(z: Tensor, length: int) -> Tensor:
    """(b, h, t, d) -> (b, n, h, length, d): its rows."""
    return grid(z, length).transpose(2, 3)


def from_block(y: Tensor) -> Tensor:
    """(b, n, h, length, d) -> the grid."""
    return y.transpose(2, 3)


def by_column(z: Tensor, length: int) -> Tensor:
    """(b, h, t, d) -> (b, length, h, n, d): its columns."""
    return grid(z, length).permute(0, 2, 3, 1, 4)


def from_column(y: Tensor) -> Tensor:
    """(b, length, h, n, d) -> the grid."""
    return y.permute(0, 3, 1, 2, 4)
