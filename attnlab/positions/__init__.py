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
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn


@dataclass(frozen=True)
class PositionSetting:
    """What a scheme is built for.

    Attributes:
        dim: model width. heads: number of heads. head_dim: width of one head's queries and keys.
        length: the longest sequence that it will meet.
        role: ``causal``, ``bidirectional`` or ``cross``.
    """

    dim: int
    heads: int
    head_dim: int
    length: int
    role: str


class Position(nn.Module):
    """The contract of a position scheme: set ``hook``, and write the one method of that name.

    Attributes:
        hook: where it acts.
        relative: whether it depends on distances alone, so that where a sequence begins changes nothing.
        paper: who proposed it.
    """

    hook: ClassVar[str] = "none"
    relative: ClassVar[bool] = False
    paper: ClassVar[str] = ""

    def __init__(self, setting: PositionSetting) -> None:
        super().__init__()
        self.setting = setting

    @classmethod
    def refuses(cls, setting: PositionSetting) -> str | None:
        """Why this scheme cannot serve ``setting``, or None when it can. Asked when the plan is made."""
        if setting.role == "cross" and cls.hook in ("rotate", "bias"):
            return "queries and keys of cross-attention are positions in two different sequences"
        return None

    def embed(self, t: int) -> Tensor:
        """(t, dim) to add to the embeddings of positions 0 .. t-1."""
        raise NotImplementedError

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """q (b, h, t, d) and k (b, h, s, d), changed according to where they stand."""
        raise NotImplementedError

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:
        """Broadcastable to (b, h, t, s), added to logits that ``scale`` has already multiplied."""
        raise NotImplementedError
