"""Position schemes: where order enters attention.

A scheme acts through exactly one hook:

``embed``
    added to the token embeddings, once, before the first block. One instance serves the model.
``rotate``
    changes queries and keys before their products are taken. One instance a block.
``bias``
    is added to the scaled logits, and may depend on the queries and keys. One instance a block.
``none``
    does nothing: attention sees a set.

Keys may run over more positions than queries (``s > t``, memory in front): query ``i`` stands at ``i + s - t``.

Some variants have logits only in pieces, and ask for the bias of one piece at a time: see ``Position.bias``.
"""

import inspect
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor, nn


@dataclass(frozen=True)
class PositionConfig:
    """What a scheme is built for.

    Attributes:
        dim: model width. heads: number of heads. head_dim: width of one head's queries and keys.
        length: the longest sequence that it will meet, memory included; at other lengths a trained model may meet longer ones.
        role: ``causal``, ``bidirectional`` or ``cross``.
        pieces: whether ``bias`` will be asked for pieces (``Variant.pieces``).
    """

    dim: int
    heads: int
    head_dim: int
    length: int
    role: str
    blockwise_bias: bool = False


class RelativeLogits(NamedTuple):
    """Logits as two products, ``scale * (content k^T + shift(distance r^T))``, with ``shift`` of ``attnlab.nn.layers``.

    Attributes:
        content, distance: (b, h, t, d), what meets the keys, and what meets the distances.
        r: (h, n, d), of the distances s-1, s-2, ... down to -1 in a causal role, to -t in others.
    """

    content: Tensor
    distance: Tensor
    r: Tensor


class Position(nn.Module):
    """The contract of a position scheme: set ``hook``, and write the one method of that name.

    Attributes:
        hook: where it acts.
        relative: whether it depends on distances alone, so that where a sequence begins changes nothing.
        extends: whether it knows positions beyond the length it was built for. Where it does not, a trained model is not
            evaluated at longer sequences.
        paper: who proposed it.
    """

    hook: ClassVar[str] = "none"
    relative: ClassVar[bool] = False
    extrapolates: ClassVar[bool] = True
    paper: ClassVar[str] = ""

    def __init__(self, config: PositionConfig) -> None:
        super().__init__()
        self.config = config

    @classmethod
    def unsupported(cls, config: PositionConfig) -> str | None:
        """Return the reason why this scheme does not support ``config``, or None. The plan calls it for every cell."""
        if config.role == "cross" and cls.hook in ("rotate", "bias"):
            return "does not support the role cross: queries and keys are positions in two different sequences"
        if config.blockwise_bias and cls.hook == "bias" and not cls.has_blockwise_bias():
            return "the variant computes its logits in blocks, which requires a bias() that takes heads, step and offset"
        return None

    @classmethod
    def has_blockwise_bias(cls) -> bool:
        """Whether ``bias`` takes the arguments that say which piece is meant."""
        return {"heads", "step", "offset"} <= set(inspect.signature(cls.bias).parameters)

    def embed(self, t: int) -> Tensor:
        """(t, dim) to add to the embeddings of positions 0 .. t-1."""
        raise NotImplementedError

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """q (b, h, t, d) and k (b, h, s, d), changed according to where they stand."""
        raise NotImplementedError

    def bias(
        self, q: Tensor, k: Tensor, *, scale: float, heads: slice = slice(None), step: int = 1, offset: Tensor | int = 0
    ) -> Tensor:
        """What is added to logits that ``scale`` has already multiplied.

        A scheme may leave out ``heads``, ``step`` and ``offset``: q and k then are (b, h, t, d) and (b, h, s, d) of all heads
        and of neighbouring positions, and variants that ask for pieces are refused in the plan. A scheme that takes them must
        honour them. Key ``j`` of a piece lies behind query ``i`` by

            relative_distance(t, s)[i, j] * step + offset

        Args:
            q: (..., h, t, d). k: (..., h, s, d). Their leading dimensions broadcast.
            heads: which of the scheme's heads q and k hold.
            step: how far apart neighbouring queries stand, and neighbouring keys.
            offset: whole numbers between -step and step, both excluded: one, or a tensor (..., 1, 1, 1).

        Returns:
            Broadcastable to (..., h, t, s). In a causal role the values for keys ahead of their query mean nothing.
        """
        raise NotImplementedError

    def relative_logits(self, q: Tensor, s: int) -> RelativeLogits | None:
        """``scale * q k^T + bias(q, k)`` as two products, where it is that: what goes by blocks then never holds a whole bias.

        Args:
            q: (b, h, t, d) of all heads and neighbouring positions. s: how many keys there are.
        """
        return None
