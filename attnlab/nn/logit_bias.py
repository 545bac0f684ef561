"""Biases of logits that depend on queries and keys."""

from typing import NamedTuple, Protocol

from torch import Tensor


class RelativeLogits(NamedTuple):
    """Scaled logits as two products: ``scale * (content @ k.mT + relative_shift(distance @ r.mT, s))``.

    Attributes:
        content: (b, h, t, d), the operand that is multiplied with the keys.
        distance: (b, h, t, d), the operand that is multiplied with the distances.
        r: (h, n, d), an embedding of each distance s-1, s-2, ..., down to -1 in a causal role and to -t in others.
    """

    content: Tensor
    distance: Tensor
    r: Tensor


class LogitBias(Protocol):
    """A bias that depends on queries and keys. Position schemes that act by ``bias`` are such (``attnlab.positions``).

    Where an object has the attribute ``reads_mask = True``, its ``bias`` also takes ``visible``: the whole mask, boolean,
    broadcastable to (b, h, t, s), or None if every key is visible.
    """

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:
        """Return the bias, broadcastable to (b, h, t, s)."""
        ...

    def relative_logits(self, q: Tensor, s: int) -> RelativeLogits | None:
        """Return ``scale * q k^T + bias`` as two products, or None when it has no such form."""
        ...
