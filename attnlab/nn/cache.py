"""Cache of keys and values, with which a decoder computes each new token once (``attnlab.models.cache``)."""

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of the positions that one attention layer has processed in earlier calls.

    Attributes:
        keys: (b, g, s, d) of g heads, before the position scheme acts on them; None before the first call.
        values: (b, g, s, e).

    Example:
        >>> cache = KeyValueCache()
        >>> first, second = torch.zeros(1, 2, 3, 4), torch.ones(1, 2, 1, 4)
        >>> k, v = cache.extend(first, first)
        >>> k, v = cache.extend(second, second)
        >>> k.shape
        torch.Size([1, 2, 4, 4])
    """

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of new positions; return those of all positions.

        Args:
            k: (b, g, n, d) of n new positions; n may be 0.
            v: (b, g, n, e).
        """
        if self.keys is not None and self.values is not None:
            k = torch.cat([self.keys, k], dim=2) if k.shape[2] else self.keys
            v = torch.cat([self.values, v], dim=2) if v.shape[2] else self.values
        self.keys, self.values = k, v
        return k, v

    def select(self, rows: Tensor) -> None:
        """Keep ``rows`` (n,), numbers of rows of the batch, in their order; a row may occur several times."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)
