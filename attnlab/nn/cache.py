"""Caches of attention layers, with which a decoder computes each new token once (``attnlab.models.decoding``)."""

import torch
from torch import Tensor


class Cache:
    """Base class: what one layer keeps of the positions that it has processed in earlier calls.

    The tensors of a cache are its attributes. The first dimension of each is the batch; an attribute is None before the
    first call.

    Attributes:
        bounded: True when the tensors do not grow with the sequence beyond a size that the layer fixes, for example the state
            of a recurrence. Their bytes count as states.
    """

    bounded: bool = False

    def select(self, rows: Tensor) -> None:
        """Keep ``rows`` (n,), numbers of rows of the batch, in their order; a row may occur several times."""
        for name, tensor in self.tensors().items():
            setattr(self, name, tensor.index_select(0, rows))

    @property
    def nbytes(self) -> int:
        """The bytes that the tensors of the cache hold now."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that the cache holds now, by attribute."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}


class SequenceCache(Cache):
    """A tensor of the positions that one layer has processed in earlier calls, or of the last of them.

    Args:
        keep: number of positions to keep; None: all.

    Attributes:
        values: (b, s, ...); None before the first call.
    """

    def __init__(self, keep: int | None = None) -> None:
        self.keep = keep
        self.bounded = keep is not None
        self.values: Tensor | None = None

    def extend(self, x: Tensor) -> Tensor:
        """Append x (b, n, ...) of n new positions; return the kept positions and these."""
        if self.values is not None:
            x = torch.cat([self.values, x], dim=1)
        self.values = x if self.keep is None else x[:, max(0, x.shape[1] - self.keep) :]
        return x


class KeyValueCache(Cache):
    """Keys and values of the positions that one attention layer has processed in earlier calls.

    Attributes:
        keys: (b, g, s, d) of g heads, before the position scheme acts on them; None before the first call.
        values: (b, g, s, e).

    Examples:
        >>> cache = KeyValueCache()
        >>> first, second = torch.zeros(1, 2, 3, 4), torch.ones(1, 2, 1, 4)
        >>> k, v = cache.extend(first, first)
        >>> k, v = cache.extend(second, second)
        >>> k.shape, cache.nbytes
        (torch.Size([1, 2, 4, 4]), 256)
    """

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of new positions; return the keys and values of all positions.

        Args:
            k: (b, g, n, d) of n new positions; n may be 0.
            v: (b, g, n, e).
        """
        if self.keys is not None and self.values is not None:
            k = torch.cat([self.keys, k], dim=2) if k.shape[2] else self.keys
            v = torch.cat([self.values, v], dim=2) if v.shape[2] else self.values
        self.keys, self.values = k, v
        return k, v


class State(Cache):
    """The state of a recurrence after the positions of earlier calls. Its size does not depend on their number.

    Attributes:
        state: (b, h, d, e); None before the first call.
        length: the number of positions, which position schemes need.
    """

    bounded = True

    def __init__(self) -> None:
        self.state: Tensor | None = None
        self.length = 0
